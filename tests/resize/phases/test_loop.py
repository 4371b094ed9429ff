"""The policy in a loop of virtual time: a first run at one size, and those that it teaches.

Changes of size go as they do on Slurm: fewer nodes in place, more by a successor that needs idle nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from dmr.resize.decide import decide
from dmr.resize.phases.knowledge import AtSize, Entry, Key, Occurrence, RunRecord, record_of
from dmr.resize.policy import Policy, load_policy
from dmr.resize.view import ClusterView, Costs, CostSample, JobView, Rate, RunView

SERIAL = {"solve": 0.002, "write": 0.9, "mesh": 0.2}
TICK = 0.5
TOTAL = 12


@dataclass
class Virtual:
    """One run. ``order`` are phases and their steps, ``unit`` seconds of a step on one node."""

    order: tuple[tuple[str, int], ...]
    unit: float
    entry: Entry | None
    policy: Policy
    sizes: tuple[int, ...] = (1, 2, 4, 8)
    start: int = 4
    noise: float = 0.01
    seed: int = 1
    time: float = 0.0
    hours: float = 0.0
    trail: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.nodes = self.start
        self.rng = np.random.default_rng(self.seed)
        self.measured: dict[tuple[str, int], list[float]] = {}
        self.costs = Costs()
        self.resize_costs = [each for run in self.entry.runs for each in run.costs] if self.entry else []
        self.done = 0.0

    @property
    def steps(self) -> int:
        return sum(count for _, count in self.order)

    def change_seconds(self, nodes: int) -> float:
        return 1.2 + 0.25 * nodes

    def occurrences(self) -> list[Occurrence]:
        found, at = [], 0
        for name, count in self.order:
            found.append(Occurrence(name, at, at + count))
            at += count
        return found

    def seconds(self, phase: str, nodes: int) -> float:
        return self.unit * (SERIAL[phase] + (1 - SERIAL[phase]) / nodes)

    def pass_time(self, seconds: float, nodes: float) -> None:
        self.time += seconds
        self.hours += nodes * seconds / 3600

    def run(self) -> RunRecord:
        self.trail.append(self.nodes)
        self.pass_time(self.change_seconds(self.nodes), self.nodes)
        self.costs = Costs(launch=self.change_seconds(self.nodes))
        since = self.time
        while self.done < self.steps - 1e-9:
            here = next(each for each in self.occurrences() if each.start <= self.done + 1e-9 < each.end)
            per_step = self.seconds(here.phase, self.nodes) * math.exp(self.noise * self.rng.normal())
            tick = min(TICK, (here.end - self.done) * per_step)
            self.done += tick / per_step
            self.pass_time(tick, self.nodes)
            entry = self.measured.setdefault((here.phase, self.nodes), [0.0, 0.0])
            entry[0] += tick / per_step
            entry[1] += tick
            wanted = self.decide(here.phase, since)
            if wanted != self.nodes:
                self.change(wanted)
                since = self.time
        sizes: dict[str, list[AtSize]] = {}
        for (phase, nodes), (steps, seconds) in self.measured.items():
            sizes.setdefault(phase, []).append(AtSize(nodes, seconds / steps, max(1, round(steps))))
        return record_of(
            f"run at {self.time}", self.time, sizes, self.occurrences(), steps=self.steps, costs=self.resize_costs
        )

    def decide(self, phase: str, since: float) -> int:
        rates = tuple(
            Rate(nodes, seconds / steps, round(steps), name)
            for (name, nodes), (steps, seconds) in self.measured.items()
            if steps >= 1.5
        )
        entry = self.entry
        view = RunView(
            self.time, "v", 1, self.nodes, self.sizes, since, step=int(self.done), steps=self.steps, job="1",
            phase=phase, rates=rates, costs=self.costs, resize_costs=tuple(self.resize_costs), node_hours=self.hours,
            first_nodes=self.start, started=0.0, earlier=entry.rates() if entry else (),
            ahead=entry.outlook(int(self.done), phase, 0.0) if entry else (),
        )  # fmt: skip
        cluster = ClusterView(self.time, TOTAL, TOTAL - self.nodes, (JobView("1", "running", self.nodes, end=1e6),))
        decision = decide(view, cluster, self.policy, table=False)
        return decision.nodes if decision.action in ("shrink", "expand") else self.nodes

    def change(self, nodes: int) -> None:
        seconds = self.change_seconds(nodes)
        self.pass_time(seconds, max(nodes, self.nodes) if nodes > self.nodes else nodes)
        self.costs = Costs(save=0.1, launch=seconds - 0.2, load=0.1)
        self.resize_costs.append(CostSample(nodes, 0, 0.1, seconds - 0.2, 0.1))
        self.nodes = nodes
        self.trail.append(nodes)


def three_runs(
    order: tuple[tuple[str, int], ...], unit: float, seed: int = 1, **options: object
) -> list[Virtual]:
    """Return a static run and two with the policy ``phases``, each with what those before it taught."""
    entry = Entry(Key("p"))
    made = []
    for name in ("static", "phases", "phases"):
        chosen = load_policy(name, {"dwell": 1.0, **(options if name == "phases" else {})})
        one = Virtual(order, unit, entry if entry.runs else None, chosen, seed=seed)
        entry = Entry(entry.key, (*entry.runs, one.run()))
        made.append(one)
    return made


LONG = (("solve", 100), ("write", 60), ("mesh", 20))


def told(runs: list[Virtual]) -> list[tuple[float, float, list[int]]]:
    return [(round(each.time, 1), round(each.hours, 4), each.trail) for each in runs]


@pytest.mark.parametrize("seed", range(5))
def test_the_second_run_is_much_cheaper_and_hardly_slower_and_the_third_not_worse(seed: int) -> None:
    first, second, third = runs = three_runs(LONG, 1.5, seed)
    assert first.trail == [4]
    assert second.hours <= 0.75 * first.hours and second.time <= 1.05 * first.time, told(runs)
    assert third.hours <= second.hours and third.time <= second.time, told(runs)


@pytest.mark.parametrize(
    "order",
    [
        (("solve", 80), ("write", 32), ("mesh", 17)),
        (("write", 60), ("solve", 100), ("mesh", 20)),
        (("solve", 60), ("mesh", 20), ("write", 24), ("solve", 60), ("mesh", 20), ("write", 24)),
        (("write", 20), ("solve", 60), ("mesh", 10), ("write", 20), ("solve", 60), ("mesh", 10)),
        (("mesh", 20), ("write", 24), ("solve", 60), ("mesh", 20), ("write", 24), ("solve", 60)),
    ],
)
def test_short_phases_and_other_orders_gain_less_and_lose_nothing(order: tuple[tuple[str, int], ...]) -> None:
    first, second, third = runs = three_runs(order, 1.5)
    # Trying sizes costs the second run something; what it learns pays in the third.
    assert second.hours <= 1.02 * first.hours and second.time <= 1.1 * first.time, told(runs)
    assert third.hours <= 0.95 * first.hours and third.time <= 1.1 * first.time, told(runs)
    assert all(len(each.trail) <= 3 * len(order) for each in runs), "no to and fro"


def test_with_the_aim_of_time_it_is_faster_and_no_dearer() -> None:
    first, second, third = runs = three_runs((("solve", 200), ("write", 60), ("mesh", 30)), 1.5, aim="time")
    assert second.time <= 0.9 * first.time and second.hours <= first.hours, told(runs)
    assert third.time <= 0.9 * first.time and third.hours <= second.hours, told(runs)


def test_a_program_of_one_phase_finds_its_size() -> None:
    first, second, third = runs = three_runs((("write", 80),), 1.5)
    assert second.hours < 0.8 * first.hours and third.hours < 0.9 * first.hours, told(runs)
    assert len(second.trail) <= 4 and len(third.trail) <= 4
