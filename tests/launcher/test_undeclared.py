"""Programs that declare no phases: they are recognised while they run, and the policy acts on it."""

from __future__ import annotations

import dataclasses
import math
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from dmr.launcher.cli.dmr import group
from dmr.launcher.models.foresight import Foresight
from dmr.launcher.models.live import LiveSignals
from dmr.launcher.models.recognition import SILENCE, Recognition
from dmr.launcher.models.store import ModelStore
from dmr.launcher.run.history import read_history
from dmr.launcher.run.options import RunOptions
from dmr.launcher.run.rundir import LauncherState, Progress, RunDir
from dmr.launcher.supervise.application import Application
from dmr.launcher.telemetry.layout import Header, Pyramid
from dmr.resize.decide import decide
from dmr.resize.phases.knowledge import AtSize, Key, Occurrence, record_of
from dmr.resize.phases.looks import Look
from dmr.resize.phases.online import SURE, Recognised
from dmr.resize.policies.phases import Phases
from dmr.resize.record import cluster_to_json, run_from_json, run_to_json
from dmr.resize.situation import Rules
from dmr.resize.view import ClusterView, RunView

APP = Path(__file__).parent / "apps" / "undeclared.py"
COLUMNS = ("cpu", "busiest", "memory", "write", "cpus", "seconds_per_step")
LEVELS = {"phase 1": (3.6, 0.95, 2e9, 0.0, 4.0, 0.5), "phase 2": (0.4, 0.1, 2e9, 5e6, 4.0, 2.0)}
LOOKS = [
    Look("phase 1", 2, {"cpu": 0.9, "busiest": 0.95, "write": 0.0, "seconds_per_step": math.log10(0.5)},
         {"cpu": 0.02, "busiest": 0.02, "write": 0.0, "seconds_per_step": 0.01}, 100),
    Look("phase 2", 2, {"cpu": 0.1, "busiest": 0.1, "write": 1.9, "seconds_per_step": math.log10(2.0)},
         {"cpu": 0.02, "busiest": 0.02, "write": 0.1, "seconds_per_step": 0.01}, 100),
]  # fmt: skip
START = 1.8e9


class Nodes:
    """Samplers of two nodes, whose time goes by as it is told to."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.files = [Pyramid(folder, Header(1, f"n{number}", COLUMNS, facts={"period": 1.0})) for number in (1, 2)]
        self.now, self._random = START, random.Random(1)

    def second(self, phase: str | None) -> None:
        self.now += 1.0
        for file in self.files:
            values = LEVELS[phase] if phase is not None else (2.0, 0.5, 2e9, 5e3, 4.0, 1.0)
            file.append(self.now, [value * self._random.gauss(1.0, 0.01) for value in values[:-2]] + [*values[-2:]])


def test_phases_are_recognised_from_the_files_of_the_samplers(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    found = Recognition(tmp_path, 1, 2, LOOKS, START)
    said: list[tuple[float, str | None]] = []
    for second in range(100):
        nodes.second("phase 1" if second < 40 else "phase 2" if second < 70 else None)
        if found.turn(nodes.now, 10 * second, running=True):
            state = found.state(nodes.now)
            assert state is not None and state.confirmed
            said.append((nodes.now - START, state.phase))
    assert [phase for _, phase in said] == ["phase 1", "phase 2", None]
    assert 5 <= said[0][0] <= 8 and 41 <= said[1][0] <= 47 and 71 <= said[2][0] <= 84
    # What was done at which time is told for the time before it was known.
    assert found.at(START + 2) == "phase 1" and found.at(START + 39) == "phase 1"
    assert found.at(START + 42) == "phase 2" and found.at(START + 90) is None
    assert found.state(nodes.now + SILENCE + 1) is None, "where no samples come nothing is told"


def test_what_was_done_before_anything_was_known_counts_for_no_phase(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    found = Recognition(tmp_path, 1, 2, LOOKS, START)
    for second in range(30):
        nodes.second(None if second < 8 else "phase 2")
        found.turn(nodes.now, second, running=True)
    assert found.at(START + 4) is None and found.at(START + 20) == "phase 2"


def test_what_a_program_does_while_it_saves_is_no_phase(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    found = Recognition(tmp_path, 1, 2, LOOKS, START, before="phase 1")
    for second in range(30):
        nodes.second("phase 2")
        assert not found.turn(nodes.now, second, running=False)
    state = found.state(nodes.now)
    assert state is not None and (state.phase, state.confirmed, state.sure) == ("phase 1", False, False)


def test_clocks_that_differ_broken_files_and_late_nodes_are_nothing(tmp_path: Path) -> None:
    ahead = Pyramid(tmp_path, Header(1, "n1", COLUMNS, facts={"clock_ahead": 100.0}))
    (tmp_path / "0001.n3.tele").write_bytes(b"{}\n")
    live = LiveSignals(tmp_path, 1, 3)
    ahead.append(START + 100, LEVELS["phase 1"])
    assert live.new(START) == [(START, pytest.approx(
        {"cpu": 0.9, "busiest": 0.95, "memory": 2e9, "write": 0.0, "seconds_per_step": math.log10(0.5)}
    ))]  # fmt: skip
    assert live.new(START + 0.5) == [], "asked again too soon"
    late = Pyramid(tmp_path, Header(1, "n2", COLUMNS))
    late.append(START + 10, LEVELS["phase 2"])
    with open(tmp_path / "0001.n2.tele", "ab") as stream:
        stream.write(b"half a record")
    ((time, sample),) = live.new(START + 10)
    assert time == START + 10 and sample["cpu"] == pytest.approx(0.1)
    assert live.new(START + 12) == []


def test_a_network_that_several_nodes_share_tells_nothing_of_the_program(tmp_path: Path) -> None:
    for host, expected in (("n{}", True), ("shared", False)):
        folder = tmp_path / host
        folder.mkdir()
        for number in (1, 2):
            header = Header(1, f"n{number}", ("cpu", "cpus", "received"), facts={"host": host.format(number)})
            Pyramid(folder, header).append(START, (1.0, 2.0, 65536.0 * 9))
        ((_, sample),) = LiveSignals(folder, 1, 2).new(START)
        assert sample == ({"cpu": 0.5, "received": 1.0} if expected else {"cpu": 0.5})


def test_steps_count_for_the_phase_that_was_recognised_at_their_time(tmp_path: Path) -> None:
    run, now = RunDir.create(tmp_path / "run", {"run": "r"}), [0.0]
    app = Application(run, 1, "t", 2, None, grace=1.0, next_id=lambda: 1, clock=lambda: now[0])  # type: ignore[arg-type]
    app.phase_at = lambda time: "a" if time < 50 else "b"
    for second in range(0, 101, 5):
        now[0] = float(second)
        app._take(Progress("r", 1, "t", "running", now[0], step=second, seconds_per_step=1.0 if second < 50 else 3.0))
    assert app.rates() == [("a", 1.0, 45), ("b", 3.0, 55)]
    assert app.seconds_per_step == pytest.approx((45 + 165) / 100)
    app.phase_at = lambda time: None  # what is older than that is settled
    assert {phase: steps for phase, _, steps in app.rates()} == {"a": 45, "b": 40, None: 15}


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    look = {each.phase: {name: (mean, each.spread[name]) for name, mean in each.mean.items()} for each in LOOKS}
    sizes = {
        "phase 1": [AtSize(2, 0.5, 100, look=look["phase 1"], seen=50), AtSize(4, 0.26, 100)],
        "phase 2": [AtSize(2, 2.0, 50, look=look["phase 2"], seen=100), AtSize(4, 1.95, 50)],
    }
    order = [Occurrence("phase 1", 0, 100), Occurrence("phase 2", 100, 150)]
    made = ModelStore(tmp_path / "models")
    made.add(Key("app.py", "", "cluster"), record_of("a@1", START, sizes, order, steps=150))
    return made


OPTIONS = RunOptions("r", ("python", "app.py"), "/", (1, 2, 4))
VIEW = RunView(START, "r", 1, 2, (1, 2, 4), START, step=20, steps=150)


def test_the_policy_acts_on_what_was_recognised_and_asks_as_queue_when_it_is_not(
    tmp_path: Path, store: ModelStore
) -> None:
    run = RunDir.create(tmp_path / "run", OPTIONS.to_json())
    foresight = Foresight(run, OPTIONS, store=store, environ={"SLURM_CLUSTER_NAME": "cluster"}, clock=lambda: START)
    assert {each.phase for each in foresight.looks()} == {"phase 1", "phase 2"}
    history, cluster, policy = read_history(()), ClusterView(START, 8, 2), Phases(rules=Rules(dwell=0.0))

    def asked(recognised: Recognised | None) -> tuple[RunView, Any]:
        view = foresight.completed(VIEW, history, recognised)
        return view, decide(view, cluster, policy)

    view, decision = asked(Recognised("phase 1", 0.3, START))
    assert view.phase == "phase 1" and decision.action == "stay" and "not sure yet" in decision.reason
    view, decision = asked(Recognised(None, 0.0))  # too early: as earlier runs were at this step, but nothing is done
    assert view.phase == "phase 1" and view.phase_confidence == 0 and decision.action == "stay"
    foresight.note("phase 2", 15)
    view, decision = asked(Recognised("phase 2", 0.99, START, True))  # earlier than in earlier runs
    assert (view.phase, view.ahead[0].phase, view.ahead[0].start) == ("phase 2", "phase 2", 15)
    assert decision.nodes == 2 and decision.facts["phase"] == "phase 2" and decision.facts["phase_confidence"] == 0.99
    assert run_from_json(run_to_json(view)) == view
    view, decision = asked(Recognised(None, 0.0, START, True))
    assert view.phase is None and view.ahead == ()
    assert "none of its known phases: as the policy queue" in decision.reason
    view, decision = asked(None)  # nobody looks: as earlier runs were
    assert view.phase == "phase 1" and view.phase_confidence is None


def test_the_commands_tell_the_phase_and_how_sure_it_is(
    tmp_path: Path, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    from click.testing import CliRunner

    monkeypatch.setenv("DMR_MODEL_DIR", str(store.folder))
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "cluster")
    run = RunDir.create(tmp_path / "run", OPTIONS.to_json())
    assert run.take_lease(1, {"token": "t", "host": "elsewhere", "pid": 1, "time": time.time()})
    run.append(1, "launched", token="t", nodes=2)
    run.append(1, "loaded", launch=2.0, load=None, step=0)
    seen = dataclasses.replace(VIEW, time=time.time(), since=time.time(), phase="phase 1", phase_confidence=0.1)
    run.append(1, "decided", step=0, decision={"action": "stay"}, run=run_to_json(seen),
               cluster=cluster_to_json(ClusterView(time.time(), 8, 4)))  # fmt: skip
    run.append(1, "recognised", phase="phase 2", confidence=0.97, step=15)
    run.write_progress(Progress("r", 1, "t", "running", time.time(), step=20, steps=150))

    def told(*arguments: str) -> str:
        found = CliRunner().invoke(group, list(arguments), prog_name="dmr")
        assert found.exit_code == 0, found.output
        return found.output

    def launcher(phase: str | None, confidence: float | None) -> None:
        run.write_launcher(LauncherState(1, time.time(), nodes=2, phase=phase, phase_confidence=confidence))

    launcher("phase 2", 0.97)
    assert "in phase 2 (recognised, 97% sure) on 2 nodes" in told("advise", str(run.folder))
    assert "phase 2 (97% sure)" in told("top", "--once", str(run.folder))
    assert "phase 2 (97% sure)" in told("status", str(run.folder))
    launcher(None, 0.0)
    assert "in none of its known phases on 2 nodes" in told("advise", str(run.folder))
    assert "like none known" in told("top", "--once", str(run.folder))
    launcher(None, None)
    assert "perhaps in phase" in told("advise", str(run.folder))


@pytest.mark.slow
def test_the_second_run_of_a_program_that_declares_nothing_asks_by_itself(bench: Any) -> None:
    """First static, on two nodes; in the second the phase that does not scale is tried on one."""
    pytest.importorskip("psutil")
    pytest.importorskip("ruptures")
    work = (sys.executable, str(APP), "0.8", "18", "36")

    def run_once(name: str, policy: str) -> Any:
        bench.run = RunDir(bench.folder / name)
        process = bench.start(
            "dmr-launch", "--engine", "local", "--local-nodes", "2", "--nodes", "1:2", "--start", "2",
            "--query-interval", "1", "--dwell", "1", "--policy", policy, "--run-dir", name, "--", *work,
        )  # fmt: skip
        out = bench.end(process)
        assert process.returncode == 0, out
        return bench.history

    first = run_once("first", "static")
    assert [each.nodes for each in first.generations] == [2] and bench.events("recognised") == []
    (entry,) = ModelStore(bench.folder / "models").read()[0].entries.values()
    assert entry.phases == ("phase 1", "phase 2") and len(entry.looks(0.0)) == 2

    second = run_once("second", "phases")
    assert [each.nodes for each in second.generations] == [2, 1]
    assert second.changes()[0].nodes == 2 and second.generations[0].why == "shrink"
    said = [(each["phase"], each["confidence"] >= SURE) for each in bench.events("recognised")]
    assert said == [("phase 1", True), ("phase 2", True), ("phase 2", True)], said
    assert abs(bench.events("recognised")[1]["step"] - 18) <= 8
    wanted = [each["decision"] for each in bench.events("decided") if each["decision"]["action"] == "shrink"]
    assert wanted[0]["facts"]["phase"] == "phase 2" and wanted[0]["facts"]["phase_confidence"] >= SURE
    assert {phase for phase, _, _ in second.generations[0].rates} == {"phase 1", "phase 2"}
    (entry,) = ModelStore(bench.folder / "models").read()[0].entries.values()
    assert entry.phases == ("phase 1", "phase 2") and entry.sizes("phase 2") == (1, 2)
    assert "phase 2" in bench.dmr("explain", "second").stdout
