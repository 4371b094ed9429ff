"""Jobs to be simulated, and what makes one malleable."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from .. import words

EFFICIENCIES = (0.95, 0.8, 0.5)
"""Parallel efficiency at the least, the preferred and the largest size of a malleable job."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it is submitted. Times are seconds.

    ``runtime`` is what it takes on ``nodes`` nodes, ``limit`` the time limit asked for with them. A malleable
    job has more than one entry in ``sizes`` (ascending), and a ``parallel`` fraction after Amdahl.
    """

    id: int
    submit: float
    nodes: int
    runtime: float
    limit: float
    sizes: tuple[int, ...] = ()
    preferred: int = 0
    parallel: float = 0.0

    @property
    def malleable(self) -> bool:
        return len(self.sizes) > 1

    def seconds(self, nodes: int) -> float:
        """Return the whole run time at a size."""
        serial = 1 - self.parallel
        return self.runtime * (serial + self.parallel / nodes) / (serial + self.parallel / self.nodes)


@dataclass(frozen=True)
class Problem:
    """A line of a trace that is not as it should be, and what was done with it."""

    line: int
    text: str
    what: str
    skipped: bool


@dataclass(frozen=True)
class Workload:
    """Jobs in order of submission. ``nodes`` is the size of the machine, 0 where the source doesn't say.

    ``problems`` are the lines that were passed over or corrected.
    """

    jobs: tuple[Job, ...]
    nodes: int = 0
    source: str = ""
    header: dict[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    def first(self, count: int | None) -> Workload:
        """Return the first so many jobs."""
        return self if count is None else replace(self, jobs=self.jobs[:count])

    def fitting(self, nodes: int) -> Workload:
        """Return the jobs that this machine has room for; the others become problems."""
        too_large = [job for job in self.jobs if (job.sizes[0] if job.malleable else job.nodes) > nodes]
        if not too_large:
            return self
        gone = {job.id for job in too_large}
        found = [
            Problem(0, f"job {job.id}", f"asks for {words.nodes(job.nodes)} of {nodes}", True) for job in too_large
        ]
        return replace(
            self, jobs=tuple(job for job in self.jobs if job.id not in gone), problems=(*self.problems, *found)
        )

    def load(self, nodes: int) -> float:
        """Return the work over what the machine offers while jobs arrive."""
        if not self.jobs:
            return 0.0
        span = self.jobs[-1].submit - self.jobs[0].submit
        return sum(job.nodes * job.runtime for job in self.jobs) / (nodes * span) if span > 0 else math.inf

    def scaled(self, load: float, nodes: int) -> Workload:
        """Return the same jobs with the times between them stretched so that they offer this load."""
        now = self.load(nodes)
        if not math.isfinite(now) or now <= 0:
            return self
        start = self.jobs[0].submit
        jobs = tuple(replace(job, submit=start + (job.submit - start) * now / load) for job in self.jobs)
        return replace(self, jobs=jobs)


def size_at(parallel: float, efficiency: float) -> float:
    """Return the number of nodes at which Amdahl's law has this efficiency, E = 1/(n(1−f) + f)."""
    return (1 / efficiency - parallel) / (1 - parallel)


def sizes_for(parallel: float, most: int, efficiencies: Sequence[float] = EFFICIENCIES) -> tuple[int, int, int]:
    """Return least, preferred and largest size, whole numbers from 1 to ``most``."""
    found = [min(most, max(1, round(size_at(parallel, each)))) for each in efficiencies]
    return found[0], max(found[0], found[1]), max(found)


def make_malleable(workload: Workload, share: float, nodes: int, seed: int) -> Workload:
    """Return the workload with a share of its jobs, drawn at random, made malleable.

    The size that a job asked for is taken to be what users ask for today, between preferred and largest: its
    efficiency there is drawn evenly between 0.5 and 0.8, which gives its parallel fraction and with it its sizes.
    Jobs that are malleable already keep their sizes, or lose them when not drawn; jobs on one node stay rigid.
    """
    dice = random.Random(seed)
    jobs = []
    for job in workload.jobs:
        chosen = dice.random() < share
        efficiency = dice.uniform(EFFICIENCIES[2], EFFICIENCIES[1])
        if not chosen or (job.nodes < 2 and not job.malleable):
            jobs.append(replace(job, sizes=()))
        elif job.malleable:
            jobs.append(job)
        else:
            parallel = 1 - (1 / efficiency - 1) / (job.nodes - 1)
            least, preferred, most = sizes_for(parallel, nodes)
            sizes = tuple(range(least, max(most, job.nodes) + 1))
            jobs.append(replace(job, sizes=sizes, preferred=preferred, parallel=parallel))
    return replace(workload, jobs=tuple(jobs))
