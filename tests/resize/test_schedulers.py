from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmr.resize.simulate.engine import Outcome, Schedule, Simulation, simulate_rigid
from dmr.resize.simulate.queue import Allocation, Machine, Request, WaitingQueue
from dmr.resize.simulate.schedulers import SCHEDULERS, Scheduler, Start, conservative, easy
from dmr.resize.simulate.slurm import pick, slurm
from dmr.resize.simulate.workload import Job, Workload


def mix(*jobs: tuple[float, int, float, float]) -> Workload:
    """Jobs as (submit, nodes, runtime, limit), numbered from 1."""
    return Workload(tuple(Job(number, *each) for number, each in enumerate(jobs, 1)))


def starts(schedule: Schedule) -> dict[int, float]:
    return {each.job.id: each.start for each in schedule.outcomes}


# A machine of 4 nodes. 1 runs on 3 nodes until 100; 2 wants all 4; 3 and 4 fit beside 1, 3 short and 4 long;
# 5 wants 2 nodes after 2.
FIVE = mix((0, 3, 100, 100), (1, 4, 50, 50), (2, 1, 40, 40), (3, 1, 200, 200), (4, 2, 10, 10))


@pytest.mark.parametrize(
    ("scheduler", "expected"),
    [
        # Nobody overtakes: 2 at 100, then 3, 4 and 5 together when it ends.
        ("fcfs", {1: 0, 2: 100, 3: 150, 4: 150, 5: 150}),
        # Whatever fits: 3 at once, 4 in its node when it ends, and 5 when 1 ends; 2 waits for 4.
        ("backfill", {1: 0, 2: 242, 3: 2, 4: 42, 5: 100}),
        # 2 is sure of 100: 3 ends before, 4 doesn't; after 2, all three.
        ("easy", {1: 0, 2: 100, 3: 2, 4: 150, 5: 150}),
        # The same here: 4 and 5 were promised 150.
        ("conservative", {1: 0, 2: 100, 3: 2, 4: 150, 5: 150}),
        ("slurm", {1: 0, 2: 100, 3: 2, 4: 150, 5: 150}),
    ],
)
def test_hand_computed(scheduler: str, expected: dict[int, float]) -> None:
    assert starts(simulate_rigid(FIVE, 4, scheduler)) == expected


def test_easy_lets_a_second_job_be_delayed_where_conservative_does_not() -> None:
    """Of 4 nodes, 1 holds 2 until 100. Head 2 needs 3 (from 100, one node extra). 3 needs 4, promised 150.

    4 takes the extra node for 300 s: EASY lets it, since 2 isn't delayed, but 3 then waits until 305.
    """
    jobs = mix((0, 2, 100, 100), (1, 3, 50, 50), (2, 4, 10, 10), (5, 1, 300, 300))
    assert starts(simulate_rigid(jobs, 4, "easy")) == {1: 0, 2: 100, 3: 305, 4: 5}
    assert starts(simulate_rigid(jobs, 4, "conservative")) == {1: 0, 2: 100, 3: 150, 4: 160}


def test_slurm_reserves_nodes_by_name() -> None:
    """Of 6 nodes, 1 holds 0 and 1 until 100, 2 holds node 2 for long. Head 3 needs 4: from 100, on 3 to 5 and on 0.

    4 needs one node for long. Five are free then for the four of the head, so EASY lets it in at once; but each idle
    node is one of those reserved, so Slurm has it wait for node 1.
    """
    jobs = mix((0, 2, 100, 100), (0, 1, 1000, 1000), (1, 4, 50, 50), (2, 1, 300, 300))
    assert starts(simulate_rigid(jobs, 6, "easy")) == {1: 0, 2: 0, 3: 100, 4: 2}
    assert starts(simulate_rigid(jobs, 6, "slurm")) == {1: 0, 2: 0, 3: 100, 4: 100}


def test_slurm_takes_ends_within_half_a_minute_together() -> None:
    """Of 5 nodes, 1 holds two until 100 and 2 one until 120. Head 3 needs 4, which are there at 100; Slurm says 120.

    So it lets 4 in, which holds two nodes until 112, and the head waits for that.
    """
    jobs = mix((0, 2, 100, 100), (0, 1, 120, 120), (1, 4, 50, 50), (2, 2, 110, 110))
    assert starts(simulate_rigid(jobs, 5, "easy")) == {1: 0, 2: 0, 3: 100, 4: 150}
    assert starts(simulate_rigid(jobs, 5, "slurm")) == {1: 0, 2: 0, 3: 112, 4: 2}


class Holder:
    """Holds what it is given for a part of its limit, by job, or all of it."""

    def __init__(self, simulation: Simulation, parts: dict[str, float] | None = None) -> None:
        self.simulation, self.parts = simulation, parts or {}
        self.got: dict[str, tuple[float, int, float]] = {}

    def started(self, allocation: Allocation) -> None:
        now, nodes = self.simulation.now, allocation.nodes
        self.got[allocation.job] = (now, nodes, allocation.end - now)
        until = now + self.parts.get(allocation.job, 1.0) * (allocation.end - now)
        self.simulation.at(until, lambda: self.simulation.give_back(allocation))


def held(scheduler: str, *asked: tuple[float, int, int, float, float]) -> dict[str, tuple[float, int, float]]:
    """Return (start, nodes, time limit) of requests for (submit, least, most, limit, least limit) on 100 nodes."""
    simulation = Simulation(Workload((), 100), 100, scheduler)
    holder = Holder(simulation)

    def submit(number: int, least: int, most: int, limit: float, least_limit: float) -> None:
        simulation.submit(str(number), least, most, limit, holder, least_limit=least_limit)

    for number, (when, *request) in enumerate(asked, 1):
        simulation.at(when, partial(submit, number, *request))
    simulation.run()
    return holder.got


@pytest.mark.parametrize(("most", "start"), [(20, 2), (50, 2), (100, 900)])
def test_slurm_keeps_as_many_nodes_for_a_range_as_it_takes(most: int, start: float) -> None:
    """As seen on Slurm 22.05: 90 of 100 nodes are held for 10 minutes; the head asks for 20, 20 to 50, 20 to 100.

    For the last Slurm keeps all nodes from then on, five minutes long, and a job of 2 nodes and 20 minutes that fits
    beside the two others waits for it.
    """
    got = held("slurm", (0, 90, 90, 600, 600), (1, 20, most, 300, 300), (2, 2, 2, 1200, 1200))
    assert got["2"][:2] == (600, most) and got["3"][0] == start


@pytest.mark.parametrize(("scheduler", "limit"), [("easy", 600), ("conservative", 600), ("slurm", 300)])
def test_a_limit_is_cut_to_what_there_is_before_a_turn(scheduler: str, limit: float) -> None:
    """90 of 100 nodes are held until 650 s, when all 100 are the head's: 3 may be cut to 5 minutes, and is to the 10
    whole minutes that there are from 2 s on, by Slurm to the 5; 4 may not be cut to less than 11, and waits."""
    got = held(
        scheduler, (0, 90, 90, 650, 650), (1, 100, 100, 60, 60), (2, 2, 4, 7200, 300), (3, 2, 2, 7200, 660),
    )  # fmt: skip
    assert got["3"] == (2, 4, limit)
    assert got["2"] == (650, 100, 60) and got["4"] == (710, 2, 7200)


def test_nodes_are_picked_among_neighbours() -> None:
    assert pick(0b0111_0011, 2) == 0b0000_0011, "the smallest row that is large enough"
    assert pick(0b0111_0011, 3) == 0b0111_0000
    assert pick(0b0111_0011, 4) == 0b0111_0001, "else the largest first"
    assert pick(0b1, 1) == 0b1


def test_early_ends_are_used() -> None:
    """1 asks for 100 s and takes 20: the head starts then, and what was promised is kept or bettered."""
    jobs = mix((0, 4, 20, 100), (1, 4, 10, 50), (2, 2, 10, 50))
    for scheduler in SCHEDULERS:
        assert starts(simulate_rigid(jobs, 4, scheduler)) == {1: 0, 2: 20, 3: 30}, scheduler


def test_jobs_over_their_limit_stop_nothing() -> None:
    """1 runs over its limit, as traces show it: whoever waits for it starts when it is really over."""
    jobs = mix((0, 4, 100, 10), (1, 4, 10, 10), (2, 1, 10, 10))
    for scheduler in SCHEDULERS:
        assert starts(simulate_rigid(jobs, 4, scheduler)) == {1: 0, 2: 100, 3: 110}, scheduler


def test_the_scheduler_may_have_a_cycle() -> None:
    jobs = mix((3, 4, 20, 20), (4, 4, 10, 10))
    assert starts(simulate_rigid(jobs, 4, "easy", cycle=30)) == {1: 30, 2: 60}


def test_a_job_larger_than_the_machine_is_refused() -> None:
    with pytest.raises(ValueError, match="job 1 asks for 5 nodes, the machine has 4"):
        simulate_rigid(mix((0, 5, 1, 1)), 4)


workloads = st.lists(
    st.tuples(
        st.floats(0, 60).map(round), st.integers(1, 8), st.integers(1, 40), st.sampled_from([1.0, 1.0, 1.5, 4.0])
    ),
    min_size=1,
    max_size=25,
).map(lambda found: mix(*sorted((float(s), n, float(r), r * f) for s, n, r, f in found)))


def check_nodes(outcomes: list[Outcome], nodes: int) -> None:
    """No node used twice: at no time more nodes held than there are."""
    changes = sorted(
        change for each in outcomes for change in ((each.end, -each.job.nodes), (each.start, each.job.nodes))
    )
    held = 0
    for _, change in sorted(changes, key=lambda each: (each[0], each[1])):
        held += change
        assert 0 <= held <= nodes


@pytest.mark.parametrize("scheduler", sorted(SCHEDULERS))
@settings(max_examples=80, deadline=None)
@given(workloads)
def test_every_job_runs_once_on_nodes_of_its_own(scheduler: str, jobs: Workload) -> None:
    schedule = simulate_rigid(jobs, 8, scheduler)
    assert sorted(each.job.id for each in schedule.outcomes) == sorted(job.id for job in jobs.jobs)
    for each in schedule.outcomes:
        assert each.start >= each.job.submit
        assert each.end == each.start + each.job.runtime
    check_nodes(schedule.outcomes, 8)


@settings(max_examples=80, deadline=None)
@given(workloads)
def test_slurm_gives_no_node_to_two_jobs(jobs: Workload) -> None:
    def watched(now: float, machine: Machine, queue: WaitingQueue, start: Start) -> None:
        slurm(now, machine, queue, start)
        held = [each.where for each in machine.held.values()]
        assert [where.bit_count() for where in held] == [each.nodes for each in machine.held.values()]
        assert sum(held) < 1 << 8 and sum(where.bit_count() for where in held) == sum(held).bit_count()
        head = queue.head()
        assert head is None or head.nodes > machine.free

    Simulation(jobs, 8, watched).run()


@settings(max_examples=80, deadline=None)
@given(workloads)
def test_fcfs_starts_in_order(jobs: Workload) -> None:
    found = [each.start for each in sorted(simulate_rigid(jobs, 8, "fcfs").outcomes, key=lambda each: each.job.id)]
    assert found == sorted(found)


@settings(max_examples=150, deadline=None)
@given(workloads)
def test_easy_never_delays_the_head(jobs: Workload) -> None:
    """Whenever a job is at the head, it starts no later than the time first reserved for it as the head."""
    reserved: dict[str, float] = {}

    def watched(now: float, machine: Machine, queue: WaitingQueue, start: Start) -> None:
        easy(now, machine, queue, start)
        head = queue.head()
        if head is not None:
            free, ends = machine.free, iter(machine.releases(now))
            when = now
            while free < head.nodes:
                when, nodes = next(ends)
                free += nodes
            reserved[head.job] = min(when, reserved.get(head.job, math.inf))

    schedule = Simulation(jobs, 8, watched).run()
    for each in schedule.outcomes:
        if str(each.job.id) in reserved:
            assert each.start <= reserved[str(each.job.id)] + 1e-9


@settings(max_examples=150, deadline=None)
@given(workloads)
def test_conservative_delays_nobody(jobs: Workload) -> None:
    """Every job starts no later than it was promised at its arrival."""
    promised: dict[str, float] = {}

    def watched(now: float, machine: Machine, queue: WaitingQueue, start: Start) -> None:
        before: list[Request] = list(queue)
        conservative(now, machine, queue, start)
        for each in before:
            promised[each.job] = min(each.reserved, promised.get(each.job, math.inf))

    schedule = Simulation(jobs, 8, watched).run()
    for each in schedule.outcomes:
        assert each.start <= promised[str(each.job.id)] + 1e-9


@settings(max_examples=60, deadline=None)
@given(workloads, st.integers(0, 24))
def test_conservative_is_not_hurt_by_later_jobs(jobs: Workload, place: int) -> None:
    """With exact limits, leaving out every job after one does not change when that one starts."""
    exact = Workload(tuple(replace(job, limit=job.runtime) for job in jobs.jobs))
    place = min(place, len(exact.jobs) - 1)
    whole, part = starts(simulate_rigid(exact, 8, "conservative")), Workload(exact.jobs[: place + 1])
    assert starts(simulate_rigid(part, 8, "conservative")) == {key: whole[key] for key in starts_of(part)}


ASKED = st.tuples(
    st.sampled_from([0, 10, 60, 200]),  # seconds after the one before
    st.integers(1, 8),
    st.sampled_from([0, 0, 2, 6]),  # more nodes that it takes
    st.integers(60, 3000),  # limit
    st.sampled_from([1.0, 1.0, 0.25, 0.02]),  # the part of it that is the least limit, a minute at least
)
EARLY, LATE = st.sampled_from([1.0, 1.0, 0.5, 0.2]), st.sampled_from([1.0, 0.5, 1.3])
Asked = tuple[int, int, int, int, float]


def ranges(part: st.SearchStrategy[float]) -> st.SearchStrategy[list[tuple[Asked, float]]]:
    """Requests for ranges of nodes whose limits may be cut, and the part of what it gets that each uses."""
    return st.lists(st.tuples(ASKED, part), min_size=1, max_size=20)


def check_ranges(
    requests: list[tuple[Asked, float]], scheduler: Scheduler, after: Callable[[float, Machine, WaitingQueue], None]
) -> dict[str, tuple[float, int, float]]:
    """Simulate on 8 nodes and return (start, nodes, time limit); ``after`` looks at each pass.

    Nobody gets less or more than was asked for, nobody's limit is cut before its start, and no node is used twice.
    """
    least_limits = [float(max(60, round(part * limit))) for (_, _, _, limit, part), _ in requests]

    def watched(now: float, machine: Machine, queue: WaitingQueue, start: Start) -> None:
        scheduler(now, machine, queue, start)
        assert machine.free >= 0
        assert machine.free + sum(each.nodes for each in machine.held.values()) == machine.total
        for each in queue:
            assert each.limit == requests[int(each.job)][0][3]
        after(now, machine, queue)

    simulation = Simulation(Workload((), 8), 8, watched)
    holder = Holder(simulation, {str(number): part for number, (_, part) in enumerate(requests)})

    def submit(number: int, least: int, more: int, limit: float) -> None:
        most = min(8, least + more)
        simulation.submit(str(number), least, most, limit, holder, least_limit=least_limits[number])

    when = 0.0
    for number, ((gap, *request, _), _) in enumerate(requests):
        when += gap
        simulation.at(when, partial(submit, number, *request))
    simulation.run()
    assert len(holder.got) == len(requests)
    for number, ((_, least, more, limit, _), _) in enumerate(requests):
        _, nodes, granted = holder.got[str(number)]
        assert least <= nodes <= min(8, least + more)
        assert least_limits[number] - 1e-6 <= granted <= limit + 1e-6
    changes = sorted(
        change
        for job, (start, nodes, granted) in holder.got.items()
        for change in ((start + holder.parts[job] * granted - 1e-6, -nodes), (start, nodes))
    )
    used = 0
    for _, change in changes:
        used += change
        assert used <= 8
    return holder.got


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@settings(max_examples=60, deadline=None)
@given(requests=ranges(st.one_of(EARLY, LATE)))
def test_ranges_and_limits_are_given_as_asked_for(scheduler: str, requests: list[tuple[Asked, float]]) -> None:
    """Also when jobs run over their limits, as traces show it."""
    check_ranges(requests, SCHEDULERS[scheduler], lambda now, machine, queue: None)


@settings(max_examples=150, deadline=None)
@given(ranges(EARLY))
def test_easy_never_delays_the_head_for_ranges_and_cut_limits(requests: list[tuple[Asked, float]]) -> None:
    reserved: dict[str, float] = {}

    def after(now: float, machine: Machine, queue: WaitingQueue) -> None:
        head = queue.head()
        if head is not None:
            when, free, ends = now, machine.free, iter(machine.releases(now))
            while free < head.nodes:
                when, nodes = next(ends)
                free += nodes
            assert when <= reserved.get(head.job, math.inf) + 1e-6
            reserved[head.job] = min(when, reserved.get(head.job, math.inf))

    got = check_ranges(requests, easy, after)
    assert all(got[job][0] <= when + 1e-6 for job, when in reserved.items())


@settings(max_examples=150, deadline=None)
@given(ranges(EARLY))
def test_conservative_delays_nobody_for_ranges_and_cut_limits(requests: list[tuple[Asked, float]]) -> None:
    promised: dict[str, float] = {}

    def after(now: float, machine: Machine, queue: WaitingQueue) -> None:
        for each in queue:
            assert each.reserved <= promised.get(each.job, math.inf) + 1e-6
            promised[each.job] = each.reserved

    got = check_ranges(requests, conservative, after)
    assert all(got[job][0] <= when + 1e-6 for job, when in promised.items())


def test_a_limit_is_not_cut_for_nodes_that_are_still_held() -> None:
    """1 holds all nodes beyond its limit and could be over at any moment; then 3 would fit before the turn of 2."""
    requests = [((0, 6, 0, 60, 1.0), 3.0), ((0, 2, 0, 600, 1.0), 1.0), ((10, 8, 0, 60, 1.0), 1.0)]
    requests.append(((80, 2, 0, 3000, 0.02), 1.0))
    check_ranges(requests, conservative, lambda now, machine, queue: None)


def starts_of(jobs: Workload) -> list[int]:
    return [job.id for job in jobs.jobs]


def test_long_queues_keep_their_order() -> None:
    """The queue's arrays grow and are compacted; order and contents stay."""
    queue = WaitingQueue()
    requests = [Request(str(n), n, 1 + n % 7, 1 + n % 7, float(n), 0.0, None, None) for n in range(5000)]
    expected: list[Request] = []
    for number, request in enumerate(requests):
        queue.append(request)
        expected.append(request)
        if number % 3:
            gone = expected.pop(0 if number % 2 else len(expected) // 2)
            queue.remove(gone)
    assert list(queue) == expected
    assert queue.head() is expected[0]
    assert len(queue) == len(expected)
    assert queue.behind(3, 4000.0, 2) == [
        each for each in expected[1:] if each.nodes <= 3 and (each.limit <= 4000.0 or each.nodes <= 2)
    ]
    assert queue.smallest() == 1
