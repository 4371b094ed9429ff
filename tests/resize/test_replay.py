from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmr.resize.decide import decide
from dmr.resize.policy import load_policy
from dmr.resize.record import (
    RECORDED_PENDING,
    RECORDED_RUNNING,
    cluster_from_json,
    cluster_to_json,
    run_from_json,
    run_to_json,
)
from dmr.resize.replay import Frame, replay
from dmr.resize.view import ClusterView, Costs, CostSample, JobView, Rate, RunView

RUN = RunView(
    time=1000.0, run="r", generation=2, nodes=2, sizes=(1, 2, 4, 8), since=900.0, step=100, steps=1100, job="5",
    rates=(Rate(2, 1.0, 100), Rate(4, 0.5, 10, "solve")), costs=Costs(1.0, 2.0, 1.0), waits=((4, 10.0),),
    resize_costs=(CostSample(2, 10, 1.0),), witnesses=((8, 5.0),), end=90_000.0, started=900.0, node_hours=0.1,
)  # fmt: skip


def test_views_survive_json() -> None:
    jobs = (
        JobView("5", "running", 2, end=9e4, run="r"),
        JobView("6", "pending", 3, 2.0, submitted=1.0, reason="Priority"),
    )
    cluster = ClusterView(1000.0, 8, 6, jobs, "all", 8)
    assert cluster_from_json(json.loads(json.dumps(cluster_to_json(cluster)))) == cluster
    assert run_from_json(json.loads(json.dumps(run_to_json(RUN)))) == RUN
    assert "suggestion" not in run_to_json(RUN)


@given(st.integers(1, 64), st.one_of(st.none(), st.floats(0, 1e6)), st.booleans())
def test_any_run_survives_json(nodes: int, pending: float | None, in_place: bool) -> None:
    run = replace(RUN, nodes=nodes, pending_since=pending, in_place=in_place, rates=())
    assert run_from_json(json.loads(json.dumps(run_to_json(run)))) == run


def test_newer_fields_are_passed_over_and_rubbish_is_refused() -> None:
    cluster = cluster_to_json(ClusterView(1.0, 8, 8, (JobView("1", "running", 2),)))
    newer = {**cluster, "fields": [*cluster["fields"], "mood"], "colour": "red"}
    assert cluster_from_json(newer).jobs[0].nodes == 2
    assert run_from_json({**run_to_json(RUN), "mood": 3}) == RUN
    with pytest.raises(ValueError, match="not the view of a cluster"):
        cluster_from_json({"jobs": 3})
    with pytest.raises(ValueError, match="not the view of a run"):
        run_from_json({"run": "r"})


def test_a_long_queue_is_cut_and_says_so() -> None:
    pending = [JobView(str(n), "pending", 1, priority=float(n)) for n in range(RECORDED_PENDING + 50)]
    running = [JobView(f"a{n}", "running", 1, end=9e9 - n) for n in range(RECORDED_RUNNING + 5)]
    mine = JobView("mine", "running", 1, run="r")
    found = cluster_to_json(ClusterView(1.0, 800, 8, (*pending, *running, mine)))
    assert found["left_out"] == 50 + 6
    kept = cluster_from_json(found).jobs
    assert [kept[0], kept[1].job] == [mine, f"a{RECORDED_RUNNING + 4}"]
    assert kept[RECORDED_RUNNING].job == str(RECORDED_PENDING + 49)


def real_run() -> list[Frame]:
    """A run that kept 2 of 8 idle nodes for 1000 s: a step a second, 1000 steps to go."""
    frames = []
    for turn in range(11):
        now = 1000.0 + 100 * turn
        run = replace(
            RUN, time=now, witnesses=(), step=100 + 100 * turn, node_hours=0.1 + 200 * turn / 3600,
            rates=(Rate(2, 1.0, 100), Rate(4, 0.5, 10), Rate(8, 0.25, 10)),
        )  # fmt: skip
        view = ClusterView(now, 16, 14, (JobView("5", "running", 2, end=9e4, run="r"),))
        frames.append(Frame(run, view, decide(run, view, load_policy("static"))))
    return frames


def test_another_policy_along_a_real_run() -> None:
    """It grows to 8 after the first look: 4 s of change, then four steps a second."""
    found = replay(real_run(), load_policy("queue"))
    assert [each.nodes for each in found.frames] == [2, 8, 8], "done after that"
    assert [each.real for each in found.frames] == [2] * 3
    assert found.resizes == 1
    assert found.frames[1].step == 100 + (100 - 4) * 4
    assert found.finish == pytest.approx(1000 + 4 + 1000 / 4)
    assert found.real_finish == pytest.approx(2000.0)
    assert found.real_node_hours == pytest.approx(0.1 + 2000 / 3600)
    assert found.borrowed == 0


def test_the_same_policy_gives_the_same_run() -> None:
    found = replay(real_run(), load_policy("static"))
    assert {each.nodes for each in found.frames} == {2}
    assert found.finish == found.real_finish
    assert found.node_hours == pytest.approx(found.real_node_hours)


def test_nodes_that_others_had_are_counted() -> None:
    """The real run gave 4 of its 6 nodes to a job; the replayed one keeps them."""
    before = replace(RUN, nodes=6, sizes=(2, 6), rates=(Rate(6, 1.0, 100),))
    first = Frame(before, ClusterView(1000.0, 8, 2, (JobView("5", "running", 6, run="r"),)))
    after = replace(before, time=1100.0, nodes=2, rates=(Rate(6, 1.0, 100), Rate(2, 3.0, 10)))
    jobs = (JobView("5", "running", 2, run="r"), JobView("6", "running", 6))
    found = replay([first, Frame(after, ClusterView(1100.0, 8, 0, jobs))], load_policy("static"))
    assert found.borrowed == 4
    with pytest.raises(ValueError, match="recorded"):
        replay([], load_policy("static"))
