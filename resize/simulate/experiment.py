"""The same workloads under several regimes, over many seeds, with intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .central import simulate_central
from .engine import Schedule, Simulation
from .malleable import Fleet, Launcher
from .metrics import metrics, turnaround_of
from .workload import Workload, make_malleable

STUDENT = (
    12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""97.5 % quantiles of Student's t for 1, 2, … degrees of freedom."""


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and half of its 95 % interval; nan with a single one."""

    mean: float
    half: float
    count: int


def interval(values: Iterable[float]) -> Interval:
    """Return the mean of independent values with its 95 % interval (Student's t)."""
    found = [each for each in values if not math.isnan(each)]
    count = len(found)
    if not count:
        return Interval(math.nan, math.nan, 0)
    mean = sum(found) / count
    if count < 2:
        return Interval(mean, math.nan, count)
    spread = math.sqrt(sum((each - mean) ** 2 for each in found) / (count - 1))
    quantile = STUDENT[count - 2] if count - 2 < len(STUDENT) else 1.96
    return Interval(mean, quantile * spread / math.sqrt(count), count)


def simulate_malleable(
    workload: Workload,
    nodes: int,
    launcher: Launcher,
    scheduler: str = "easy",
    *,
    cycle: float = 0.0,
    keep_usage: bool = False,
) -> Schedule:
    """Return the schedule of a workload whose malleable jobs have a launcher each, on an unaware scheduler."""
    simulation = Simulation(workload, nodes, scheduler, cycle=cycle, keep_usage=keep_usage)
    Fleet(simulation)
    return simulation.run(launcher.submit)


@dataclass(frozen=True)
class Regime:
    """One way to run a workload.

    ``kind`` is ``rigid`` (no job is resized), ``user`` (launchers on an unaware scheduler) or ``central`` (the
    scheduler resizes); ``share`` of the jobs is malleable.
    """

    name: str
    kind: str
    share: float = 1.0
    scheduler: str = "easy"
    launcher: Launcher | None = None
    cycle: float = 0.0

    def run(self, workload: Workload, nodes: int, seed: int, *, keep_usage: bool = False) -> Schedule:
        """Return the schedule of the workload under this regime."""
        if self.kind == "rigid":
            return Simulation(workload, nodes, self.scheduler, cycle=self.cycle, keep_usage=keep_usage).run()
        mixed = make_malleable(workload, self.share, nodes, seed)
        if self.kind == "central":
            return simulate_central(mixed, nodes, keep_usage=keep_usage)
        if self.launcher is None:
            raise ValueError(f"the regime {self.name} has no launcher")
        return simulate_malleable(mixed, nodes, self.launcher, self.scheduler, cycle=self.cycle, keep_usage=keep_usage)


@dataclass(frozen=True)
class Result:
    """Numbers of one regime: each metric, its ratio to the first regime, both over the seeds.

    ``rigid_effect`` is the mean turnaround of the jobs that stay rigid over what the same jobs have under the first
    regime. ``share_of_central`` is how much of the gain in turnaround that the ``central`` regime with the same
    share of malleable jobs has is had by this one.
    """

    name: str
    values: Mapping[str, Interval]
    ratios: Mapping[str, Interval]
    rigid_effect: Interval
    share_of_central: Interval


def compare(
    make: Callable[[int], Workload], nodes: int, regimes: Sequence[Regime], seeds: Sequence[int]
) -> list[Result]:
    """Run every regime on the workload of every seed.

    Ratios are taken seed by seed, each regime on the very same jobs, so that the differences between
    workloads do not blur them.

    Parameters
    ----------
    make
        Returns the workload of a seed.
    regimes
        The first is what the others are compared with.
    """
    values: list[list[dict[str, float]]] = [[] for _ in regimes]
    effects: list[list[float]] = [[] for _ in regimes]
    gains: list[list[float]] = [[] for _ in regimes]
    for seed in seeds:
        workload = make(seed)
        schedules = [regime.run(workload, nodes, seed) for regime in regimes]
        found = [metrics(schedule).flat() for schedule in schedules]
        best = {regime.share: each for each, regime in zip(found, regimes, strict=True) if regime.kind == "central"}
        for place, schedule in enumerate(schedules):
            values[place].append(found[place])
            rigid = [each.job.id for each in schedule.outcomes if not each.malleable]
            effects[place].append(turnaround_of(schedule, rigid) / turnaround_of(schedules[0], rigid))
            central = best.get(regimes[place].share)
            gain = found[0]["turnaround"] - central["turnaround"] if central is not None else math.nan
            gains[place].append((found[0]["turnaround"] - found[place]["turnaround"]) / gain if gain > 0 else math.nan)
    results = []
    for place, regime in enumerate(regimes):
        mine, pairs = values[place], list(zip(values[place], values[0], strict=True))
        names = list(mine[0]) if mine else []
        means = {name: interval(each[name] for each in mine) for name in names}
        ratios = {name: interval(_ratio(each[name], base[name]) for each, base in pairs) for name in names}
        results.append(Result(regime.name, means, ratios, interval(effects[place]), interval(gains[place])))
    return results


def _ratio(value: float, base: float) -> float:
    return value / base if base else math.nan
