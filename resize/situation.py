"""All that a policy may look at, computed once and only when asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from .outlook import Outlook
from .speed import Estimate, Speed
from .view import Choice, ClusterView, RunView

ASSUMED_LAUNCH = 5.0
"""Seconds taken for the start of the application where none was measured."""
ASSUMED_BANDWIDTH = 200e6
"""Bytes a second taken for saving and loading where none was measured."""


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
        The size a policy takes where several serve as well, and below which it gives nothing away unasked.
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
    """

    def __init__(self, run: RunView, cluster: ClusterView, rules: Rules) -> None:
        self.run = run
        self.cluster = cluster
        self.rules = rules
        self._rows: dict[int, Choice] = {}

    @cached_property
    def outlook(self) -> Outlook:
        return Outlook(self.cluster, self.run.run, self.run.job)

    @cached_property
    def speed(self) -> Speed:
        return Speed(self.run.rates, self.run.phase)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Allowed sizes that the cluster has room for at all."""
        most = min(self.cluster.total, self.cluster.max_nodes or self.cluster.total)
        return tuple(size for size in self.run.sizes if size <= max(most, self.run.nodes))

    @cached_property
    def cost(self) -> float:
        """Seconds without computing that one change of size takes."""
        costs = self.run.costs
        moving = self.run.state_bytes / ASSUMED_BANDWIDTH
        return (
            (moving if costs.save is None else costs.save)
            + (ASSUMED_LAUNCH if costs.launch is None else costs.launch)
            + (moving if costs.load is None else costs.load)
        )

    @property
    def cost_measured(self) -> bool:
        costs = self.run.costs
        return None not in (costs.save, costs.launch, costs.load)

    @property
    def steps_left(self) -> int | None:
        return None if self.run.steps is None else max(0, self.run.steps - self.run.step)

    def seconds_left(self, nodes: int) -> Estimate | None:
        """Return the seconds that the remaining steps take at a size, None where unknown."""
        per_step, left = self.speed.at(nodes), self.steps_left
        if per_step is None or left is None:
            return None
        return Estimate(per_step.value * left, per_step.low * left, per_step.high * left, per_step.measured)

    def beside(self, nodes: int) -> int:
        """Return how many idle nodes a change to this size needs."""
        held = self.run.nodes
        if nodes <= held:
            return 0
        if self.run.in_place or held + nodes > self.cluster.total:
            return nodes - held
        return nodes

    def is_chain(self, nodes: int) -> bool:
        """Whether old and new can't stand side by side, so that the run has to leave before it grows."""
        return not self.run.in_place and nodes > self.run.nodes and self.run.nodes + nodes > self.cluster.total

    def wait(self, nodes: int) -> tuple[float, float]:
        """Return bounds on the seconds until this size can be had; the upper is inf where nothing is known."""
        need = self.beside(nodes)
        if need == 0:
            return (0.0, 0.0)
        lower = self.outlook.wait_at_least(need)
        if need <= self.outlook.room and not self.outlook.waiting:
            return (lower, lower)
        seen = sorted(seconds for size, seconds in self.run.waits if size >= nodes)
        upper = seen[min(len(seen) - 1, math.ceil(0.9 * len(seen)) - 1)] if seen else math.inf
        return (lower, max(lower, upper))

    def row(self, nodes: int) -> Choice:
        """Return what a size would cost and bring, from now on."""
        if nodes not in self._rows:
            self._rows[nodes] = self._estimate(nodes)
        return self._rows[nodes]

    def _estimate(self, nodes: int) -> Choice:
        run, wait = self.run, self.wait(nodes)
        here, there = self.seconds_left(run.nodes), self.seconds_left(nodes)
        if nodes == run.nodes:
            finish = None if here is None else run.time + here.value
            hours = None if here is None else run.node_hours + nodes * here.value / 3600
            return Choice(nodes, wait, 0.0, finish, hours, 0.0 if here else None, 0.0 if here else None)
        if here is None or there is None:
            return Choice(nodes, wait, self.cost)
        computing = 0.0 if self.is_chain(nodes) else wait[0]
        if here.value <= 0 or not math.isfinite(wait[0]) or computing >= here.value:
            return Choice(nodes, wait, self.cost, None, None, -self.cost, 0.0)
        share = 1 - computing / here.value
        idle = wait[0] - computing
        rest = there.value * share
        gain = here.value - (computing + idle + self.cost + rest)
        error = share * (there.high - there.low) / 2 + (0.0 if self.cost_measured else self.cost / 2)
        finish = run.time + computing + idle + self.cost + rest
        hours = run.node_hours + (run.nodes * (computing + self.cost / 2) + nodes * (self.cost / 2 + rest)) / 3600
        return Choice(nodes, wait, self.cost, finish, hours, gain, error)
