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

from dmr.launcher.cli.dmr import group
from dmr.launcher.models.experiment import Meter
from dmr.launcher.models.store import ModelStore
from dmr.launcher.run.options import RunOptions
from dmr.launcher.run.rundir import Progress, RunDir
from dmr.resize.phases.knowledge import AtSize, Key, Occurrence, record_of
from dmr.resize.record import cluster_to_json, run_to_json
from dmr.resize.view import ClusterView, RunView

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


def test_no_advice_before_a_decision(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run", asdict(RunOptions("r", ("a",), "/", (1, 2))))
    found = CliRunner().invoke(group, ["advise", str(run.folder)], prog_name="dmr")
    assert found.exit_code != 0 and "no decision yet" in str(found.exception)
