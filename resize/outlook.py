"""What the queue is about to do: which jobs start now, which one is next, and when.

The scheduler is taken to work as Slurm's backfill does with one reservation (EASY; D. Lifka 1995,
"The ANL/IBM SP scheduling system"): jobs start in order of priority; the first that can't, the *head*,
gets a reservation at its *shadow time*, when enough running jobs have reached their limits; a job
behind it may start if it ends before that, or takes none of the nodes that the head will need.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .view import ClusterView, JobView

STARTABLE = frozenset({"", "none", "null", "priority", "resources"})
"""Slurm's reasons with which a job waits only for nodes or for its turn."""


def can_start(job: JobView) -> bool:
    """Whether a pending job waits only for nodes: not held, dependent, too early, or over a limit."""
    return job.reason.strip("() ").split(",")[0].split(":")[0].strip().lower() in STARTABLE


def by_priority(job: JobView) -> tuple[float, float, str]:
    """Key that sorts pending jobs in the order in which the scheduler takes them."""
    return (-job.priority, math.inf if job.submitted is None else job.submitted, job.job)


@dataclass(frozen=True)
class Pass:
    """The result of one scheduling pass.

    ``started`` are the jobs that start at once, ``room`` the nodes still idle after that, ``head`` the
    first job that can't start, ``shadow`` the time at which it can at the latest as far as limits tell (inf if
    never), ``extra`` the nodes that will be left beside it then.
    """

    started: tuple[JobView, ...]
    room: int
    head: JobView | None
    shadow: float
    extra: int


def schedule(
    now: float, idle: int, releases: Iterable[tuple[float, int]], waiting: Sequence[JobView]
) -> Pass:
    """Run one EASY pass.

    Parameters
    ----------
    now, idle
        The time and the nodes free at it.
    releases
        (time, nodes) of each running job's end by its limit.
    waiting
        The jobs that could start, in order of priority.
    """
    ends = list(releases)
    started: list[JobView] = []
    head: JobView | None = None
    shadow, extra = math.inf, idle
    for job in waiting:
        end = math.inf if job.time_limit is None else now + job.time_limit
        if head is None:
            if job.nodes <= idle:
                idle -= job.nodes
                ends.append((end, job.nodes))
                started.append(job)
            else:
                head = job
                shadow, extra = shadow_time(idle, ends, job.nodes)
        elif job.nodes <= idle and (end <= shadow or job.nodes <= extra):
            idle -= job.nodes
            extra -= job.nodes if end > shadow else 0
            started.append(job)
    return Pass(tuple(started), idle, head, shadow, idle if head is None else extra)


def shadow_time(idle: int, releases: Iterable[tuple[float, int]], nodes: int) -> tuple[float, int]:
    """Return when ``nodes`` are free at the latest, and how many will be free beside them."""
    free, when = idle, -math.inf
    if free >= nodes:
        return when, free - nodes
    ordered = sorted(releases)
    for index, (end, released) in enumerate(ordered):
        free += released
        following = ordered[index + 1][0] if index + 1 < len(ordered) else math.inf
        if free >= nodes and following > end:
            return end, free - nodes
    return math.inf, max(0, idle)


class Outlook:
    """The queue as one run sees it.

    Parameters
    ----------
    cluster
        The cluster now.
    run
        Id of the run that looks: its own jobs are neither waiting nor in the way.
    job
        Scheduler's id of the allocation that the run holds.
    """

    def __init__(self, cluster: ClusterView, run: str, job: str | None) -> None:
        self.cluster = cluster
        running = [each for each in cluster.jobs if each.state == "running"]
        alive = {each.run for each in running if each.run is not None}
        pending = sorted((each for each in cluster.jobs if each.state == "pending"), key=by_priority)
        able = [each for each in pending if can_start(each) and each.nodes <= cluster.total and each.run != run]
        self.waiting = [each for each in able if each.run is None or each.run not in alive]
        """Jobs that wait for their first start, in order of priority."""
        self.successors = [each for each in able if each.run is not None and each.run in alive]
        """Growth that other malleable runs have asked for: they compute while they wait."""
        self.passed_over = len(pending) - len(able) - sum(each.run == run for each in pending)
        """Pending jobs that could not start whatever nodes were free."""
        self.own_other = sum(each.nodes for each in running if each.run == run and each.job != job)
        """Nodes of another allocation of this run, as during a handover."""
        self.job = job
        self._running = running
        self._releases = [(math.inf if each.end is None else each.end, each.nodes) for each in running]
        self.now = schedule(cluster.time, cluster.idle, self._releases, self.waiting)

    @property
    def room(self) -> int:
        """Idle nodes left after all that can start now has started, other runs' growth included."""
        return max(0, self.now.room - sum(each.nodes for each in self.successors if each.nodes <= self.now.room))

    def unwanted(self, until: float) -> int:
        """Return the idle nodes that no waiting job could use before ``until``."""
        if self.now.head is None or until <= self.now.shadow:
            return self.room
        return min(self.room, max(0, self.now.extra))

    def wait_at_least(self, nodes: int) -> float:
        """Return a lower bound on the seconds until a new job of this size could start.

        The nodes that jobs ahead of it take now are gone; beyond that, running jobs may take until
        their limits, and jobs that come later may delay it. It is exact when nobody else waits.
        """
        when, _ = shadow_time(self.now.room, self._all_releases(), nodes)
        return max(0.0, when - self.cluster.time)

    def wait_without(self, job: JobView) -> float:
        """Return the seconds until a blocked job starts without our help, at the latest; inf if never."""
        if self.now.head is not None and self.now.head.job == job.job:
            return max(0.0, self.now.shadow - self.cluster.time)
        when, _ = shadow_time(self.now.room, self._all_releases(), job.nodes)
        return max(0.0, when - self.cluster.time)

    def _all_releases(self) -> list[tuple[float, int]]:
        now = self.cluster.time
        taken = [(math.inf if j.time_limit is None else now + j.time_limit, j.nodes) for j in self.now.started]
        return [*self._releases, *taken]

    def after_release(self, nodes: int, held: int) -> Pass:
        """Return the pass as it would be if this run gave ``nodes`` of its ``held`` nodes back now."""
        releases = [
            (math.inf if each.end is None else each.end, each.nodes - (nodes if each.job == self.job else 0))
            for each in self._running
        ]
        return schedule(self.cluster.time, self.cluster.idle + min(nodes, held), releases, self.waiting)

    def helped(self, held: int, sizes: Sequence[int], tries: int = 20) -> tuple[JobView, int] | None:
        """Return the waiting job that the smallest useful shrink lets start, and the size left to this run.

        The highest-priority job that could start at all comes first; of the sizes below ``held`` with which
        it starts, the largest is returned. None when no shrink lets any job start.

        Parameters
        ----------
        tries
            How many blocked jobs to look at, in order of priority, as a backfill scheduler limits itself.
        """
        smaller = [size for size in sizes if size < held]
        starting = {each.job for each in self.now.started}
        blocked = (each for each in self.waiting if each.job not in starting)
        for _, job in zip(range(tries), blocked, strict=False):
            for size in sorted(smaller, reverse=True):
                if self.now.room + held - size < job.nodes:
                    continue
                if any(each.job == job.job for each in self.after_release(held - size, held).started):
                    return job, size
        return None
