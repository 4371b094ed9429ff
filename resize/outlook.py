"""What the queue is about to do: which jobs start now, which one is next, and when.

The scheduler is taken to work as Slurm's backfill does with one reservation (EASY; D. Lifka 1995,
"The ANL/IBM SP scheduling system"): jobs start in order of priority; the first that can't, the *head*,
gets a reservation at its *shadow time*, when enough running jobs have reached their limits; a job
behind it may start if it ends before that, or takes none of the nodes that the head will need.

A job that takes a range of sizes (``sbatch --nodes=2-16``) starts as soon as there is the least of them, and then on as
many nodes as are free up to the most; Slurm reserves as many for its turn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from .profile import Profile
from .view import ClusterView, JobView

STARTABLE = frozenset({"", "none", "null", "priority", "resources"})
"""Slurm's reasons with which a job waits only for nodes or for its turn."""

MARGIN, MARGIN_SHARE, LATE = 60.0, 0.1, 0.02
"""What is left free before a waiting job's turn: a tenth of the time until then, at most a minute, in which a scheduler
of the usual intervals has found the job; over long times the fiftieth by which forecasts are off."""
MINUTE = 60.0
"""Slurm counts time limits in minutes."""
PLANNED = 20
"""How many waiting jobs are given their place before a new job's wait is told."""


def can_start(job: JobView) -> bool:
    """Whether a pending job waits only for nodes: not held, dependent, too early, or over a limit."""
    return job.reason.strip("() ").split(",")[0].split(":")[0].strip().lower() in STARTABLE


def most(job: JobView) -> int:
    """Return the largest size that a pending job takes."""
    return max(job.nodes, job.nodes_max or job.nodes)


def margin(left: float) -> float:
    """Return the seconds to be left free before a turn that is so many seconds away."""
    return max(LATE * left, min(MARGIN, MARGIN_SHARE * left))


def by_priority(job: JobView) -> tuple[float, float, str]:
    """Key that sorts pending jobs in the order in which the scheduler takes them."""
    return (-job.priority, math.inf if job.submitted is None else job.submitted, job.job)


@dataclass(frozen=True)
class Placed:
    """A pending job that starts at once, on so many nodes, until its limit."""

    job: JobView
    nodes: int
    end: float


@dataclass(frozen=True)
class Pass:
    """The result of one scheduling pass.

    ``started`` are the jobs that start at once, ``room`` the nodes still idle after that, ``head`` the
    first job that can't start, ``shadow`` the time at which it can at the latest as far as limits tell (inf if
    never), ``extra`` the nodes that will be left beside it then.
    """

    started: tuple[Placed, ...]
    room: int
    head: JobView | None
    shadow: float
    extra: int


def schedule(now: float, idle: int, releases: Iterable[tuple[float, int]], waiting: Sequence[JobView]) -> Pass:
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
    started: list[Placed] = []
    head: JobView | None = None
    shadow, extra = math.inf, idle
    for job in waiting:
        end = math.inf if job.time_limit is None else now + job.time_limit
        if head is None:
            if job.nodes <= idle:
                taken = min(most(job), idle)
                idle -= taken
                ends.append((end, taken))
                started.append(Placed(job, taken, end))
            else:
                head = job
                shadow, extra = shadow_time(idle, ends, job.nodes)
                if shadow < math.inf:
                    extra -= min(extra, most(job) - job.nodes)
        elif job.nodes <= idle and (end <= shadow or job.nodes <= extra):
            taken = min(most(job), idle if end <= shadow else min(idle, extra))
            idle -= taken
            extra -= taken if end > shadow else 0
            started.append(Placed(job, taken, end))
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


class Survey:
    """The queue as nobody in particular sees it; made once for all runs that look at the same view.

    Parameters
    ----------
    cluster
        The cluster now.
    depth
        How many waiting jobs are looked at, in order of priority, as Slurm's ``bf_max_job_test`` limits it.
    """

    def __init__(self, cluster: ClusterView, depth: int = 500) -> None:
        self.cluster = cluster
        self.running = [each for each in cluster.jobs if each.state == "running"]
        alive = {each.run for each in self.running if each.run is not None}
        self.pending = sorted((each for each in cluster.jobs if each.state == "pending"), key=by_priority)
        able = [each for each in self.pending if can_start(each) and each.nodes <= cluster.total]
        self.waiting = [each for each in able if each.run is None or each.run not in alive][:depth]
        """Jobs that wait for their first start, in order of priority."""
        self.successors = [each for each in able if each.run is not None and each.run in alive]
        """Growth that malleable runs have asked for: they compute while they wait."""
        self.unable = [each for each in self.pending if not (can_start(each) and each.nodes <= cluster.total)]
        """Pending jobs that could not start whatever nodes were free."""
        self.releases = [(math.inf if each.end is None else each.end, each.nodes) for each in self.running]
        self.now = schedule(cluster.time, cluster.idle, self.releases, self.waiting)

    @property
    def crowded(self) -> bool:
        """Whether a job waits that can't start now."""
        return self.now.head is not None

    @cached_property
    def planned(self) -> Profile:
        """Free nodes over time once every waiting job has its place, in order of priority."""
        now = self.cluster.time
        profile = Profile(now, self.now.room, self.all_releases)
        started = {each.job.job for each in self.now.started}
        for job in self.waiting[:PLANNED]:
            if job.job not in started:
                limit = math.inf if job.time_limit is None else job.time_limit
                start = profile.earliest(job.nodes, limit)
                if start < math.inf:
                    profile.reserve(start, limit, min(most(job), profile.least(start, limit)))
        return profile

    @cached_property
    def all_releases(self) -> list[tuple[float, int]]:
        """Ends of the running jobs and of those that start now."""
        return [*self.releases, *((each.end, each.nodes) for each in self.now.started)]


class Outlook:
    """The queue as one run sees it.

    Parameters
    ----------
    survey
        The queue.
    run
        Id of the run that looks: its own jobs are neither waiting nor in the way.
    job
        Scheduler's id of the allocation that the run holds.
    now
        The time of the decision; the survey may be a little older.
    """

    def __init__(self, survey: Survey, run: str, job: str | None, now: float | None = None) -> None:
        self.survey = survey
        self.time = survey.cluster.time if now is None else now
        self.cluster = survey.cluster
        self.run = run
        self.job = job
        self.waiting = survey.waiting
        if any(each.run == run for each in survey.waiting):
            others = tuple(each for each in survey.cluster.jobs if each.run != run or each.state == "running")
            self.survey = Survey(replace(survey.cluster, jobs=others))
            self.waiting = self.survey.waiting
        self.now = self.survey.now

    @cached_property
    def successors(self) -> list[JobView]:
        """Growth that other malleable runs have asked for."""
        return [each for each in self.survey.successors if each.run != self.run]

    @property
    def passed_over(self) -> int:
        """How many pending jobs of others could not start whatever nodes were free."""
        return sum(each.run != self.run for each in self.survey.unable)

    @property
    def own_other(self) -> int:
        """Nodes of another allocation of this run, as during a handover."""
        return sum(each.nodes for each in self.survey.running if each.run == self.run and each.job != self.job)

    @cached_property
    def room(self) -> int:
        """Idle nodes left after all that can start now has started, other runs' growth included."""
        left = self.now.room
        for each in self.successors:
            left -= min(most(each), left) if each.nodes <= left else 0
        return left

    def unwanted(self, until: float) -> int:
        """Return the idle nodes that no waiting job could use before ``until``.

        A job that takes them until then is one that `limit` gives enough time to.
        """
        if self.now.head is None:
            return self.room
        wanted, profile = until - self.time, self.survey.planned
        steps = zip(profile.times[1:], profile.free[1:], strict=True)
        return min([self.room, *(free for when, free in steps if self._allowed(when) < wanted)])

    def limit(self, nodes: int) -> float | None:
        """Return the longest time limit, in seconds, with which a new job of this size delays no waiting job.

        None for no bound, 0 where there is not a minute left. A little is left free, see `margin`.
        """
        end = math.inf if self.now.head is None else self.survey.planned.until(nodes)
        return None if end == math.inf else self._allowed(end)

    def _allowed(self, end: float) -> float:
        """Return the time limit, in whole minutes, of a job that starts now and makes room for a turn."""
        left = end - self.time
        return MINUTE * max(0.0, (left - margin(left)) // MINUTE)

    def wait_at_least(self, nodes: int, duration: float = 0.0) -> float:
        """Return a lower bound on the seconds until a new job of this size could start.

        Every waiting job has its place before it; running jobs may take until their limits, and jobs that
        come later may delay it.
        """
        return max(0.0, self.survey.planned.earliest(nodes, duration) - self.time)

    def wait_without(self, job: JobView, done: float = math.inf) -> float:
        """Return the seconds until a blocked job starts without our help, at the latest; inf if never.

        Parameters
        ----------
        done
            When this run expects to end, which may be long before its limit.
        """
        releases = self.survey.all_releases
        own = next((each for each in self.survey.running if each.job == self.job), None)
        if own is not None and (own.end is None or done < own.end):
            limit = math.inf if own.end is None else own.end
            releases = [*releases, (done, own.nodes)]
            releases.remove((limit, own.nodes))
        when, _ = shadow_time(self.now.room, releases, job.nodes)
        return max(0.0, when - self.time)

    def waits_seen(self, nodes: int) -> list[float]:
        """Return how long running jobs of at least this size had waited, seconds."""
        return [
            each.start - each.submitted
            for each in self.survey.running
            if each.start is not None and each.submitted is not None and each.nodes >= nodes and each.run != self.run
        ]

    def after_release(self, nodes: int) -> Pass:
        """Return the pass as it would be if this run gave ``nodes`` of its nodes back now."""
        releases = [
            (math.inf if each.end is None else each.end, each.nodes - (nodes if each.job == self.job else 0))
            for each in self.survey.running
        ]
        return schedule(self.cluster.time, self.cluster.idle + nodes, releases, self.waiting)

    def helped(self, held: int, sizes: Sequence[int], tries: int = 20) -> tuple[JobView, int] | None:
        """Return the waiting job that the smallest useful shrink lets start, and the size left to this run.

        The highest-priority job that could start at all comes first; of the sizes below ``held`` with which
        it starts, the largest is returned. None when no shrink lets any job start.

        Parameters
        ----------
        tries
            How many blocked jobs to look at, in order of priority.
        """
        if self.now.head is None or not sizes or sizes[0] >= held:
            return None
        least, room = sizes[0], self.now.room
        starting = {each.job.job for each in self.now.started}
        blocked = [each for each in self.waiting if each.job not in starting]
        for job in blocked[:tries]:
            enough = [size for size in sizes if size < held and room + held - size >= job.nodes]
            if not enough:
                continue
            if job is blocked[0]:
                return job, enough[-1]
            if self._may_backfill(job, held - least) and self._starts(job, held - enough[0]):
                # What starts with some nodes starts with more: look for the least by halves.
                low, high = 0, len(enough) - 1
                while low < high:
                    middle = (low + high + 1) // 2
                    if self._starts(job, held - enough[middle]):
                        low = middle
                    else:
                        high = middle - 1
                return job, enough[low]
        return None

    def _starts(self, job: JobView, released: int) -> bool:
        """Whether a job behind the head would start if so many nodes were released."""
        return any(each.job is job for each in self.after_release(released).started)

    def _may_backfill(self, job: JobView, released: int) -> bool:
        """Whether a job behind the head could start at all if so many nodes were released."""
        ends = math.inf if job.time_limit is None else self.cluster.time + job.time_limit
        return ends <= self.now.shadow or job.nodes <= self.now.extra + released
