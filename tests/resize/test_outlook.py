from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmr.resize.outlook import Outlook, Survey, can_start, margin, schedule, shadow_time
from dmr.resize.profile import Profile
from dmr.resize.view import ClusterView, JobView


def waiting(job: str, nodes: int, limit: float | None = 100.0, priority: float = 1.0, **more: object) -> JobView:
    return JobView(job, "pending", nodes, priority, time_limit=limit, reason="Resources", **more)  # type: ignore[arg-type]


def test_shadow_time_by_hand() -> None:
    """2 free, 3 come at 10 and 1 at 20: 4 nodes at 10 with one beside, 6 at 20, 7 never."""
    releases = [(20.0, 1), (10.0, 3)]
    assert shadow_time(2, releases, 4) == (10.0, 1)
    assert shadow_time(2, releases, 6) == (20.0, 0)
    assert shadow_time(2, releases, 7)[0] == math.inf
    assert shadow_time(2, [(10.0, 1), (10.0, 2)], 3) == (10.0, 2), "all that end at the same time count"


def test_a_pass_by_hand() -> None:
    """4 of 8 free, 4 come at 50. a starts; b needs 7: from 50; c is short, d takes the one beside b, e neither."""
    jobs = [
        waiting("a", 1, 30.0), waiting("b", 7), waiting("c", 1, 40.0), waiting("d", 1, 900.0), waiting("e", 1, 900.0),
    ]  # fmt: skip
    found = schedule(0.0, 4, [(50.0, 4)], jobs)
    assert [each.job.job for each in found.started] == ["a", "c", "d"]
    assert found.head is not None and found.head.job == "b"
    assert (found.shadow, found.extra, found.room) == (50.0, 0, 1)


def test_a_job_that_takes_a_range_takes_what_is_free() -> None:
    """6 free, 4 come at 50. a takes 1 to 3, so 3 are left; b needs 5: from 50 on 5 of 7, and d takes one beside it.

    Where b takes up to 7 as well, none is left beside it: d has to wait, and c takes 2 of the 3 until b's turn.
    """
    a, c, d = waiting("a", 1, 900.0, nodes_max=3), waiting("c", 1, 40.0, nodes_max=2), waiting("d", 1, 900.0)
    found = schedule(0.0, 6, [(50.0, 4)], [a, waiting("b", 5), d])
    assert [(each.job.job, each.nodes, each.end) for each in found.started] == [("a", 3, 900.0), ("d", 1, 900.0)]
    assert (found.shadow, found.extra, found.room) == (50.0, 1, 2)
    found = schedule(0.0, 6, [(50.0, 4)], [a, waiting("b", 5, nodes_max=16), c, d])
    assert [(each.job.job, each.nodes, each.end) for each in found.started] == [("a", 3, 900.0), ("c", 2, 40.0)]
    assert (found.shadow, found.extra, found.room) == (50.0, 0, 1)


def test_a_turn_is_kept_free_for_the_most_that_a_job_takes() -> None:
    """2 of 8 idle, 6 come at 600: the waiting job needs 4 of them, and takes all 8, so the idle two are its, too."""
    running = JobView("1", "running", 6, end=600.0)
    for most, limit in ((None, None), (6, None), (8, 540.0)):
        cluster = ClusterView(0.0, 8, 2, (running, waiting("2", 4, 100.0, nodes_max=most)))
        assert Outlook(Survey(cluster), "r", None).limit(2) == limit, most


@pytest.mark.parametrize(
    ("reason", "able"),
    [
        ("", True), ("None", True), ("(null)", True), ("Resources", True), ("(Priority)", True), ("Priority,x", True),
        ("Dependency", False), ("QOSMaxCpuPerUserLimit", False), ("ReqNodeNotAvail, UnavailableNodes:n1", False),
    ],
)  # fmt: skip
def test_reasons(reason: str, able: bool) -> None:
    assert can_start(JobView("1", "pending", 1, reason=reason)) is able


def test_an_oversized_job_is_nobodys_reason() -> None:
    survey = Survey(ClusterView(0.0, 8, 2, (waiting("a", 9),)))
    assert survey.waiting == [] and [job.job for job in survey.unable] == ["a"]


def test_growth_of_others_takes_room() -> None:
    jobs = (JobView("1", "running", 2, run="s"), waiting("2", 3, run="s"), waiting("3", 2, run="r"))
    outlook = Outlook(Survey(ClusterView(0.0, 8, 4, (*jobs, JobView("9", "running", 2, run="r")))), "r", "9")
    assert [job.job for job in outlook.successors] == ["2"]
    assert outlook.room == 1
    assert outlook.own_other == 0


@pytest.mark.parametrize(("least", "most", "room"), [(1, 2, 2), (1, 8, 0), (4, 8, 0), (5, 8, 4)])
def test_growth_of_others_takes_as_much_room_as_it_can(least: int, most: int, room: int) -> None:
    """4 idle; another run's successor takes a range of sizes, and starts on what there is up to the most."""
    jobs = (JobView("1", "running", 2, run="s"), waiting("2", least, run="s", nodes_max=most))
    outlook = Outlook(Survey(ClusterView(0.0, 8, 4, (*jobs, JobView("9", "running", 2, run="r")))), "r", "9")
    assert outlook.room == room
    assert outlook.unwanted(math.inf) == room


def test_a_run_that_left_and_waits_is_not_its_own_competitor() -> None:
    jobs = (waiting("3", 4, run="r"), waiting("4", 4))
    outlook = Outlook(Survey(ClusterView(0.0, 8, 4, jobs)), "r", None)
    assert [job.job for job in outlook.waiting] == ["4"]
    assert outlook.room == 0


def test_a_limit_that_fits() -> None:
    """6 of 8 idle; the head needs 8, from 1000 on."""
    view = ClusterView(0.0, 8, 6, (JobView("1", "running", 2, end=1000.0), waiting("2", 8)))
    outlook = Outlook(Survey(view), "r", None)
    assert outlook.limit(3) == 900.0, "a minute is left free, and Slurm counts in minutes"
    assert outlook.unwanted(900.0) == 6
    assert outlook.unwanted(901.0) == 0
    free = Outlook(Survey(ClusterView(0.0, 8, 6, (JobView("1", "running", 2, end=1000.0),))), "r", None)
    assert free.limit(3) is None and free.unwanted(math.inf) == 6


def test_what_is_left_free_goes_with_the_time_until_the_turn() -> None:
    assert [margin(left) for left in (10.0, 100.0, 600.0, 3000.0, 10_000.0)] == [1.0, 10.0, 60.0, 60.0, 200.0]


@pytest.mark.parametrize(("turn", "limit"), [(50.0, 0.0), (70.0, 60.0), (130.0, 60.0), (134.0, 120.0)])
def test_short_gaps_are_used_as_far_as_whole_minutes_go(turn: float, limit: float) -> None:
    """6 of 8 idle; the head needs 8 at the turn."""
    view = ClusterView(0.0, 8, 6, (JobView("1", "running", 2, end=turn), waiting("2", 8)))
    outlook = Outlook(Survey(view), "r", None)
    assert outlook.limit(6) == limit
    assert outlook.unwanted(limit + 1) == 0
    assert outlook.unwanted(limit) == 6 or limit == 0


def test_nodes_that_a_job_behind_the_head_can_use_soon_are_wanted() -> None:
    """4 of 8 idle. The head needs 8, from 1000 on; the job behind it needs 6, is short, and can start at 200."""
    running = (JobView("1", "running", 2, end=200.0), JobView("2", "running", 2, end=1000.0))
    view = ClusterView(0.0, 8, 4, (*running, waiting("3", 8), waiting("4", 6, 300.0)))
    outlook = Outlook(Survey(view), "r", None)
    assert outlook.now.head is not None and outlook.now.shadow == 1000.0
    assert outlook.unwanted(180.0) == 4
    assert outlook.unwanted(400.0) == 0
    assert outlook.limit(4) == 180.0


limits = st.one_of(st.none(), st.integers(1, 500))
jobs = st.lists(st.tuples(st.integers(1, 8), limits), max_size=8)
ranges = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 4), limits), max_size=8)


def in_queue(queue: list[tuple[int, int, int | None]]) -> list[JobView]:
    """Return waiting jobs of (least, more, limit)."""
    return [waiting(str(n), least, end, nodes_max=least + more) for n, (least, more, end) in enumerate(queue)]


@settings(max_examples=200)
@given(st.integers(0, 8), jobs, ranges)
def test_a_pass_starts_no_more_than_is_free_and_never_delays_the_head(
    idle: int, running: list[tuple[int, int | None]], queue: list[tuple[int, int, int | None]]
) -> None:
    releases = [(math.inf if end is None else float(end), nodes) for nodes, end in running]
    found = schedule(0.0, idle, releases, in_queue(queue))
    assert sum(each.nodes for each in found.started) + found.room == idle
    assert all(each.job.nodes <= each.nodes <= (each.job.nodes_max or 0) for each in found.started)
    if found.head is None or found.shadow == math.inf:
        return
    ends = [*releases, *((each.end, each.nodes) for each in found.started)]
    free_then = found.room + sum(nodes for end, nodes in ends if end <= found.shadow)
    assert free_then >= found.head.nodes


@settings(max_examples=200)
@given(st.integers(0, 8), jobs, ranges, st.integers(1, 800))
def test_what_is_unwanted_is_what_a_limit_can_be_had_for(
    idle: int, running: list[tuple[int, int | None]], queue: list[tuple[int, int, int | None]], until: int
) -> None:
    held = [JobView(f"r{n}", "running", nodes, end=end) for n, (nodes, end) in enumerate(running)]
    pending = in_queue(queue)
    total = idle + sum(nodes for nodes, _ in running)
    outlook = Outlook(Survey(ClusterView(0.0, total, idle, (*held, *pending))), "r", None)
    free = outlook.unwanted(float(until))
    assert 0 <= free <= outlook.room
    for nodes in range(1, outlook.room + 1):
        limit = outlook.limit(nodes)
        assert (nodes <= free) == (limit is None or limit >= until)


@settings(max_examples=200)
@given(st.integers(0, 8), jobs, jobs)
def test_profiles_stay_within_what_there_is(
    idle: int, running: list[tuple[int, int | None]], queue: list[tuple[int, int | None]]
) -> None:
    """Whatever is reserved at its earliest time fits, and is gone again when it is released."""
    releases = [(math.inf if end is None else float(end), nodes) for nodes, end in running]
    profile = Profile(0.0, idle, releases)
    before = [profile.least(float(when), 1.0) for when in range(0, 600, 7)]
    placed = []
    for nodes, end in queue:
        duration = math.inf if end is None else float(end)
        start = profile.earliest(nodes, duration)
        if start < math.inf:
            assert profile.least(start, duration) >= nodes
        profile.reserve(start, duration, nodes)
        placed.append((start, duration, nodes))
        assert min(profile.free) >= 0
    for start, duration, nodes in placed:
        profile.release(start, duration, nodes)
    assert [profile.least(float(when), 1.0) for when in range(0, 600, 7)] == before


def test_profiles_refuse_what_is_not_free() -> None:
    profile = Profile(0.0, 2, [(10.0, 2)])
    with pytest.raises(ValueError, match="3 nodes are not free"):
        profile.reserve(5.0, 10.0, 3)
    with pytest.raises(ValueError, match="lies before"):
        profile.reserve(-1.0, 5.0, 1)
    assert profile.until(2) == math.inf
    assert profile.until(3) == 0.0
