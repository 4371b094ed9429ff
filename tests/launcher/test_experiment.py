"""``dmr experiment`` and ``dmr advise`` on this machine's cores."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dmr.launcher.cli.advise import blocks
from dmr.launcher.cli.dmr import group
from dmr.launcher.models import experiment as module
from dmr.launcher.models.experiment import Design, Experiment, Meter, Standstill
from dmr.launcher.models.store import ModelStore
from dmr.launcher.run.options import RunOptions
from dmr.launcher.run.rundir import Progress, RunDir
from dmr.resize.phases.knowledge import AtSize, Key, Occurrence, record_of
from dmr.resize.record import cluster_to_json, run_to_json
from dmr.resize.view import ClusterView, Rate, RunView

APP = Path(__file__).parent / "apps" / "three_phases.py"


def progress(step: int, phase: str | None = "solve", token: str = "t", rate: float = 0.5) -> Progress:
    return Progress("r", 1, token, "running", 0.0, step=step, phase=phase, seconds_per_step=rate)


def test_the_meter_counts_steps_by_phase_and_size() -> None:
    meter = Meter()
    for step in (0, 4, 10):
        meter.take(progress(step), 2)
    meter.take(progress(12, "write"), 2)  # belongs in part to the phase before
    meter.take(progress(15, "write", rate=2.0), 2)
    meter.take(progress(16, "write", "other"), 4)  # another generation
    meter.take(progress(17, "write", "other", rate=1.0), 4)
    found = {(each.phase, each.nodes): (each.seconds_per_step, each.steps) for each in meter.rates}
    assert found == {("solve", 2): (0.5, 10), ("write", 2): (2.0, 3), ("write", 4): (1.0, 1)}
    assert not meter.came_again
    meter.take(progress(20, "solve", "other"), 4)
    assert meter.came_again


def test_a_standstill_is_noticed_and_steps_that_were_wanted_are_none() -> None:
    found = Standstill(10)
    found.take([], 4, 0, 100.0)
    for second in range(40):
        found.take([Rate(4, 1.0, second, "solve")], 4, second, 100.0 + second)
    assert found.idle(130.0) == 0.0, "as long as it took before, and half a minute at least"
    assert found.idle(145.0) > 30.0, "only ten steps were wanted"
    found.take([Rate(4, 1.0, 10, "solve")], 2, 40, 150.0)
    assert found.idle(195.0) == 0.0 and found.idle(205.0) == 55.0
    assert not found.is_futile(100, 205.0) and found.is_futile(200, 205.0)


class Steps:
    """A run whose steps come by themselves, for an experiment that asks nothing of anybody."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **design: Any) -> None:
        self.now, self.nodes, self.step, self.said, self.asked = 0.0, 4, 0, [], []
        monkeypatch.setattr(module.Requests, "post", lambda _, action, **given: self.asked.append(given["nodes"]))
        wanted = Design((1, 2, 4), 5, 0.001, **design)
        self.made = Experiment(RunDir(tmp_path), [], wanted, self.said.append, clock=lambda: self.now)

    def second(self, phase: str) -> str | None:
        self.now, self.step = self.now + 1.0, self.step + 1
        report = progress(self.step, phase, f"t{self.nodes}", rate=1 / self.nodes)
        self.made.meter.take(report, self.nodes)
        why = self.made._decide(report, self.nodes)
        if self.asked:
            self.nodes = self.asked[-1]
        return why


def test_an_experiment_ends_when_nothing_more_is_to_be_learnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of one declared phase, which never comes again: there may be others, but not for ever."""
    steps = Steps(tmp_path, monkeypatch)
    ended = next(why for _ in range(200) if (why := steps.second("solve")) is not None)
    assert "known well enough at all sizes, and for" in ended and "no other came" in ended
    assert sorted({4, *steps.asked}) == [1, 2, 4] and steps.now < 90
    said = "\n".join(steps.said)
    assert "measuring 5 steps of solve on 4 nodes" in said and "0.5 s a step of solve on 2 nodes" in said
    assert "3 of 3 sizes measured" in said and len(steps.said) == len(set(steps.said)) < 12


def test_a_phase_that_does_not_come_again_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(tmp_path, monkeypatch)
    whys = [steps.second("mesh") for _ in range(3)] + [steps.second("solve") for _ in range(120)]
    ended = next(why for why in whys if why is not None)
    assert ended.startswith("mesh did not come again for")
    awaited = Steps(tmp_path, monkeypatch, phases=("solve", "write"))
    assert [awaited.second("solve") for _ in range(200)] == [None] * 200, "write was asked for, and has not come"


def test_node_hours_are_used_up_while_ranks_start(tmp_path: Path) -> None:
    """Nothing has been reported, by these ranks or by any."""
    run = RunDir.create(tmp_path / "run", asdict(RunOptions("r", ("a",), "/", (1, 2))))
    made = Experiment(run, [], Design((1, 2), node_hours=0.01), print)
    run.append(1, "launched", token="t", nodes=2, job=None)
    assert made._turn() is None
    used = Experiment(run, [], Design((1, 2), node_hours=1e-7), print)
    time.sleep(0.01)
    assert used._turn() == "the 1e-07 node-hours are used up"
    run.write_progress(Progress("r", 1, "t", "running", time.time(), step=10))
    run.append(1, "ended", why="shrink", exit=0, step=10, first_step=0, rates=[])
    run.append(2, "launched", token="u", nodes=1, job=None)
    assert made._turn() is None and used._turn() is not None


@pytest.mark.slow
def test_an_experiment_measures_and_teaches(bench: Any) -> None:
    done = bench.dmr(
        "experiment", "--nodes", "1:4:pow2", "--local-nodes", "4", "--steps", "4", "--node-hours", "0.1",
        "--phases", "solve", "--run-dir", "run", "--json", "--", sys.executable, str(APP), "0.4", "2000", "1", "1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["ended"] == "all phases are known well enough at all sizes"
    speeds = {each["nodes"]: each["seconds_per_step"] for each in found["speeds"] if each["phase"] == "solve"}
    assert speeds[1] == pytest.approx(0.4, rel=0.3) and speeds[4] == pytest.approx(0.1, rel=0.5)
    assert sum(each["measured"] for each in found["speeds"]) >= 2
    book, _ = ModelStore(bench.folder / "models").read()
    assert [key.program for key in book.entries] == ["three_phases.py"]


def test_one_size_is_no_experiment() -> None:
    found = CliRunner().invoke(group, ["experiment", "--nodes", "4", "--", "true"], prog_name="dmr")
    assert found.exit_code != 0 and "tells nothing" in found.stderr


@pytest.fixture
def advised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """A run on 8 nodes in its first phase, of a program that two sizes of are known."""
    monkeypatch.setenv("DMR_MODEL_DIR", str(tmp_path / "models"))
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "cluster")
    order = [Occurrence("mesh", 0, 100), Occurrence("solve", 100, 1000), Occurrence("write", 1000, 1100)]
    serial = {"mesh": 0.2, "solve": 0.002, "write": 0.9}
    sizes = {name: [AtSize(size, s + (1 - s) / size, 100) for size in (4, 8, 16)] for name, s in serial.items()}
    ModelStore.default().add(Key("app.py", "", "cluster"), record_of("a@1", time.time(), sizes, order, steps=1100))
    options = RunOptions("r", ("python", "app.py"), "/", (1, 2, 4, 8, 16))
    run = RunDir.create(tmp_path / "run", options.to_json())
    run.append(1, "launched", token="t", nodes=8, job="7")
    run.append(1, "loaded", launch=2.0, load=None, step=0)
    view = RunView(time.time(), "r", 1, 8, options.sizes, time.time(), job="7")
    cluster = ClusterView(time.time(), 32, 24)
    seen = {"run": run_to_json(view), "cluster": cluster_to_json(cluster)}
    run.append(1, "decided", step=0, decision={"action": "stay"}, **seen)
    run.write_progress(Progress("r", 1, "t", "running", time.time(), step=10, steps=1100, phase="mesh"))
    return run


def test_advice_for_a_run_that_is_alive(advised: RunDir) -> None:
    found = CliRunner().invoke(group, ["advise", str(advised.folder), "--json"], prog_name="dmr")
    assert found.exit_code == 0, found.output
    data = json.loads(found.output)
    assert (data["step"], data["phase"], data["nodes"]) == (10, "mesh", 8)
    assert [each["phase"] for each in data["schedule"]] == ["mesh", "solve", "write"]
    mesh, solve, write = data["schedule"]
    assert solve["nodes"] == 16 and write["nodes"] < 8
    assert solve["ask_in"] == pytest.approx(max(0.0, solve["begins_in"] - solve["lead"]))
    assert solve["begins_in"] > 10 and write["begins_in"] > solve["begins_in"] and mesh["known"] == [4, 8, 16]
    text = CliRunner().invoke(group, ["advise", str(advised.folder)], prog_name="dmr").output
    assert "BEGINS IN" in text and "in phase mesh on 8 nodes" in text


def test_advice_for_a_run_that_has_finished(advised: RunDir) -> None:
    advised.append(1, "ended", why="finished", exit=0, step=1100, first_step=0, rates=[])
    data = json.loads(CliRunner().invoke(group, ["advise", str(advised.folder), "--json"], prog_name="dmr").output)
    assert data["state"] == "finished" and data["advice"]


def test_advice_for_a_run_that_was_stopped(advised: RunDir) -> None:
    """It is not told to stay: there is nobody who would."""
    advised.append(1, "ended", why="stopped", exit=0, step=40, first_step=0, rates=[])
    found = CliRunner().invoke(group, ["advise", str(advised.folder)], prog_name="dmr").output
    assert found.startswith("r was stopped; for the next run:") and "now:" not in found and "ASK IN" not in found
    data = json.loads(CliRunner().invoke(group, ["advise", str(advised.folder), "--json"], prog_name="dmr").output)
    assert data["state"] == "stopped" and "decision" not in data


def test_phases_that_come_in_turn_are_told_once() -> None:
    assert list(blocks(list("abababc"))) == [(0, 2, 3), (6, 1, 1)]
    assert list(blocks(list("cababab"))) == [(0, 1, 1), (1, 2, 3)]
    assert list(blocks(list("aaa"))) == [(0, 1, 3)] and list(blocks([])) == []
    assert list(blocks(list("abcd"))) == [(0, 1, 1), (1, 1, 1), (2, 1, 1), (3, 1, 1)]
    assert list(blocks(list("aabaab" * 5))) == [(0, 3, 10)]


def test_a_schedule_of_many_turns_is_short(advised: RunDir) -> None:
    """Two phases of 12 and 18 steps in turn, thirty times: a row or two each, and how often they come again."""
    order = [
        Occurrence(name, start + first, start + last)
        for start in range(0, 900, 30) for name, first, last in (("mesh", 0, 12), ("solve", 12, 30))
    ]  # fmt: skip
    serial = {"mesh": 0.2, "solve": 0.002}
    sizes = {name: [AtSize(size, s + (1 - s) / size, 100) for size in (4, 8, 16)] for name, s in serial.items()}
    ModelStore.default().forget([Key("app.py", "", "cluster")])
    ModelStore.default().add(Key("app.py", "", "cluster"), record_of("b@1", time.time(), sizes, order, steps=900))
    text = CliRunner().invoke(group, ["advise", str(advised.folder)], prog_name="dmr").output
    rows = [line for line in text.splitlines() if line.startswith(("mesh", "solve"))]
    assert len(rows) <= 5 and ", until step 900" in text, text
    data = json.loads(CliRunner().invoke(group, ["advise", str(advised.folder), "--json"], prog_name="dmr").output)
    assert len(data["schedule"]) > 50, "scripts get all"


def test_no_advice_before_a_decision(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run", asdict(RunOptions("r", ("a",), "/", (1, 2))))
    found = CliRunner().invoke(group, ["advise", str(run.folder)], prog_name="dmr")
    assert found.exit_code != 0 and "no decision yet" in str(found.exception)
