"""How a run queues again when its job comes to an end: which sizes it asks for, and when it starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...resize.sizes import span_to_queue
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
    """

    def __init__(self, place: Place, successors: Successors, policy: Callable[[], Policy]) -> None:
        self.place, self.account, self.options, self.console = place, place.account, place.options, place.console
        self.successors, self._policy = successors, policy

    @property
    def possible(self) -> bool:
        return self.place.engine.can_submit and not self.used_up

    @property
    def used_up(self) -> bool:
        """Whether no generation may follow."""
        return self.account.number >= self.options.max_generations

    def behind(
        self, app: Application, reason: str, wanted: tuple[int, int] | None = None, by: str = "clock"
    ) -> None:
        """Submit a successor that starts when this job has ended; of the same size where no other is to be had.

        Parameters
        ----------
        wanted
            Least and most nodes that were asked for; by default those of `sizes_at_limit`.
        """
        held = (app.nodes, app.nodes)
        sizes = wanted or sizes_at_limit(self.options, self.account.history, app.nodes, self._moldable())
        # In a limit that was cut too short for one step the next job would do no better.
        whole = app.step is None or app.step <= (app.first_step or 0)
        for nodes in dict.fromkeys((sizes, held)):
            if self.successors.submit(
                self.account.number, nodes, after=self.place.job, by=by, reason=reason, whole=whole
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
        from ...resize.policy import is_moldable

        if self.options.rigid:
            return False
        try:
            policy = self._policy()
        except ValueError as error:  # a user's own, that is gone meanwhile
            self.console.warn(f"{error}: keeping the size")
            return False
        return is_moldable(policy)


def sizes_at_limit(options: RunOptions, history: History, nodes: int, moldable: bool) -> tuple[int, int]:
    """Return least and most nodes of the successor at a time limit.

    A range (see `span_to_queue`) where the run's policy may choose among sizes (`moldable`, see
    `dmr.resize.policy.Policy`): nodes that are free now cost nothing but to be asked for, while those that are wanted
    later cost another wait; too many are given back by the policy. Else, and when the user chose the size by
    ``dmr resize``, the run keeps it.
    """
    if not moldable or options.rigid or history.size_by.startswith("user"):
        return (nodes, nodes)
    return span_to_queue(options.sizes, nodes)
