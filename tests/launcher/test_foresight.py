"""What is known from before, for the decisions about a run; and learning from one that has ended."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dmr.launcher.models.foresight import Foresight
from dmr.launcher.models.learning import LEAST, learn_apart
from dmr.launcher.models.store import ModelStore
from dmr.launcher.run.history import read_history
from dmr.launcher.run.options import RunOptions
from dmr.launcher.run.rundir import RunDir
from dmr.resize.phases.knowledge import AtSize, Key, Occurrence, record_of
from dmr.resize.view import Rate, RunView

sys.path.insert(0, str(Path(__file__).parent / "timeline"))

ENVIRON = {"SLURM_CLUSTER_NAME": "cluster"}
KEY = Key("app.py", "--size 9", "cluster")
ORDER = [Occurrence("mesh", 0, 50), Occurrence("solve", 50, 150), Occurrence("write", 150, 160)]
SIZES = {"mesh": [AtSize(4, 0.5, 50)], "solve": [AtSize(4, 1.0, 100), AtSize(8, 0.5, 100)]}


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    made = ModelStore(tmp_path / "models")
    made.add(KEY, record_of("a@1", 1.8e9, SIZES, ORDER, steps=160, waits=[(8, 60.0)]))
    return made


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir.create(tmp_path / "run", {"run": "r"})


OPTIONS = RunOptions("r", ("python", "app.py", "--size", "9"), "/", (4, 8))
VIEW = RunView(1.9e9, "r", 1, 4, (4, 8), 1.9e9, step=10, steps=160, phase="mesh")


def test_a_view_is_completed_with_what_earlier_runs_taught(run: RunDir, store: ModelStore) -> None:
    run.append(1, "launched", token="t", nodes=4)
    history = read_history(run.events())
    found = Foresight(run, OPTIONS, store=store, environ=ENVIRON).completed(VIEW, history)
    assert [(each.phase, each.start, each.end) for each in found.ahead] == [
        ("mesh", 0, 50), ("solve", 50, 150), ("write", 150, 160)
    ]  # fmt: skip
    assert {each.phase for each in found.earlier} == {"mesh", "solve"} and found.waits == ((8, 60.0),)
    assert found.first_nodes == 4 and found.started == history.generations[0].start and found.caveats == ()


def test_the_phase_that_nobody_declared_is_the_one_of_earlier_runs(run: RunDir, store: ModelStore) -> None:
    foresight = Foresight(run, OPTIONS, store=store, environ=ENVIRON)
    found = foresight.completed(replace(VIEW, phase=None, step=70), read_history(()))
    assert found.phase == "solve"


def test_another_input_or_machine_is_said(run: RunDir, store: ModelStore) -> None:
    other = replace(OPTIONS, command=("python", "app.py", "--size", "10"))
    found = Foresight(run, other, store=store, environ={"SLURM_CLUSTER_NAME": "other"})
    words = " ".join(found.caveats)
    assert "another machine (cluster)" in words and "another input (--size 9)" in words
    named = Foresight(run, replace(other, input_class="--size 9"), store=store, environ=ENVIRON)
    assert named.caveats == ()


def test_steps_of_another_input_say_nothing_of_this_ones_speed(run: RunDir, store: ModelStore) -> None:
    other = replace(OPTIONS, command=("python", "app.py", "--size", "10"))
    found = Foresight(run, other, store=store, environ=ENVIRON).completed(VIEW, read_history(()))
    assert found.earlier == () and found.waits == ((8, 60.0),)


def test_another_machine_is_as_much_faster_as_it_was_at_a_size_of_both(run: RunDir, store: ModelStore) -> None:
    foresight = Foresight(run, OPTIONS, store=store, environ={"SLURM_CLUSTER_NAME": "other"})
    assert foresight.completed(VIEW, read_history(())).earlier == ()
    view = replace(VIEW, rates=(Rate(4, 0.25, 20, "solve"), Rate(2, 9.0, 20, "solve")))
    found = foresight.completed(view, read_history(())).earlier
    assert {(each.phase, each.nodes, each.seconds_per_step) for each in found} == {
        ("mesh", 4, 0.125), ("solve", 4, 0.25), ("solve", 8, 0.125)
    }  # fmt: skip


def test_an_unknown_program_has_no_foresight(run: RunDir, store: ModelStore) -> None:
    found = Foresight(run, replace(OPTIONS, command=("other",)), store=store, environ=ENVIRON)
    assert found.completed(VIEW, read_history(())).ahead == ()


def test_what_this_run_does_in_turn_is_foreseen_without_any_model(run: RunDir, store: ModelStore) -> None:
    for step, phase in enumerate(("mesh", "solve", "mesh", "solve", "mesh")):
        run.append(1, "phase", by_app=True, phase=phase, step=10 * step)
    found = Foresight(run, replace(OPTIONS, command=("other",)), store=store, environ=ENVIRON)
    ahead = found.completed(replace(VIEW, step=42, steps=75), read_history(())).ahead
    assert [(each.phase, each.start, each.end) for each in ahead] == [
        ("mesh", 40, 50), ("solve", 50, 60), ("mesh", 60, 70), ("solve", 70, 75)
    ]  # fmt: skip


def test_a_run_that_has_ended_is_learnt_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from made_run import three_phases

    monkeypatch.setenv("DMR_MODEL_DIR", str(tmp_path / "models"))
    made = three_phases(tmp_path / "run")
    assert made.clock - 1.8e9 > LEAST
    assert learn_apart(made.write()) is None
    (entry,) = ModelStore.default().read()[0].entries.values()
    assert entry.sizes("solve") == (4, 8)


def test_a_run_that_goes_on_or_was_a_trial_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from made_run import MadeRun

    monkeypatch.setenv("DMR_MODEL_DIR", str(tmp_path / "models"))
    made = MadeRun(tmp_path / "run")
    made.launch(4)
    made.compute("solve", 10)
    assert learn_apart(made.write()) is None
    made.end()
    assert learn_apart(made.write()) is None
    assert ModelStore.default().read()[0].entries == {}


def test_what_goes_wrong_is_told_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from made_run import three_phases

    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DMR_MODEL_DIR", str(tmp_path / "file"))
    problem = learn_apart(three_phases(tmp_path / "run").write())
    assert problem is not None and "DMR_MODEL_DIR" in problem
