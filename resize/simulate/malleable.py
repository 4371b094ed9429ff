"""Malleable jobs on a scheduler that knows nothing of them, as `dmr-launch` runs them.

Every run has its launcher: it looks at the queue at an interval of its own, asks the policy by `decide`, and acts.
A shrink saves at the next step, gives nodes back, launches and loads. Growth is a successor that queues like any
other job while the run computes on; when it starts, the run saves at its next step, leaves its old nodes and loads
on the new ones. Where old and new can't stand side by side, the run saves, leaves, and queues.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ..decide import asked, decide
from ..limit import LIMIT_LEAD, lead, spare
from ..outlook import MINUTE
from ..policy import Policy, is_moldable
from ..sizes import span_to_queue
from ..view import Costs, Rate, RunView
from .engine import Outcome, Simulation, submit_rigid
from .queue import Allocation, Request
from .workload import Job

STEP = 10.0
"""Steps are as long as that on the size asked for, or a fiftieth of the run time if that is less; seconds."""


@dataclass(frozen=True)
class Launcher:
    """How malleable jobs are started and resized.

    Attributes
    ----------
    policy
        Asked by every run.
    interval
        Seconds between two looks at the queue.
    save, launch, load
        Seconds that each part of a change of size takes.
    start
        What a malleable job asks for at its submission: ``least``, ``preferred``, ``asked`` (as if rigid),
        ``largest``, or ``range`` for all from least to largest, of which the scheduler gives what is free.
    start_most
        A range goes up to so many times the least size.
    time_min
        The share of its time limit, in whole minutes, to which a backfill scheduler may cut that of a malleable job.
    lead
        A run that would reach its time limit saves so many seconds, beside a step and two saves, before it, and queues
        again; nearer to a short limit, see `limit.lead`.
    """

    policy: Policy
    interval: float = 60.0
    save: float = 3.0
    launch: float = 4.0
    load: float = 3.0
    start: str = "range"
    start_most: float = math.inf
    time_min: float = 1.0
    lead: float = LIMIT_LEAD

    def __post_init__(self) -> None:
        if self.start not in STARTS:
            raise ValueError(f"start is {self.start!r}; it can be {', '.join(STARTS)}")
        if not self.interval > 0:
            raise ValueError(f"interval is {self.interval:g} s; runs can't look at the queue all the time")
        if not self.start_most >= 1:
            raise ValueError(f"a range can't go up to {self.start_most:g} times the least size")
        if not 0 < self.time_min <= 1:
            raise ValueError(f"the share of a time limit is {self.time_min:g}; it can be above 0, up to 1")

    def submit(self, simulation: Simulation, job: Job) -> None:
        """Submit a job: malleable under this launcher if it can be, else rigid."""
        if not job.malleable:
            submit_rigid(simulation, job)
            return
        Run(simulation, job, self)

    def span(self, job: Job) -> tuple[int, int]:
        """Return least and most nodes asked for at submission."""
        least, largest = job.sizes[0], job.sizes[-1]
        if self.start == "range":
            return least, max(size for size in job.sizes if size <= self.start_most * least)
        sizes = {"least": least, "preferred": job.preferred, "asked": job.nodes, "largest": largest}
        found = min(max(sizes[self.start], least), largest)
        return found, found


STARTS = ("least", "preferred", "asked", "largest", "range")


class Run:
    """One malleable run and its launcher."""

    __slots__ = (
        "alive", "allocation", "asked", "busy", "computing", "costs", "done", "epoch", "generation", "id", "job",
        "launcher", "least_limit", "limit", "nodes", "outcome", "poll_origin", "poll_set", "rates", "resizes", "seen",
        "simulation", "since", "stamp", "steps", "successor", "takeover", "waits",
    )  # fmt: skip

    def __init__(self, simulation: Simulation, job: Job, launcher: Launcher) -> None:
        self.simulation, self.job, self.launcher = simulation, job, launcher
        self.id = f"r{job.id}"
        self.outcome = Outcome(job, malleable=True)
        simulation.schedule.outcomes.append(self.outcome)
        self.limit = job.limit * job.seconds(job.sizes[0]) / job.runtime
        self.least_limit = max(MINUTE, MINUTE * math.ceil(launcher.time_min * self.limit / MINUTE))
        self.steps = max(1, round(job.runtime / min(STEP, job.runtime / 50)))
        self.costs = Costs(launcher.save, launcher.launch, launcher.load)
        self.allocation: Allocation | None = None
        self.successor: Request | None = None
        self.takeover: Allocation | None = None
        self.nodes = 0
        self.done = 0.0
        self.computing = self.busy = False
        self.alive = True
        self.stamp = self.since = self.asked = 0.0
        self.epoch = self.generation = self.resizes = 0
        self.rates: dict[int, Rate] = {}
        self.waits: tuple[tuple[int, float], ...] = ()
        self.poll_origin = self.poll_set = 0.0
        self.seen = -1
        self.successor = self._submit(*launcher.span(job))

    # -- the queue

    def _submit(self, least: int, most: int, limit: float | None = None, *, whole: bool = False) -> Request:
        self.generation += 1
        self.asked = self.simulation.now
        name = f"{self.id}.{self.generation}"
        limit = min(self.limit, limit or self.limit)
        least_limit = limit if whole else self.least_limit
        return self.simulation.submit(name, least, most, limit, self, self.id, least_limit)

    def started(self, allocation: Allocation) -> None:
        """The scheduler starts the first job of the run, or a successor."""
        simulation = self.simulation
        self.successor = None
        if self.allocation is None:
            before, self.nodes = self.nodes, self._usable(allocation.nodes)
            self.allocation, self.since = allocation, simulation.now
            if self.outcome.start == math.inf:
                self.outcome.start = simulation.now
                self.poll_origin = simulation.now + self.launcher.interval * ((self.job.id * 0.6180339887) % 1.0)
                self._trim()
                self._compute(simulation.now)
            else:
                self.resizes += self.nodes != before
                self._trim()
                self.busy = True
                self._later(simulation.now + self.launcher.launch + self.launcher.load, self._loaded)
            return
        self.waits = (*self.waits[-9:], (allocation.nodes, simulation.now - self.asked))
        self.takeover = allocation
        self.busy = True
        self._drain(self._saved_for_takeover)

    def _usable(self, nodes: int) -> int:
        """Return the largest allowed size in what was given."""
        return max((size for size in self.job.sizes if size <= nodes), default=self.job.sizes[0])

    def _trim(self) -> None:
        assert self.allocation is not None
        if self.allocation.nodes > self.nodes:
            self._account(self.allocation)
            self.simulation.give_back(self.allocation, self.allocation.nodes - self.nodes)

    # -- computing

    def _later(self, when: float, what: Callable[[], None]) -> None:
        self.epoch += 1
        epoch = self.epoch

        def act() -> None:
            if epoch == self.epoch and self.alive:
                what()

        self.simulation.at(when, act)

    def _compute(self, now: float) -> None:
        self.stamp, self.computing, self.busy = now, True, False
        seconds = self.job.seconds(self.nodes)
        self.rates[self.nodes] = Rate(self.nodes, seconds / self.steps, 10)
        assert self.allocation is not None
        finish, end = now + (1 - self.done) * seconds, self.allocation.end
        step, save = seconds / self.steps, self.launcher.save
        ahead = lead(step, save, end - self.allocation.start, end - now, self.launcher.lead)
        if finish + spare(ahead, step, save) <= end:
            self._later(finish, self._finish)
        else:
            self._later(max(now, end - ahead), self._at_limit)
        self.seen = -1
        self.poll_set = -math.inf
        self.wake()

    def _advance(self) -> None:
        if self.computing:
            now = self.simulation.now
            self.done += (now - self.stamp) / self.job.seconds(self.nodes)
            self.outcome.computing += (now - self.stamp) * self.nodes
            self.stamp = now

    def _drain(self, then: Callable[[], None]) -> None:
        """Compute on to the next step, save, then go on with ``then``; or to the end if that comes first."""
        self._advance()
        seconds = self.job.seconds(self.nodes)
        step = math.floor(self.done * self.steps + 1e-9) + 1
        boundary = self.stamp + (step / self.steps - self.done) * seconds
        if step >= self.steps:
            self._later(self.stamp + (1 - self.done) * seconds, self._finish)
            return

        def saving() -> None:
            self._advance()
            self.computing = False
            self._later(self.simulation.now + self.launcher.save, then)

        self._later(boundary, saving)

    def _account(self, allocation: Allocation) -> None:
        """Count what an allocation held since the last time it was counted."""
        now = self.simulation.now
        self.outcome.node_seconds += allocation.nodes * (now - max(allocation.start, allocation.counted))
        allocation.counted = now

    def _finish(self) -> None:
        self._advance()
        self.done, self.computing, self.alive = 1.0, False, False
        self.outcome.end, self.outcome.resizes = self.simulation.now, self.resizes
        if self.successor is not None:
            self.simulation.cancel(self.successor)
            self.successor = None
        for each in (self.allocation, self.takeover):
            if each is not None:
                self._account(each)
                self.simulation.give_back(each)
        self.allocation = self.takeover = None

    def _at_limit(self) -> None:
        span = (self.nodes, self.nodes)
        self._leave(*(span_to_queue(self.job.sizes, self.nodes) if is_moldable(self.launcher.policy) else span))

    # -- changes of size

    def _shrink(self, nodes: int) -> None:
        self.busy = True
        self.resizes += 1

        def saved() -> None:
            assert self.allocation is not None
            self._account(self.allocation)
            self.simulation.give_back(self.allocation, self.nodes - nodes)
            self.nodes = nodes
            self._later(self.simulation.now + self.launcher.launch + self.launcher.load, self._loaded)

        self._drain(saved)

    def _leave(self, least: int, most: int, *, whole: bool = False) -> None:
        """Save, give all nodes back and queue for others."""
        self.busy = True
        if self.successor is not None:
            self.simulation.cancel(self.successor)
            self.successor = None

        def saved() -> None:
            assert self.allocation is not None
            self._account(self.allocation)
            self.simulation.give_back(self.allocation)
            self.allocation = None
            self.successor = self._submit(least, most, whole=whole)

        self._drain(saved)

    def _saved_for_takeover(self) -> None:
        assert self.allocation is not None and self.takeover is not None
        self._account(self.allocation)
        self.simulation.give_back(self.allocation)
        self.allocation, self.takeover = self.takeover, None
        self.nodes = self._usable(self.allocation.nodes)
        self.resizes += 1
        self._trim()
        self._later(self.simulation.now + self.launcher.launch + self.launcher.load, self._loaded)

    def _loaded(self) -> None:
        self.since = self.simulation.now
        self._compute(self.simulation.now)

    # -- decisions

    def wake(self) -> None:
        """Look at the queue at the next turn of the interval, if the policy could want a change."""
        if self.busy or not self.computing or self.seen == self.simulation.version:
            return
        if self.poll_set > self.simulation.now:
            return
        if self.successor is None:
            may_change = getattr(self.launcher.policy, "may_change", None)
            if may_change is not None and not asked(
                self.launcher.policy, may_change, self.nodes, self.job.sizes, self.simulation.glance()
            ):
                return
        self._poll_at(self.simulation.now)

    def _poll_at(self, when: float) -> None:
        """Look at the queue at the first turn of the interval that is not before a time, and not now."""
        interval = self.launcher.interval
        turns = max(0, math.ceil((when - self.poll_origin) / interval - 1e-9))
        self.poll_set = self.poll_origin + turns * interval
        if self.poll_set <= self.simulation.now:
            self.poll_set += interval
        self.simulation.at(self.poll_set, self._poll)

    def _poll(self) -> None:
        simulation = self.simulation
        if not self.alive or self.busy or not self.computing or self.poll_set != simulation.now:
            return
        self._advance()
        assert self.allocation is not None
        policy = self.launcher.policy
        self.seen = simulation.version
        simulation.schedule.decisions += 1
        survey = simulation.survey()
        view = RunView(
            time=simulation.now, run=self.id, generation=self.generation, nodes=self.nodes, sizes=self.job.sizes,
            since=self.since, step=int(self.done * self.steps + 1e-9), steps=self.steps, job=self.allocation.job,
            rates=tuple(self.rates.values()), costs=self.costs, end=self.allocation.end,
            pending=self.successor.nodes if self.successor else None, pending_since=self.asked,
            pending_job=self.successor.job if self.successor else None,
            node_hours=(self.outcome.node_seconds + self._held()) / 3600, resizes=self.resizes, waits=self.waits,
            started=self.outcome.start,
        )  # fmt: skip
        found = decide(view, survey.cluster, policy, table=False, survey=survey)
        if found.action == "shrink":
            self._give_up_successor()
            self._shrink(found.nodes)
        elif found.action == "expand":
            self._expand(found.nodes, found.limit)
        elif found.action == "cancel":
            self._give_up_successor()
        ready = self.since + policy.rules.dwell
        if not self.busy and ready > simulation.now:
            self._poll_at(ready)
        elif not self.busy and not hasattr(policy, "may_change"):
            self._poll_at(simulation.now)

    def _held(self) -> float:
        assert self.allocation is not None
        since = max(self.allocation.start, self.allocation.counted)
        return self.allocation.nodes * (self.simulation.now - since)

    def _expand(self, nodes: int, limit: float | None) -> None:
        if self.nodes + nodes > self.simulation.machine.total:
            self._leave(nodes, nodes, whole=True)
        elif self.successor is None:
            self.successor = self._submit(nodes, nodes, limit, whole=True)
        elif self.successor.nodes != nodes:
            self.simulation.change(self.successor, nodes, nodes)

    def _give_up_successor(self) -> None:
        if self.successor is not None:
            self.simulation.cancel(self.successor)
            self.successor = None


class Fleet:
    """All malleable runs of a simulation: wakes them after each pass."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        simulation.after_pass.append(self._wake)

    def _wake(self) -> None:
        for allocation in list(self.simulation.machine.held.values()):
            owner = allocation.owner
            if type(owner) is Run:
                owner.wake()
