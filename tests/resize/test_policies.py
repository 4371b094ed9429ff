from __future__ import annotations

import math
from typing import Any

import pytest

from dmr.resize.decide import decide
from dmr.resize.explain import explain
from dmr.resize.policies.simple import parse_duration, parse_timetable
from dmr.resize.policy import Glance, PolicyError, load_policy, policy_names
from dmr.resize.situation import Situation
from dmr.resize.view import ClusterView, Costs, Decision, JobView, Rate, RunView

COSTS = Costs(save=1.0, launch=2.0, load=1.0)
BUSY = JobView("9", "running", 4, end=9e9)


def amdahl(n: int, parallel: float = 0.9) -> float:
    return 1 - parallel + parallel / n


def a_run(nodes: int, **changes: Any) -> RunView:
    given: dict[str, Any] = {
        "time": 1000.0, "run": "r", "generation": 1, "nodes": nodes, "sizes": (1, 2, 4, 8), "since": 0.0, "step": 0,
        "steps": 1000, "job": "1", "rates": tuple(Rate(n, amdahl(n), 100) for n in (1, 2, 4, 8)), "costs": COSTS,
        "started": 0.0,
    }  # fmt: skip
    return RunView(**{**given, **changes})


def ask(policy: str, run: RunView, *others: JobView, total: int = 16, **options: Any) -> Decision:
    held = JobView("1", "running", run.nodes, end=9e8, run="r")
    jobs = (held, *others)
    idle = total - sum(each.nodes for each in jobs if each.state == "running")
    return decide(run, ClusterView(run.time, total, idle, jobs), load_policy(policy, options))


def got(decision: Decision) -> tuple[str, int]:
    return decision.action, decision.nodes


@pytest.mark.parametrize("name", [each for each in policy_names() if each != "schedule"])
def test_every_policy_explains_every_size(name: str) -> None:
    for run in (a_run(2), a_run(4, rates=()), a_run(8, steps=None), a_run(4, pending=8), a_run(4, step=1000)):
        found = ask(name, run)
        assert found.policy == name
        assert [row.nodes for row in found.table] == [1, 2, 4, 8]
        assert all(row.reason for row in found.table)
        assert sum(row.taken for row in found.table) == 1
        assert explain(found)


def test_efficiency_keeps_to_its_band() -> None:
    # T(n)·n at 1, 2, 4, 8: 1, 1.1, 1.3, 1.7; efficiencies 1, 0.91, 0.77, 0.59.
    assert got(ask("efficiency", a_run(8))) == ("shrink", 4)
    assert got(ask("efficiency", a_run(4))) == ("stay", 4)
    assert got(ask("efficiency", a_run(1))) == ("expand", 4)
    assert got(ask("efficiency", a_run(1), JobView("9", "running", 15, end=9e9))) == ("stay", 1)
    assert got(ask("efficiency", a_run(4), low=0.85, high=0.95)) == ("shrink", 2)
    with pytest.raises(PolicyError, match="no band"):
        load_policy("efficiency", {"low": "0.9", "high": "0.5"})


def test_deadline_takes_the_fewest_nodes_that_are_in_time() -> None:
    # From now: 1000 s on 1 node, 550 on 2, 325 on 4, 212.5 on 8. The run began 1000 s ago.
    assert got(ask("deadline", a_run(2), within="1700")) == ("stay", 2)
    assert got(ask("deadline", a_run(2), within="25:00")) == ("expand", 4)
    assert got(ask("deadline", a_run(8), within="25:00")) == ("shrink", 4)
    assert got(ask("deadline", a_run(2, deadline=1250.0))) == ("expand", 8)
    hopeless = ask("deadline", a_run(2), within="1100")
    assert got(hopeless) == ("expand", 8)
    assert "late" in hopeless.reason
    assert "no deadline" in ask("deadline", a_run(2)).reason
    with pytest.raises(PolicyError, match="no time"):
        load_policy("deadline", {"within": "soon"})


def test_deadline_counts_the_wait() -> None:
    """More nodes come free only when the other job ends, at 1300; with 4 the run would end at 1452 then."""
    later = JobView("9", "running", 12, end=1300.0)
    assert got(ask("deadline", a_run(2), later, within="1500")) == ("expand", 4)
    found = ask("deadline", a_run(2), later, within="1430")
    assert found.table[3].wait is not None and found.table[3].wait[0] == pytest.approx(300.0)
    assert found.table[3].finish == pytest.approx(1000 + 300 + 4 + (1 - 300 / 550) * 212.5)
    assert got(found) == ("expand", 8)
    assert "late" in ask("deadline", a_run(2), later, within="1330").reason


def test_cheapest_and_its_bound() -> None:
    assert got(ask("cheapest", a_run(8))) == ("shrink", 1)
    assert got(ask("cheapest", a_run(1))) == ("stay", 1)
    # At most 1.7 times the fastest: 212.5·1.7 = 361 s, which 4 nodes make.
    assert got(ask("cheapest", a_run(8), slower=1.7)) == ("shrink", 4)
    assert got(ask("cheapest", a_run(1), slower=1.7)) == ("expand", 4)
    assert got(ask("cheapest", a_run(8, step=998))) == ("stay", 8), "what is left is not worth a change"
    with pytest.raises(PolicyError, match="less than 1"):
        load_policy("cheapest", {"slower": "0.5"})


def test_energy_grows_when_the_base_is_high() -> None:
    assert got(ask("energy", a_run(4), watts=400, base=0)) == ("shrink", 1)
    # (n·400 + 4000)·T(n): 4400, 2640, 1820, 1530 W·s a step.
    assert got(ask("energy", a_run(2), watts=400, base=4000)) == ("expand", 8)
    # With 500: 900, 715, 682.5, 786: 4 is best.
    assert got(ask("energy", a_run(8), watts=400, base=500)) == ("shrink", 4)
    with pytest.raises(PolicyError, match="no power"):
        load_policy("energy", {"watts": "-3"})


def test_schedule_follows_its_timetable() -> None:
    table = "0=2, 10:00=4, 1:00:00=8"
    assert got(ask("schedule", a_run(2), at=table)) == ("expand", 4)
    assert got(ask("schedule", a_run(4), at=table)) == ("stay", 4)
    assert got(ask("schedule", a_run(4, time=4000.0), at=table)) == ("expand", 8)
    assert got(ask("schedule", a_run(4, started=950.0), at=table)) == ("shrink", 2)
    assert "not an allowed size" in ask("schedule", a_run(4), at="0=3").reason
    for wrong in ("", "4", "0=x", "soon=4", "0=0"):
        with pytest.raises(PolicyError, match="TIME=NODES"):
            load_policy("schedule", {"at": wrong})


def test_times_as_users_write_them() -> None:
    assert [parse_duration(each) for each in ("90", "1.5h", "30:00", "1:30:00", "2d", "x", "1:2:3:4")] == [
        90.0, 5400.0, 1800.0, 5400.0, 172800.0, None, None,
    ]  # fmt: skip
    assert parse_timetable("1h=8,0=2") == ((0.0, 2), (3600.0, 8))


@pytest.mark.parametrize(("step", "wanted"), [(0, 8), (400, 8), (510, 4), (740, 4), (760, None)])
def test_window_halves_what_it_asks_for(step: int, wanted: int | None) -> None:
    found = ask("window", a_run(2, step=step))
    assert got(found) == (("stay", 2) if wanted is None else ("expand", wanted)), found.reason


def test_window_follows_with_its_successor_and_stops_when_it_no_longer_pays() -> None:
    assert got(ask("window", a_run(2, step=510, pending=8, pending_job="7"))) == ("expand", 4)
    assert got(ask("window", a_run(2, step=760, pending=4, pending_job="7"))) == ("cancel", 2)
    assert got(ask("window", a_run(1, step=990))) == ("stay", 1)


def test_round_goes_round() -> None:
    sizes = []
    nodes = 1
    for _ in range(5):
        nodes = ask("round", a_run(nodes)).nodes
        sizes.append(nodes)
    assert sizes == [2, 4, 8, 1, 2]


def test_dmr_own_rule() -> None:
    waiting = JobView("7", "pending", 6, 1.0, time_limit=60.0, reason="Priority")
    below = load_policy("dmr", {"preferred": 4})
    assert below.rules.preferred == 4
    assert got(ask("dmr", a_run(2), BUSY, waiting, preferred=4)) == ("expand", 4), "first up to the preferred size"
    full = JobView("9", "running", 8, end=9e9)
    assert got(ask("dmr", a_run(8), full, waiting)) == ("shrink", 2)
    assert got(ask("dmr", a_run(4), full, JobView("7", "pending", 12, 1.0, reason="Resources"))) == ("stay", 4)
    assert got(ask("dmr", a_run(2), BUSY)) == ("expand", 8)
    assert got(ask("dmr", a_run(2), JobView("9", "running", 9, end=9e9))) == ("expand", 4)


def test_queue_weighs_what_it_gives_against_what_it_loses() -> None:
    """The job would wait 100 s; at half its size the run loses 112 s for good, 40 s until a short job is done."""
    blocker = JobView("9", "running", 8, end=1100.0)
    long = JobView("7", "pending", 4, 1.0, time_limit=36000.0, reason="Resources")
    assert got(ask("queue", a_run(8), blocker, long)) == ("stay", 8)
    short = JobView("7", "pending", 4, 1.0, time_limit=60.0, reason="Resources")
    assert got(ask("queue", a_run(8), blocker, short)) == ("shrink", 4)
    assert got(ask("queue", a_run(8), blocker, long, worth=10)) == ("shrink", 4)


def test_queue_does_not_shrink_when_it_ends_soon_itself() -> None:
    full = JobView("9", "running", 8, end=9e9)
    waiting = JobView("7", "pending", 4, 1.0, time_limit=60.0, reason="Resources")
    assert got(ask("queue", a_run(8, step=980), full, waiting)) == ("stay", 8)
    assert got(ask("queue", a_run(8, step=0), full, waiting)) == ("shrink", 4)


def test_queue_leaves_a_size_that_is_measured_to_be_slower() -> None:
    rates = (Rate(4, 0.5, 100), Rate(8, 0.8, 100))
    assert got(ask("queue", a_run(8, rates=rates), BUSY)) == ("shrink", 4)
    assert got(ask("queue", a_run(8, rates=(Rate(8, 0.8, 100),)), BUSY)) == ("stay", 8)


def test_queue_stops_at_the_preferred_size_while_others_wait() -> None:
    head = JobView("7", "pending", 14, 1.0, time_limit=60.0, reason="Resources")
    alone = ask("queue", a_run(1), JobView("9", "running", 2, end=90_000.0), preferred=4)
    crowded = ask("queue", a_run(1), JobView("9", "running", 2, end=90_000.0), head, preferred=4)
    assert (alone.nodes, crowded.nodes) == (8, 4)
    assert "preferred" in crowded.table[-1].reason


def test_queue_asks_for_a_limit_that_fits_before_the_next_job() -> None:
    head = JobView("7", "pending", 16, 1.0, time_limit=60.0, reason="Resources")
    busy = JobView("9", "running", 2, end=5000.0)
    held = JobView("1", "running", 2, end=5000.0, run="r")
    run = a_run(2)
    found = decide(run, ClusterView(run.time, 16, 12, (held, busy, head)), load_policy("queue"))
    assert got(found) == ("expand", 8)
    assert found.limit is not None and 3800 < found.limit <= 4000 - 60
    free = decide(run, ClusterView(run.time, 16, 12, (held, busy)), load_policy("queue"))
    assert free.limit is None


def test_queue_believes_the_scheduler_that_idle_nodes_cannot_be_had() -> None:
    assert got(ask("queue", a_run(2), dwell=0)) == ("expand", 8)
    told = ask("queue", a_run(2, witnesses=((8, 300.0),)), dwell=0)
    assert got(told) == ("expand", 4)
    assert "can't be had for 300 s" in told.table[3].reason
    assert told.table[3].wait is not None and told.table[3].wait[0] == 300.0


def test_queue_leaves_nodes_to_the_second_in_line() -> None:
    """The head needs 4 of the 15 nodes that are free at 2000; the next job needs the other eleven then."""
    busy = JobView("9", "running", 12, end=2000.0)
    head = JobView("7", "pending", 4, 2.0, time_limit=9000.0, reason="Resources")
    run = a_run(1, sizes=(1, 2), in_place=True, steps=100_000)
    for needs, answer in ((11, ("stay", 1)), (10, ("expand", 2))):
        second = JobView("8", "pending", needs, 1.0, time_limit=9000.0, reason="Priority")
        jobs = (JobView("1", "running", 1, end=90_000.0, run="r"), busy, head, second)
        assert got(decide(run, ClusterView(1000.0, 16, 3, jobs), load_policy("queue"))) == answer


@pytest.mark.parametrize(
    ("held", "glance", "may"),
    [
        (4, Glance(0, 16, None), False),
        (4, Glance(0, 16, 2), True),
        (2, Glance(0, 16, 2), False),
        (4, Glance(7, 16, None), False),
        (4, Glance(8, 16, None), True),
        (8, Glance(8, 16, None), False),
        (4, Glance(4, 10, None), True),
    ],
)
def test_a_glance_is_enough_to_know_that_nothing_changes(held: int, glance: Glance, may: bool) -> None:
    policy: Any = load_policy("queue")
    assert policy.may_change(held, (1, 2, 4, 8), glance) is may


def test_waits_have_bounds() -> None:
    run = a_run(2, waits=tuple((8, float(seconds)) for seconds in range(10, 110, 10)), witnesses=((8, 55.0),))
    head = JobView("7", "pending", 16, 1.0, time_limit=60.0, reason="Resources")
    held = JobView("1", "running", 2, end=9e8, run="r")
    view = ClusterView(run.time, 16, 2, (held, JobView("9", "running", 12, end=1040.0), head))
    situation = Situation(run, view, load_policy("queue").rules)
    low, high = situation.wait(8)
    assert low == 55.0, "the scheduler's own word is later than the plan"
    assert high == 90.0, "nine of ten waits seen were shorter"
    unknown = Situation(a_run(2), view, load_policy("queue").rules).wait(8)
    assert unknown == (40.0, math.inf)
