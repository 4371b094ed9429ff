"""From rows to the view that decisions are made from."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmr.launcher.slurm import parse
from dmr.launcher.slurm.parse import JobRow, NodeRow
from dmr.launcher.slurm.states import is_idle, is_up, job_state
from dmr.launcher.slurm.view import Reach, cluster_view, run_of, satisfies


def node(name: str, state: str = "idle", partition: str = "main", features: str = "", **more: object) -> NodeRow:
    fields = [name, partition, state, features, str(more.get("size", "1-infinite")), "2", "1:00:00"]
    return parse.nodes(parse.FIELD.join(fields) + parse.RECORD)[0]


def job(number: int, state: str = "RUNNING", held: str = "", partition: str = "main", **more: str) -> JobRow:
    row = dict.fromkeys(parse.QUEUE_COLUMNS, "")
    row |= {"jobarrayid": str(number), "jobid": str(number), "state": state, "nodelist": held, "partition": partition}
    row |= {"numnodes": "1", "maxnodes": "0", "prioritylong": "1000"}
    row |= {key.replace("_", "-"): value for key, value in more.items()}
    return parse.jobs(parse.FIELD.join(row[column] for column in parse.QUEUE_COLUMNS) + parse.RECORD)[0]


MAIN = Reach(frozenset({"main"}))


@pytest.mark.parametrize(
    ("state", "up", "idle"),
    [
        ("idle", True, True), ("IDLE", True, True), ("planned", True, True), ("idle~", True, True),
        ("idle#", True, True),
        ("mixed", True, False), ("allocated", True, False), ("allocated+", True, False), ("completing", True, False),
        ("mixed-", True, False), ("idle*", False, False), ("idle%", False, False), ("idle!", False, False),
        ("allocated@", False, False), ("down", False, False), ("down*", False, False), ("drained", False, False),
        ("draining", False, False), ("reserved", False, False), ("maint", False, False), ("reboot^", False, False),
        ("fail", False, False), ("unknown", False, False), ("future", False, False), ("inval", False, False),
    ],
)  # fmt: skip
def test_node_states(state: str, up: bool, idle: bool) -> None:
    assert (is_up(node("n1", state)), is_idle(node("n1", state))) == (up, idle)


@pytest.mark.parametrize(
    ("state", "meaning"),
    [("PENDING", "pending"), ("REQUEUED", "pending"), ("REQUEUE_HOLD", "pending"), ("RUNNING", "running"),
     ("SUSPENDED", "running"), ("COMPLETING", "running"), ("CONFIGURING", "running"), ("COMPLETED", "ended"),
     ("CANCELLED", "ended"), ("CANCELLED by 1000", "ended"), ("CANCELLED+", "ended"), ("PREEMPTED", "ended"),
     ("TIMEOUT", "ended"), ("NODE_FAIL", "ended"), ("SOMETHING_NEW", "unknown"), ("", "unknown")],
)  # fmt: skip
def test_job_states(state: str, meaning: str) -> None:
    assert job_state(state) == meaning


def test_nodes_within_reach_are_counted_once() -> None:
    nodes = [node("n1"), node("n1", partition="debug"), node("n2", "down"), node("n3", "allocated"),
             node("n4", partition="debug"), node("n5", "reserved"), node("n6")]  # fmt: skip
    view = cluster_view(5.0, [job(1, held="n3")], nodes, MAIN)
    assert (view.time, view.total, view.idle, view.max_nodes) == (5.0, 3, 2, None)


def test_a_node_that_a_job_got_between_the_two_answers_is_not_idle() -> None:
    assert cluster_view(0.0, [job(1, held="n1")], [node("n1"), node("n2")], MAIN).idle == 1


def test_jobs_count_as_far_as_they_hold_nodes_within_reach() -> None:
    nodes = [node("n1"), node("n2"), node("n2", partition="debug"), node("n3", partition="debug")]
    queue = [job(1, held="n[2-3]", partition="debug"), job(2, held="n3", partition="debug"), job(3, "COMPLETED", "n1")]
    assert [(each.job, each.nodes) for each in cluster_view(0.0, queue, nodes, MAIN).jobs] == [("1", 1)]


def test_waiting_jobs_of_partitions_that_share_nodes() -> None:
    nodes = [node("n1"), node("n1", partition="debug"), node("n2", partition="far")]
    queue = [job(1, "PENDING"), job(2, "PENDING", partition="debug"), job(3, "PENDING", partition="far"),
             job(4, "PENDING", partition="far,main")]  # fmt: skip
    assert [each.job for each in cluster_view(0.0, queue, nodes, MAIN).jobs] == ["1", "2", "4"]


def test_a_pending_job_shows_its_least_and_most() -> None:
    row = job(1, "PENDING", numnodes="6", maxnodes="6", tres_alloc="cpu=4,mem=2G,node=2,billing=4", reason="Resources")
    (view,) = cluster_view(0.0, [row], [node("n1")], MAIN).jobs
    assert (view.nodes, view.nodes_max, view.reason, view.state) == (2, 6, "Resources", "pending")


def test_waiting_tasks_of_an_array_are_jobs_each() -> None:
    queue = [job(7, "PENDING", jobarrayid="7_[2-4]"), job(8, held="n1", jobarrayid="7_1"),
             job(9, "PENDING", jobarrayid="9_[5]")]  # fmt: skip
    jobs = cluster_view(0.0, queue, [node("n1")], MAIN).jobs
    assert [each.job for each in jobs] == ["7_2", "7_3", "7_4", "7_1", "9_5"]


def test_features_and_excluded_nodes() -> None:
    nodes = [node("n1", features="a,b"), node("n2", features="a"), node("n3", features="a,b")]
    reach = Reach(frozenset({"main"}), "a&b", frozenset({"n3"}))
    assert cluster_view(0.0, [], nodes, reach).total == 1


def test_the_largest_size_that_a_partition_and_accounting_allow() -> None:
    nodes = [node("n1", size="1-8"), node("n1", partition="side", size="1-2"), node("n1", partition="far", size="1-9")]
    both = frozenset({"main", "side"})
    assert cluster_view(0.0, [], nodes, Reach(both)).max_nodes == 8, "one of them takes it"
    assert cluster_view(0.0, [], nodes, Reach(both, most=3)).max_nodes == 3
    assert cluster_view(0.0, [], [*nodes, node("n2", partition="open")], Reach(both | {"open"})).max_nodes is None
    assert cluster_view(0.0, [], [], Reach(both, most=4)).max_nodes == 4


@pytest.mark.parametrize(
    ("expression", "features", "fits"),
    [
        ("", "", True), ("a", "a", True), ("a", "b", False), ("a&b", "a,b", True), ("a&b", "a", False),
        ("a|b", "b", True), ("a|b&c", "b", False), ("(a|b)&c", "b,c", True), ("[a|b]", "b", True),
        ("a*2&b*4", "b", True),
        ("[a*2|b*3]", "a", True), ("a,b", "a", False), ("(a", "a", True), ("&", "", True),
        ("nvidia_a100", "nvidia_a100", True),
    ],
)  # fmt: skip
def test_constraints(expression: str, features: str, fits: bool) -> None:
    assert satisfies(expression, frozenset(filter(None, features.split(",")))) is fits


def test_runs_are_known_by_comment_or_name() -> None:
    assert run_of(job(1, comment="dmr:ab-12:3:f00d my own")) == "ab-12"
    assert run_of(job(1, name="dmr:ab-12:3:f00d")) == "ab-12"
    assert run_of(job(1, comment="mydmr", name="x")) is None


def test_on_a_real_queue() -> None:
    folder = Path(__file__).parent / "slurm_outputs" / "22.05"
    rows, nodes = (parse.jobs((folder / "queue.txt").read_text()), parse.nodes((folder / "nodes.txt").read_text()))
    view = cluster_view(0.0, rows, nodes, MAIN)
    assert (view.total, view.idle, view.partition, view.max_nodes) == (4, 1, "main", None)
    assert [(each.job, each.state, each.nodes, each.run) for each in view.jobs] == [
        ("3", "pending", 3, "run1"), ("4_3", "pending", 4, None), ("4_5", "pending", 4, None),
        ("1", "running", 2, "run1"), ("5", "pending", 2, None), ("2", "running", 1, None),
    ]  # fmt: skip
