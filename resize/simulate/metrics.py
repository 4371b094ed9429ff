"""What a schedule was worth."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .engine import Outcome, Schedule

BOUND = 10.0
"""Run times below this count as this in the bounded slowdown, seconds (Feitelson et al. 1997)."""


@dataclass(frozen=True)
class Means:
    """Means over jobs: seconds, and the bounded slowdown, which has none.

    The slowdown is the turnaround over the run time at the size that the job asks for when rigid, so that it can
    be compared between rigid and malleable schedules.
    """

    jobs: int
    turnaround: float
    wait: float
    slowdown: float


@dataclass(frozen=True)
class Metrics:
    """Results of one schedule. ``makespan`` is from the first submission to the last end.

    ``utilisation`` is the share of the machine that jobs held in it, ``computing`` the share that computed: the
    rest of what is held are changes of size, and old and new allocation side by side.
    """

    makespan: float
    utilisation: float
    computing: float
    node_hours: float
    resizes: int
    all: Means
    rigid: Means
    malleable: Means

    def flat(self) -> dict[str, float]:
        """Return the numbers by name."""
        return {
            "makespan": self.makespan,
            "turnaround": self.all.turnaround,
            "wait": self.all.wait,
            "slowdown": self.all.slowdown,
            "utilisation": self.utilisation,
            "computing": self.computing,
            "node_hours": self.node_hours,
            "throughput": self.all.jobs / self.makespan * 3600 if self.makespan else 0.0,
            "resizes": float(self.resizes),
            "rigid_turnaround": self.rigid.turnaround,
            "rigid_wait": self.rigid.wait,
        }


def metrics(schedule: Schedule) -> Metrics:
    """Return the metrics of a schedule.

    Raises
    ------
    ValueError
        When a job has not ended.
    """
    outcomes = schedule.outcomes
    unfinished = next((each.job.id for each in outcomes if not each.end < math.inf), None)
    if unfinished is not None:
        raise ValueError(f"job {unfinished} has not ended")
    first = min((each.job.submit for each in outcomes), default=0.0)
    makespan = max((each.end for each in outcomes), default=0.0) - first
    held, offered = sum(each.node_seconds for each in outcomes), schedule.nodes * makespan
    return Metrics(
        makespan,
        held / offered if makespan else 0.0,
        sum(each.computing for each in outcomes) / offered if makespan else 0.0,
        held / 3600,
        sum(each.resizes for each in outcomes),
        means(outcomes),
        means([each for each in outcomes if not each.malleable]),
        means([each for each in outcomes if each.malleable]),
    )


def means(outcomes: Sequence[Outcome]) -> Means:
    """Return the means over jobs; nan where there are none."""
    if not outcomes:
        return Means(0, math.nan, math.nan, math.nan)
    count = len(outcomes)
    return Means(
        count,
        sum(each.end - each.job.submit for each in outcomes) / count,
        sum(each.start - each.job.submit for each in outcomes) / count,
        sum(max(1.0, (each.end - each.job.submit) / max(each.job.runtime, BOUND)) for each in outcomes) / count,
    )


def turnaround_of(schedule: Schedule, jobs: Iterable[int]) -> float:
    """Return the mean turnaround of the jobs with these numbers, seconds; nan when there are none."""
    wanted = set(jobs)
    return means([each for each in schedule.outcomes if each.job.id in wanted]).turnaround
