"""What the scheduler itself says of growth that the policy wants, before it is asked for: `sbatch --test-only`.

The view of the queue shows nodes that are idle; the scheduler also knows what else is in the way: reservations,
licences, memory. It is asked once for each growth, and where it says later, the policy decides again with that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..engines.engine import Engine, Submission
from .handover import job_name

if TYPE_CHECKING:
    from ...resize.view import ClusterView, Decision, RunView

AT_ONCE = 10.0
"""A start within so many seconds is one at once."""


class Witness:
    """Keeps what the scheduler said until that time has come.

    A scheduler that does not answer is not asked again.
    """

    def __init__(self, engine: Engine, clock: Callable[[], float]) -> None:
        self._engine, self._clock = engine, clock
        self._starts: dict[int, float] = {}
        self._silent = not engine.can_submit

    def told(self) -> tuple[tuple[int, float], ...]:
        """Return (nodes, seconds from now) as `RunView.witnesses` has them."""
        now = self._clock()
        self._starts = {nodes: start for nodes, start in self._starts.items() if start > now + AT_ONCE}
        return tuple((nodes, start - now) for nodes, start in sorted(self._starts.items()))

    def contradicts(self, run: RunView, cluster: ClusterView, decision: Decision) -> bool:
        """Ask about growth by a new job beside the old one; True when it can't start at once."""
        beside = decision.action == "expand" and not run.in_place and run.pending is None
        if self._silent or not beside or run.nodes + decision.nodes > cluster.total or decision.nodes in self._starts:
            return False
        number, size = run.generation + 1, (decision.nodes, decision.nodes)
        name = job_name(run.run, number, "asked")
        start = self._engine.foresee(Submission(number, "asked", name, size, {}, limit=decision.limit))
        if start is None:
            self._silent = True
            return False
        later = start > self._clock() + AT_ONCE
        if later:
            self._starts[decision.nodes] = start
        return later
