"""How a run queues again when its job comes to an end: which sizes it asks for, and when it starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..run.history import History
from ..run.options import RunOptions
from .application import Application
from .handover import Successors
from .place import Place

if TYPE_CHECKING:
    from ...resize.policy import Policy


class Queueing:
    """Submits the successors of a job that comes to an end.

    Parameters
    ----------
    policy
        Returns the run's policy; asked at a time limit alone.
    stopped
        Returns whether the run was told to stop, so that nothing is to follow.
    """

    def __init__(
        self, place: Place, successors: Successors, policy: Callable[[], Policy], stopped: Callable[[], bool]
    ) -> None:
        self.place, self.account, self.options, self.console = place, place.account, place.options, place.console
        self.successors, self._policy, self._stopped = successors, policy, stopped

    @property
    def possible(self) -> bool:
        return self.place.engine.can_submit and not self.used_up and not self._stopped()

    @property
    def used_up(self) -> str:
        """Why no generation may follow, empty when one may."""
        return " (--max-generations)" if self.account.number >= self.options.max_generations else ""

    def behind(self, app: Application, reason: str) -> None:
        """Submit a successor that starts when this job has ended; of the same size where no range is to be had."""
        held = (app.nodes, app.nodes)
        sizes = sizes_at_limit(self.options, self.account.history, app.nodes, self._moldable())
        # In a limit that was cut too short for one step the next job would do no better.
        whole = app.step is None or app.step <= (app.first_step or 0)
        for nodes in dict.fromkeys((sizes, held)):
            if self.successors.submit(
                self.account.number, nodes, after=self.place.job, by="clock", reason=reason, whole=whole
            ):
                return

    def at_once(self, nodes: int, by: str, reason: str, *, whole: bool = False) -> bool:
        """Submit a successor for a job that is taken away: whatever size is to be had of what it held."""
        sizes = (min(self.options.sizes[0], nodes), nodes)
        return self.successors.submit(self.account.number, sizes, by=by, reason=reason, whole=whole)

    def instead(self, app: Application | None, why: str) -> bool:
        """Submit a successor for a job that the scheduler takes away before the ranks could leave it."""
        held = app.nodes if app is not None else len(self.place.allocation.nodes)
        # In a time limit that was too short for the save the next job would do no better, if cut as well.
        return self.possible and self.at_once(held, "launcher", f"to go on: {why}", whole=why == "time limit")

    def _moldable(self) -> bool:
        if self.options.rigid:
            return False
        try:
            policy = self._policy()
        except ValueError as error:  # a user's own, that is gone meanwhile
            self.console.warn(f"{error}: keeping the size")
            return False
        return bool(getattr(policy, "moldable", False))


def sizes_at_limit(options: RunOptions, history: History, nodes: int, moldable: bool) -> tuple[int, int]:
    """Return least and most nodes of the successor at a time limit.

    All sizes of the run where its policy may choose among them (`moldable`, see `dmr.resize.policy.Policy`), as its
    first job may have asked for: nodes that are free now cost nothing but to be asked for, while those that are wanted
    later cost another wait; too many are given back by the policy. The size at hand would be the wrong upper end: a
    successor that was given little would hand that down. Else, and when the user chose the size by ``dmr resize``,
    the run keeps it.
    """
    if not moldable or options.rigid or history.size_by.startswith("user"):
        return (nodes, nodes)
    return (min(nodes, options.sizes[0]), max(nodes, options.sizes[-1]))
