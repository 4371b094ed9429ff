"""The simulation proper: events in order of time, and a scheduling pass after each change."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from .. import words
from ..outlook import Survey
from ..policy import Glance
from ..view import ClusterView
from .queue import Allocation, Machine, Request, WaitingQueue
from .schedulers import SCHEDULERS, Scheduler
from .workload import Job, Workload

SHOWN = 100
"""How many waiting jobs a run is shown, in order of priority, as backfill schedulers bound what they look at."""


@dataclass(slots=True)
class Outcome:
    """What became of one job. Times are seconds; it held ``node_seconds``, and was ``computing`` in some of them."""

    job: Job
    start: float = math.inf
    end: float = math.inf
    node_seconds: float = 0.0
    computing: float = 0.0
    resizes: int = 0
    malleable: bool = False


@dataclass
class Schedule:
    """The result of one simulation.

    ``usage`` is (time, nodes held) at each change, where asked for; ``decisions`` how often a policy was asked.
    """

    nodes: int
    outcomes: list[Outcome]
    usage: list[tuple[float, int]] = field(default_factory=list)
    decisions: int = 0
    passes: int = 0


class Owner(Protocol):
    """Whoever has a request in the queue."""

    def started(self, allocation: Allocation) -> None: ...


class Simulation:
    """One machine, one queue, one clock.

    Parameters
    ----------
    workload, nodes
        What is run, on how large a machine. Jobs larger than the machine are refused.
    scheduler
        A name of `SCHEDULERS`, or a function like them.
    cycle
        Seconds between two passes of the scheduler; 0 for a pass after each change.
    keep_usage
        Whether to record the nodes held over time.
    """

    def __init__(
        self,
        workload: Workload,
        nodes: int,
        scheduler: str | Scheduler = "easy",
        *,
        cycle: float = 0.0,
        keep_usage: bool = False,
    ) -> None:
        too_large = next((job for job in workload.jobs if (job.sizes[0] if job.malleable else job.nodes) > nodes), None)
        if too_large is not None:
            raise ValueError(f"job {too_large.id} asks for {words.nodes(too_large.nodes)}, the machine has {nodes}")
        self.now = -math.inf
        self.machine = Machine(nodes)
        self.queue = WaitingQueue()
        self.jobs = workload.jobs
        self.version = 0
        """Counts the changes of what a run could see."""
        self.schedule = Schedule(nodes, [])
        self._scheduler = SCHEDULERS[scheduler] if isinstance(scheduler, str) else scheduler
        self._cycle, self._keep_usage = cycle, keep_usage
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = self._orders = 0
        self._dirty = False
        self._pass_due = math.inf
        self._survey: tuple[int, Survey] | None = None
        self._missing: tuple[int, int | None] | None = None
        self.after_pass: list[Callable[[], None]] = []
        """Called after each scheduling pass."""

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Have something done at a time."""
        self._count += 1
        heapq.heappush(self._events, (when, self._count, what))

    def run(self, submit: Callable[[Simulation, Job], None] | None = None) -> Schedule:
        """Run until all jobs have ended.

        Parameters
        ----------
        submit
            Called for each job at its submission; by default every job is rigid.
        """
        put = submit or submit_rigid
        jobs, place = self.jobs, 0
        while place < len(jobs) or self._events:
            due = jobs[place].submit if place < len(jobs) else math.inf
            self.now = now = min(due, self._events[0][0]) if self._events else due
            while self._events and self._events[0][0] <= now:
                heapq.heappop(self._events)[2]()
            while place < len(jobs) and jobs[place].submit <= now:
                put(self, jobs[place])
                place += 1
            if self._dirty and self._cycle <= 0:
                self._pass()
            elif self._dirty and self._pass_due == math.inf:
                self._pass_due = (math.floor(now / self._cycle) + 1) * self._cycle
                self.at(self._pass_due, self._pass)
        return self.schedule

    def _pass(self) -> None:
        self._dirty, self._pass_due = False, math.inf
        self.schedule.passes += 1
        self._scheduler(self.now, self.machine, self.queue, self._start)
        self.version += 1
        if self._keep_usage:
            self.schedule.usage.append((self.now, self.machine.total - self.machine.free))
        for each in self.after_pass:
            each()

    def _start(self, request: Request, nodes: int) -> None:
        self.queue.remove(request)
        allocation = Allocation(request, nodes, self.now)
        self.machine.take(allocation)
        request.owner.started(allocation)

    # -- what owners do

    def submit(
        self, job: str, nodes: int, most: int, limit: float, owner: Owner, run: str | None = None,
        least_limit: float = math.inf,
    ) -> Request:  # fmt: skip
        """Put a request into the queue."""
        self._orders += 1
        request = Request(job, self._orders, nodes, most, limit, self.now, owner, run, least_limit)
        self.queue.append(request)
        self._dirty = True
        return request

    def change(self, request: Request, nodes: int, most: int) -> None:
        """Change what a waiting request asks for."""
        self.queue.change(request, nodes, most)
        self._dirty = True

    def cancel(self, request: Request) -> None:
        """Take a waiting request out of the queue."""
        self.queue.remove(request)
        self._dirty = True

    def give_back(self, allocation: Allocation, nodes: int | None = None) -> None:
        """Free nodes of an allocation, all by default."""
        self.machine.give_back(allocation, nodes)
        self._dirty = True

    # -- what runs see

    def survey(self) -> Survey:
        """Return the queue as runs see it since the last change."""
        if self._survey is None or self._survey[0] != self.version:
            jobs = [each.as_view() for each in self.machine.held.values()]
            jobs += [each.as_view() for each in self.queue.top(SHOWN)]
            view = ClusterView(self.now, self.machine.total, self.machine.free, tuple(jobs))
            self._survey = (self.version, Survey(view))
        return self._survey[1]

    def glance(self) -> Glance:
        """Return what can be told without looking at every job."""
        if self._missing is None or self._missing[0] != self.version:
            smallest = self.queue.smallest()
            self._missing = (self.version, None if smallest is None else max(1, smallest - self.machine.free))
        return Glance(self.machine.free, self.machine.total, self._missing[1])


class Rigid:
    """A job that keeps its size."""

    __slots__ = ("outcome", "simulation")

    def __init__(self, simulation: Simulation, outcome: Outcome) -> None:
        self.simulation, self.outcome = simulation, outcome

    def started(self, allocation: Allocation) -> None:
        simulation, outcome = self.simulation, self.outcome
        outcome.start = simulation.now
        outcome.end = simulation.now + outcome.job.runtime
        outcome.node_seconds = outcome.computing = outcome.job.runtime * allocation.nodes
        simulation.at(outcome.end, lambda: simulation.give_back(allocation))


def submit_rigid(simulation: Simulation, job: Job) -> None:
    """Submit a job with the size and limit it asks for."""
    outcome = Outcome(job)
    simulation.schedule.outcomes.append(outcome)
    simulation.submit(str(job.id), job.nodes, job.nodes, job.limit, Rigid(simulation, outcome))


def simulate_rigid(workload: Workload, nodes: int, scheduler: str = "easy", *, cycle: float = 0.0) -> Schedule:
    """Return the schedule of a workload with every job rigid."""
    return Simulation(workload, nodes, scheduler, cycle=cycle).run()
