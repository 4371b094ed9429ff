"""All that a policy may look at, computed once and only when asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from .cost import Cost, cost
from .mixture import Mixture, speed_of
from .outlook import Outlook, Survey
from .speed import Estimate, Speed
from .view import Choice, ClusterView, RunView

WAIT_QUANTILE = 0.9
"""The upper bound of a wait is this quantile of the waits seen."""


@dataclass(frozen=True)
class Rules:
    """What binds every policy.

    Attributes
    ----------
    dwell
        Seconds that a size is kept before a policy may change it.
    margin
        A change for speed has to bring at least this many times what it costs, beyond its cost.
    preferred
        The size that serves best; beyond it a run does not grow while others wait.
    max_resizes
        After so many changes of size the run keeps the one it has; None for no bound.
    max_node_hours
        Growth that would take the run above this is refused; None for no bound.
    """

    dwell: float = 60.0
    margin: float = 0.5
    preferred: int | None = None
    max_resizes: int | None = None
    max_node_hours: float | None = None


class Situation:
    """The run and the cluster at one time, with estimates for every size.

    Attributes
    ----------
    run, cluster, rules
        As handed in.
    detailed
        Whether a reason is wanted for every size; otherwise a policy may pass over those that it would not take.
    """

    def __init__(
        self, run: RunView, cluster: ClusterView, rules: Rules, survey: Survey | None = None, *, detailed: bool = True
    ) -> None:
        self.detailed = detailed
        self.run = run
        self.cluster = cluster
        self.rules = rules
        self._survey = survey
        self._rows: dict[int, Choice] = {}

    @cached_property
    def outlook(self) -> Outlook:
        survey = self._survey if self._survey is not None else Survey(self.cluster)
        return Outlook(survey, self.run.run, self.run.job, self.run.time)

    @cached_property
    def speed(self) -> Speed | Mixture:
        """Of the steps that are left: of all phases by their shares, not of the present one alone."""
        return speed_of(self.run)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Allowed sizes that the cluster has room for at all."""
        most = max(min(self.cluster.total, self.cluster.max_nodes or self.cluster.total), self.run.nodes)
        sizes = self.run.sizes
        return sizes if sizes[-1] <= most else tuple(size for size in sizes if size <= most)

    def cost(self, nodes: int) -> Cost:
        """Return what a change to this size costs."""
        return cost(self.run, nodes, self._seconds_per_step) if self.run.resize_costs else self._same_cost

    @cached_property
    def _same_cost(self) -> Cost:
        return cost(self.run, self.run.nodes, self._seconds_per_step)

    @cached_property
    def _seconds_per_step(self) -> float | None:
        here = self.speed.at(self.run.nodes)
        return None if here is None else here.value

    @property
    def steps_left(self) -> int | None:
        return None if self.run.steps is None else max(0, self.run.steps - self.run.step)

    def seconds_left(self, nodes: int) -> Estimate | None:
        """Return the seconds that the remaining steps take at a size, None where unknown."""
        left = self.steps_left
        per_step = None if left is None else self.speed.at(nodes)
        if per_step is None or left is None:
            return None
        return Estimate(per_step.value * left, per_step.low * left, per_step.high * left, per_step.measured)

    def beside(self, nodes: int) -> int:
        """Return how many idle nodes a change to this size needs."""
        held = self.run.nodes
        if not self._by_successor(nodes) or self.is_chain(nodes):
            return max(0, nodes - held)
        return nodes

    def is_chain(self, nodes: int) -> bool:
        """Whether old and new can't stand side by side, so that the run has to leave before it grows."""
        return self._by_successor(nodes) and self.run.nodes + nodes > self.cluster.total

    def _by_successor(self, nodes: int) -> bool:
        held = self.run.nodes
        return not self.run.in_place and (nodes > held or (nodes < held and self.run.no_shrink))

    def wait(self, nodes: int) -> tuple[float, float]:
        """Return bounds on the seconds until this size can be had; the upper is inf where nothing is known.

        The lower one is the place that a backfill scheduler would plan for it now, or what the scheduler
        itself said if that is later; the upper one a quantile of the waits that were seen.
        """
        need = self.beside(nodes)
        if need == 0:  # but nodes that were left may go to others first
            return (0.0, math.inf if self.is_chain(nodes) and self.outlook.waiting else 0.0)
        lower = max(self.outlook.wait_at_least(need), self.told(nodes))
        if lower == 0.0 and not self.outlook.waiting and not self.outlook.successors:
            return (0.0, 0.0)
        seen = [seconds for size, seconds in self.run.waits if size >= need] or self.outlook.waits_seen(need)
        upper = sorted(seen)[math.ceil(WAIT_QUANTILE * len(seen)) - 1] if seen else math.inf
        return (lower, max(lower, upper))

    def told(self, nodes: int) -> float:
        """Return in how many seconds this size can be had by what the scheduler said, 0 where it said nothing."""
        return max((seconds for size, seconds in self.run.witnesses if size == nodes), default=0.0)

    def row(self, nodes: int) -> Choice:
        """Return what a size would cost and bring, from now on."""
        if nodes not in self._rows:
            self._rows[nodes] = self._estimate(nodes, None)
        return self._rows[nodes]

    def if_free(self, nodes: int) -> Choice:
        """Return what a size would cost and bring if it could be had at once."""
        return self._estimate(nodes, (0.0, 0.0))

    def _estimate(self, nodes: int, wait: tuple[float, float] | None) -> Choice:
        run = self.run
        here, there = self.seconds_left(run.nodes), self.seconds_left(nodes)
        if wait is None:
            wait = self.wait(nodes)
        if nodes == run.nodes:
            if here is None:
                return Choice(nodes, wait, 0.0)
            return Choice(nodes, wait, 0.0, run.time + here.value, self._hours(here.value, 0.0, 0.0, nodes), 0.0, 0.0)
        change = self.cost(nodes)
        if here is None or there is None:
            return Choice(nodes, wait, change.total)
        computing = 0.0 if self.is_chain(nodes) else wait[0]
        if here.value <= 0 or not math.isfinite(wait[0]) or computing >= here.value:
            return Choice(nodes, wait, change.total, None, None, -change.total, change.error)
        share = 1 - computing / here.value
        rest = there.value * share
        spent = wait[0] + change.total + rest
        error = math.hypot(share * (there.high - there.low) / 2, change.error)
        hours = self._hours(computing, change.total, rest, nodes)
        return Choice(nodes, wait, change.total, run.time + spent, hours, here.value - spent, error)

    def _hours(self, computing: float, change: float, rest: float, nodes: int) -> float:
        """Return the node-hours of the whole run: so far, until the change, in it (both held by half), and after."""
        held = self.run.nodes
        return self.run.node_hours + (held * (computing + change / 2) + nodes * (change / 2 + rest)) / 3600
