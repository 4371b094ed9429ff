"""What the simulator says of a mix that `jobmix.py` ran: with the scheduler as Slurm has it, node by node, each job's
own start and end, and the costs of a change as measured in the mix.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dmr.launcher.run.history import GenerationRecord, History
from dmr.resize.policy import load_policy
from dmr.resize.simulate.central import simulate_central
from dmr.resize.simulate.engine import Schedule, simulate_rigid
from dmr.resize.simulate.experiment import simulate_malleable
from dmr.resize.simulate.malleable import Launcher
from dmr.resize.simulate.workload import Job, Workload

SCHEDULER = "slurm"
CYCLE = 1.0
"""Seconds between two passes of the private cluster's scheduler."""


def work_of(job: Job) -> float:
    """Return the seconds that a job takes on one node."""
    return job.runtime / (1 - job.parallel + job.parallel / job.nodes)


def computed(each: GenerationRecord) -> float:
    """Return the node-seconds in which a generation computed."""
    return each.nodes * (each.steps or 0) * (each.seconds_per_step or 0.0)


@dataclass(frozen=True)
class Costs:
    """Mean seconds from a job's start to its first step, and from its result until its launcher has ended; medians of
    each part of a change of size."""

    startup: float
    closing: float
    save: float
    launch: float
    load: float


def overheads(
    histories: Mapping[int, History], started: Mapping[int, float], ended: Mapping[int, float]
) -> tuple[dict[int, float], dict[int, float]]:
    """Return the seconds of each job before its first step and after its last."""
    starts, ends = {}, {}
    for job, history in histories.items():
        first, last = history.generations[0], history.generations[-1]
        starts[job] = max(0.0, first.start + (first.launch or 0.0) - started[job])
        ends[job] = max(0.0, last.end - ended[job]) if last.end is not None else 0.0
    return starts, ends


def measured(histories: Mapping[int, History], started: Mapping[int, float], ended: Mapping[int, float]) -> Costs:
    """Return what a mix measured."""
    starts, ends = overheads(histories, started, ended)
    changes = [
        pair
        for history in histories.values()
        for pair in zip(history.generations, history.generations[1:], strict=False)
    ]

    def median(values: Iterable[float | None]) -> float:
        known = [each for each in values if each is not None]
        return statistics.median(known) if known else 0.0

    # From the ranks' end until the next ones are started nobody computes either.
    between = median(max(0.0, after.start - before.end) for before, after in changes if before.end is not None)
    return Costs(
        statistics.fmean(starts.values()),
        statistics.fmean(ends.values()),
        median(before.save for before, _ in changes),
        between + median(after.launch for _, after in changes),
        median(after.load for _, after in changes),
    )


def with_overhead(workload: Workload, seconds: float | Mapping[int, float]) -> Workload:
    """Return the workload with start and end of each job as a part that nodes don't make shorter."""

    def longer(job: Job) -> Job:
        work, more = work_of(job), seconds if isinstance(seconds, float) else seconds[job.id]
        return replace(job, runtime=job.runtime + more, parallel=work * job.parallel / (work + more))

    return replace(workload, jobs=tuple(longer(job) for job in workload.jobs))


def forecast(
    workload: Workload, costs: Costs, given: argparse.Namespace, overhead: Mapping[int, float] | None = None
) -> Schedule:
    """Return the simulator's schedule of a mix; ``overhead`` is each job's own, else it is the mean."""
    jobs = with_overhead(workload, overhead or costs.startup + costs.closing)
    if not any(job.malleable for job in jobs.jobs):
        return simulate_rigid(jobs, given.nodes, SCHEDULER, cycle=CYCLE)
    policy = load_policy(given.policy, {"dwell": f"{given.dwell:g}"})
    launcher = Launcher(
        policy, given.interval, costs.save, costs.launch, costs.load, start_most=given.start_most,
        time_min=given.time_min,
    )  # fmt: skip
    return simulate_malleable(jobs, given.nodes, launcher, SCHEDULER, cycle=CYCLE)


def central(workload: Workload, given: argparse.Namespace, overhead: Mapping[int, float]) -> Schedule:
    """Return the schedule of a scheduler that resizes running jobs itself, at once and for nothing."""
    return simulate_central(with_overhead(workload, overhead), given.nodes)
