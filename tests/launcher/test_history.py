"""The ledger's events folded into generations, successors and counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmr.launcher.run.history import History, read_history
from dmr.launcher.run.rundir import Progress, RunDir
from dmr.launcher.run.status import history_now
from dmr.launcher.supervise.account import Account
from dmr.launcher.supervise.console import Console


def event(time: float, generation: int, name: str, /, **fields: Any) -> dict[str, Any]:
    return {"time": time, "generation": generation, "event": name, **fields}


HANDOVER = [
    event(100, 1, "created", run="r", nodes=2),
    event(101, 1, "launched", token="a", job="7", nodes=2, hosts=["n1", "n2"], cause="fresh"),
    event(104, 1, "loaded", launch=2.5, load=None, step=0),
    event(110, 1, "decided", decision={"action": "expand"}),
    event(111, 1, "submitted", token="b", successor=2, job=None, name="dmr:r:2:b", nodes=[4, 4], after=None),
    event(112, 1, "submitted", token="b", successor=2, job="8", name="dmr:r:2:b", nodes=[4, 4], after=None),
    event(142, 2, "started", token="b", job="8", nodes=4, host="n3"),
    event(143, 1, "requested", id=1, action="resize", nodes=4, by="successor"),
    event(145, 1, "saved", checkpoint="step-40.h5", step=40, seconds=0.5, bytes=10),
    event(146, 1, "ended", why="expand", exit=0, step=40, seconds_per_step=1.0, rates=[[None, 1.0, 40]], queries=3),
    event(147, 1, "released", token="b"),
    event(148, 2, "launched", token="b", job="8", nodes=4, hosts=["n3", "n4", "n5", "n6"], cause="expand"),
    event(150, 2, "loaded", launch=1.5, load=0.25, step=40),
    event(190, 2, "ended", why="finished", exit=0, step=100, seconds_per_step=0.6, queries=2),
]


def test_a_handover() -> None:
    history = read_history(HANDOVER)
    first, second = history.generations
    assert (first.nodes, first.why, first.steps, first.save, first.wait) == (2, "expand", 40, 0.5, None)
    assert first.rates == ((None, 1.0, 40),)
    assert (second.nodes, second.why, second.steps) == (4, "finished", 60)
    assert (second.wait, second.launch, second.load, second.job) == (31.0, 1.5, 0.25, "8")
    assert history.waits == ((4, 31.0),)
    assert history.resizes == 1 and history.queries == 5 and history.last_control == 1
    assert history.finished and history.open_successor is None
    assert history.node_hours(now=1e9) == pytest.approx((2 * 45 + 4 * (42 + 6)) / 3600), "held from its job's start on"
    assert [(each.time, each.change, each.nodes, each.job) for each in history.changes()] == [
        (101, "add", 2, "7"), (146, "remove", 2, "7"), (148, "add", 4, "8"), (190, "remove", 4, "8"),
    ]  # fmt: skip


@pytest.mark.parametrize("length", range(len(HANDOVER)))
def test_any_beginning_of_a_ledger_can_be_read(length: int) -> None:
    history = read_history(HANDOVER[:length])
    assert len(history.generations) == sum(each["event"] == "launched" for each in HANDOVER[:length])
    history.changes()
    assert history.node_hours(now=1000) >= 0


@given(st.permutations(HANDOVER))
def test_clocks_that_differ_do_not_matter(shuffled: list[dict[str, Any]]) -> None:
    assert read_history(shuffled) == read_history(HANDOVER)


def test_a_successor_that_is_open_cancelled_or_reclaimed() -> None:
    assert read_history(HANDOVER[:6]).open_successor.job == "8"  # type: ignore[union-attr]
    gone = [*HANDOVER[:6], event(120, 1, "cancelled", token="b", job="8", reason="not wanted")]
    history = read_history(gone)
    assert history.open_successor is None
    assert (history.successors[0].end, history.successors[0].reason) == ("cancelled", "not wanted")
    back = [*HANDOVER[:11], event(200, 2, "reclaimed", token="b", reason="it is gone")]
    assert read_history(back).open_successor is None


def launched(number: int, nodes: int, token: str) -> dict[str, Any]:
    return event(100.0 * number, number, "launched", token=token, job=token, nodes=nodes)


def test_who_chose_the_size() -> None:
    asks = event(150, 1, "requested", id=1, action="resize", nodes=1, by="user ann")
    submitted = event(250, 2, "submitted", token="b", successor=3, job="8", nodes=[4, 4], by="policy queue")
    ledger = [launched(1, 2, "a"), asks, launched(2, 1, "a"), submitted]
    assert read_history(ledger[:2]).size_by == "", "asked for, and not yet there"
    assert read_history(ledger).size_by == "user ann"
    assert read_history([*ledger, launched(3, 4, "b")]).size_by == "policy queue"
    followed = event(260, 2, "resized", token="b", nodes=[8, 8], by="user ann")
    assert read_history([*ledger, followed, launched(3, 8, "b")]).size_by == "user ann"
    kept = event(350, 3, "submitted", token="c", successor=4, job="9", nodes=[8, 8], by="clock")
    assert read_history([*ledger, followed, launched(3, 8, "b"), kept, launched(4, 8, "c")]).size_by == "user ann"


def test_crashes_and_stops_are_counted() -> None:
    events = [
        event(1, 1, "launched", token="a", nodes=1),
        event(2, 1, "ended", why="crashed", exit=1),
        event(3, 2, "launched", token="b", nodes=1),
        event(4, 2, "stopping", by="SIGTERM"),
        event(5, 2, "ended", why="stopped", exit=0),
    ]
    history = read_history(events)
    assert history.crashes == 1 and history.stopping == {2} and not history.finished


def test_unknown_events_and_fields_are_passed_over() -> None:
    events = [*HANDOVER, event(5, 1, "invented", anything=[1]), {"event": "nonsense"}, {}]
    assert read_history(events).generations == read_history(HANDOVER).generations
    assert read_history([]) == History()


def test_torn_lines_are_passed_over_and_closed(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run", {"run": "r"})
    run.append(1, "created", run="r")
    with open(run.folder / "ledger" / "0001.jsonl", "a") as stream:
        stream.write('{"time": 1, "generation": 1, "event": "launch')
    run.append(1, "launched", token="a", nodes=1)
    run.append(2, "started", claimant="tok", token="tok")
    run.append(1, "decided", decision={})
    assert [each["event"] for each in run.events(skip=("decided",))] == ["created", "launched", "started"]
    assert [each["event"] for each in run.events(1)] == ["created", "launched", "decided"]


def test_a_killed_launcher_costs_no_node_hours_until_the_resume(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "r", {"run": "r"})
    assert run.take_lease(1, {"token": "a"})
    for each in HANDOVER[:3]:
        run.append(1, each["event"], **{key: each[key] for key in each if key not in ("generation", "event")})
    run.write_progress(Progress("r", 1, "a", "running", 160.0, step=33))
    books = Account(run, Console(), lambda: 100_000.0)
    books.open(2, "b")
    (lost,) = books.history.generations
    assert (lost.why, lost.end, lost.step, lost.steps) == ("lost", 160.0, 33, 33)
    assert books.history.node_hours(now=100_000) == pytest.approx(2 * 59 / 3600)
    books.open(3, "c")
    assert sum(each["event"] == "lost" for each in run.events()) == 1
    assert read_history([*HANDOVER, event(500, 3, "lost", lost=2, last=400, step=7)]) == read_history(HANDOVER)


def test_the_generation_that_runs_shows_the_step_it_has_come_to(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run", {"run": "r"})
    run.append(1, "launched", token="a", job=None, nodes=2)
    assert history_now(run).last.steps is None  # type: ignore[union-attr]
    run.append(1, "loaded", launch=1.0, load=0.1, step=40)
    run.write_progress(Progress("r", 1, "a", "running", 0.0, step=52, seconds_per_step=0.5))
    now = history_now(run).last
    assert now is not None and (now.steps, now.seconds_per_step, now.end) == (12, 0.5, None)
    run.write_progress(Progress("r", 1, "another", "running", 0.0, step=99))
    assert history_now(run).last.steps == 0  # type: ignore[union-attr]
    run.append(1, "ended", why="stopped", step=60, seconds_per_step=0.25)
    run.write_progress(Progress("r", 1, "a", "running", 0.0, step=52))
    assert history_now(run).last.steps == 20  # type: ignore[union-attr]
