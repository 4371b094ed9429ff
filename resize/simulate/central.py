"""Scheduler-level malleability: one scheduler that resizes running jobs at once and for nothing.

It is what user-level malleability is measured against. Waiting jobs start in order of arrival, at their least
size, with nodes taken from running jobs that hold more than their least; jobs behind one that can't start are
backfilled as by EASY, with every running job counted at its least size. Nodes left over go to running jobs: to
their preferred size first, then to their largest.
"""

from __future__ import annotations

import math

from .engine import Outcome, Schedule, Simulation, submit_rigid
from .queue import Allocation, Machine, Request, WaitingQueue
from .schedulers import Start
from .workload import Job, Workload


class Elastic:
    """A malleable job under the central scheduler."""

    __slots__ = ("allocation", "done", "epoch", "job", "outcome", "simulation", "stamp")

    def __init__(self, simulation: Simulation, outcome: Outcome) -> None:
        self.simulation, self.outcome, self.job = simulation, outcome, outcome.job
        self.allocation: Allocation | None = None
        self.done = self.stamp = 0.0
        self.epoch = 0

    def started(self, allocation: Allocation) -> None:
        self.allocation = allocation
        self.outcome.start = self.stamp = self.simulation.now
        self.plan()

    def plan(self) -> None:
        """Have the job end when its work is done at the present size."""
        assert self.allocation is not None
        self.epoch += 1
        epoch = self.epoch

        def finish() -> None:
            if epoch == self.epoch:
                self.advance()
                assert self.allocation is not None
                self.outcome.end = self.simulation.now
                self.simulation.give_back(self.allocation)

        self.simulation.at(self.stamp + (1 - self.done) * self.job.seconds(self.allocation.nodes), finish)

    def advance(self) -> None:
        assert self.allocation is not None
        passed = self.simulation.now - self.stamp
        self.done += passed / self.job.seconds(self.allocation.nodes)
        self.outcome.node_seconds += passed * self.allocation.nodes
        self.outcome.computing = self.outcome.node_seconds
        self.stamp = self.simulation.now

    def resize(self, nodes: int) -> None:
        assert self.allocation is not None
        machine, change = self.simulation.machine, nodes - self.allocation.nodes
        self.advance()
        if change > 0:
            machine.add(self.allocation, change)
        else:
            machine.give_back(self.allocation, -change)
        self.outcome.resizes += 1
        self.plan()


def _elastic(machine: Machine) -> list[Elastic]:
    return [each.owner for each in machine.held.values() if type(each.owner) is Elastic]


def central(now: float, machine: Machine, queue: WaitingQueue, start: Start) -> None:
    """Scheduler as `schedulers` has them."""
    running = _elastic(machine)
    spare = {each: each.allocation.nodes - each.job.sizes[0] for each in running if each.allocation is not None}
    free = machine.free + sum(spare.values())
    chosen: list[Request] = []
    waiting = iter(list(queue))
    head = None
    for request in waiting:
        if request.nodes > free:
            head = request
            break
        chosen.append(request)
        free -= request.nodes
    if head is not None and free > 0:
        shadow, extra = _shadow(now, machine, spare, chosen, free, head.nodes)
        for request in waiting:
            if request.nodes > free:
                continue
            if now + request.limit > shadow:
                if request.nodes > extra:
                    continue
                extra -= request.nodes
            chosen.append(request)
            free -= request.nodes
            if free == 0:
                break
    wanted = {each: each.job.sizes[0] for each in running}
    fresh = [each.owner for each in chosen if type(each.owner) is Elastic]
    wanted.update({each: each.job.sizes[0] for each in fresh})
    _spread(wanted, free)
    for each in running:
        assert each.allocation is not None
        if wanted[each] < each.allocation.nodes:
            each.resize(wanted[each])
    for request in chosen:
        start(request, wanted[request.owner] if type(request.owner) is Elastic else request.nodes)
    for each in running:
        assert each.allocation is not None
        if wanted[each] > each.allocation.nodes:
            each.resize(wanted[each])


def _shadow(
    now: float, machine: Machine, spare: dict[Elastic, int], chosen: list[Request], free: int, nodes: int
) -> tuple[float, int]:
    ends = [
        (max(now, each.end), each.nodes - (spare.get(each.owner, 0) if type(each.owner) is Elastic else 0))
        for each in machine.held.values()
    ]
    ends += [(now + each.limit, each.nodes) for each in chosen]
    ends.sort()
    for place, (end, released) in enumerate(ends):
        free += released
        if free >= nodes and (place + 1 == len(ends) or ends[place + 1][0] > end):
            return end, free - nodes
    return math.inf, 0


def _spread(wanted: dict[Elastic, int], free: int) -> None:
    """Give free nodes away: to the preferred sizes in order of arrival, then to the largest."""
    for to_preferred in (True, False):
        for each in wanted:
            target = each.job.preferred if to_preferred else each.job.sizes[-1]
            more = min(free, max(0, target - wanted[each]))
            wanted[each] += more
            free -= more
            if free == 0:
                return


def submit(simulation: Simulation, job: Job) -> None:
    """Submit a job that the scheduler may resize if it can be."""
    if not job.malleable:
        submit_rigid(simulation, job)
        return
    outcome = Outcome(job, malleable=True)
    simulation.schedule.outcomes.append(outcome)
    limit = job.limit * job.seconds(job.sizes[0]) / job.runtime
    simulation.submit(str(job.id), job.sizes[0], job.sizes[0], limit, Elastic(simulation, outcome), f"r{job.id}")


def simulate_central(workload: Workload, nodes: int, *, keep_usage: bool = False) -> Schedule:
    """Return the schedule of a workload whose malleable jobs the scheduler itself resizes."""
    return Simulation(workload, nodes, central, keep_usage=keep_usage).run(submit)
