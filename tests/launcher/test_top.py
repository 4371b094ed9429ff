"""dmr top, the register of runs, and shell completion."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from dmr.launcher.cli import format_remaining
from dmr.launcher.run.history import GenerationRecord
from dmr.launcher.run.identity import identity
from dmr.launcher.run.options import RunOptions
from dmr.launcher.run.registry import all_runs, register, registered, registry_folder
from dmr.launcher.run.rundir import Progress, RunDir, RunDirError
from dmr.launcher.run.status import read_status
from dmr.launcher.run.undecided import why_undecided
from dmr.launcher.run.watching import BARS, bars, decision_line, last_decision

BIN = Path(sys.executable).parent


def record(number: int, nodes: int, start: float, end: float | None) -> GenerationRecord:
    return GenerationRecord(number, "t", nodes, start, end=end)


def test_bars() -> None:
    held = [record(1, 2, 0, 10), record(2, 8, 10, 20), record(3, 4, 30, None)]
    assert bars(held, 40, 8) == "▂▂██  ▄▄"
    assert bars([], 40, 8) == ""
    assert bars([record(1, 1, 5, None)], 5, 3) == "███"
    assert set(bars(held, 40, 100)) <= {*BARS, " "}


def test_a_decision_in_a_sentence(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run", {"run": "r"})
    assert last_decision(run, 1) is None and decision_line(None, 60, 0) == ""
    for idle in (3, 5):
        facts = {"idle": idle, "total": 16, "waiting": 1, "cost_basis": "measured"}
        run.append(1, "decided", decision={"action": "expand", "nodes": 8, "reason": "it pays", "facts": facts})
    run.append(1, "requested", id=1)
    event = last_decision(run, 1)
    assert event is not None
    line = decision_line(event, 60, event["time"] + 20)
    assert line == "expand (8 nodes) 20 s ago: it pays [idle 5, total 16, waiting 1]; next look in 40 s"


def test_the_register_of_runs(tmp_path: Path) -> None:
    environ = {"DMR_STATE_DIR": str(tmp_path / "state")}
    runs = [RunDir.create(tmp_path / name / "run", {"run": name}) for name in ("a", "b")]
    for run in runs:
        register(run, environ)
        register(run, environ)
    assert {run.folder for run in registered(environ)} == {run.folder for run in runs}
    (runs[0].folder / "run.json").unlink()
    register(runs[1], environ)
    assert [run.folder for run in registered(environ)] == [runs[1].folder]
    assert len(list(registry_folder(environ).iterdir())) == 1


@pytest.mark.parametrize("home", ["file", "missing/deep"])
def test_a_home_that_can_not_be_written_is_no_trouble(tmp_path: Path, home: str) -> None:
    (tmp_path / "file").write_text("")
    environ = {"DMR_STATE_DIR": str(tmp_path / home)}
    run = RunDir.create(tmp_path / "run", {"run": "r"})
    register(run, environ)
    assert len(registered(environ)) == (home != "file")


def test_each_run_is_shown_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMR_STATE_DIR", str(tmp_path / "state"))
    here = RunDir.create(tmp_path / "dmr-runs" / "x", {"run": "x"})
    elsewhere = RunDir.create(tmp_path / "other", {"run": "y"})
    register(here)
    register(elsewhere)
    assert [run.folder.name for run in all_runs(tmp_path / "dmr-runs")] == ["x", "other"]


def test_what_ended_does_not_crowd_out_what_lives(tmp_path: Path) -> None:
    env = {**os.environ, "DMR_STATE_DIR": str(tmp_path / "state")}
    for number in range(9):
        run = RunDir.create(tmp_path / "dmr-runs" / f"r{number}", {"run": f"r{number}"})
        run.append(1, "launched", token="a", nodes=1)
        run.append(1, "ended", why="finished", exit=0)
        assert run.take_lease(1, {"token": "a"})
    RunDir.create(tmp_path / "dmr-runs" / "z", {"run": "z"})

    def top(*words: str) -> list[str]:
        command = [str(BIN / "dmr"), "top", "--once", *words]
        done = subprocess.run(command, cwd=tmp_path, env=env, text=True, capture_output=True, timeout=30)
        return done.stdout.splitlines()

    shown = top()
    assert shown[1].split()[:2] == ["z", "starting"] and [line.split()[0] for line in shown[2:7]] == [
        f"r{number}" for number in (8, 7, 6, 5, 4)
    ]
    assert shown[7:] == ["4 runs more ended before (--all)"] and len(top("--all")) == 11


def test_status_finds_runs_that_lie_elsewhere(tmp_path: Path) -> None:
    env = {**os.environ, "DMR_STATE_DIR": str(tmp_path / "state")}

    def dmr(*words: str, folder: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        command = [str(BIN / "dmr"), *words]
        return subprocess.run(command, cwd=folder, env=env, text=True, capture_output=True, timeout=30)

    rod, far = RunDir.create(tmp_path / "rod", {"run": "rod"}), RunDir.create(tmp_path / "a" / "far", {"run": "far"})
    for run in (rod, far):
        register(run, env)
    far.append(1, "launched", token="a", nodes=1)
    far.append(1, "ended", why="finished", exit=0)
    assert far.take_lease(1, {"token": "a"})
    assert [line.split()[0] for line in dmr("status").stdout.splitlines()[1:]] == ["rod", "a/far"]
    (tmp_path / "b").mkdir()
    shown = dmr("status", folder=tmp_path / "b").stdout.splitlines()
    assert [line.split()[:2] for line in shown[1:]] == [[str(rod.folder), "starting"]], "live ones are"
    assert f"there is {rod.folder}" in dmr("status", "rod", folder=tmp_path / "b").stderr


def test_the_checkpoint_that_a_run_goes_on_from(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run", {"run": "run"})
    assert read_status(run).checkpoint is None
    for name in ("step-000000000007-g0001.h5", "step-000000000005-g0002.h5", "step-000000000009-g0002.h5", "other.h5"):
        (run.checkpoints / name).write_bytes(b"12")
    (run.checkpoints / "step-000000000009-g0002.h5.bad").touch()
    found = read_status(run)
    assert found.checkpoint == "step-000000000005-g0002.h5" and found.checkpoint_bytes == 2


def test_what_is_left_is_told_by_the_mean_speed_and_from_few_steps_said_to_be(tmp_path: Path) -> None:
    """The last report is of one step of a slow phase, or of the first one, in which all is read and compiled."""
    run, now = RunDir.create(tmp_path / "run", {"run": "run"}), time.time()
    assert run.take_lease(1, {"token": "a", "time": now, **identity()})
    run.append(1, "launched", token="a", nodes=1)
    run.append(1, "loaded", launch=0.0, load=None, step=100)
    begun = read_status(run).updated or now

    def left(step: int, passed: float) -> tuple[float | None, str, str]:
        run.write_progress(
            Progress("run", 1, "a", "running", begun + passed, step=step, steps=1000, seconds_per_step=20.0)
        )
        found = read_status(run)
        words = [format_remaining(found.remaining, found.remaining_steps, short=each) for each in (False, True)]
        return found.remaining, *words

    assert left(102, 40.0) == (20.0 * 898, "4:59:20 (from 2 steps yet)", "4:59:20?")
    assert left(101, 40.0)[1].endswith("(from 1 step yet)")
    seconds, words, short = left(200, 100.0)
    assert seconds == pytest.approx(800, rel=0.02) and words == short and "yet" not in words


def test_a_file_is_no_run_directory(tmp_path: Path) -> None:
    script = tmp_path / "first.py"
    script.touch()
    with pytest.raises(RunDirError, match="first.py is a file"):
        RunDir.create(script, {"run": "x"})
    command = [str(BIN / "dmr-launch"), "--run-dir", str(script), "--", "true"]
    done = subprocess.run(command, text=True, capture_output=True, timeout=30)
    assert done.returncode == 2 and "first.py' is a file" in done.stderr


def test_when_the_first_decision_comes(tmp_path: Path) -> None:
    one = RunDir.create(tmp_path / "one", asdict(RunOptions("one", ("a",), "/", (2,))))
    more = RunDir.create(tmp_path / "more", asdict(RunOptions("more", ("a",), "/", (1, 2))))
    assert "one size only" in why_undecided(one)
    assert why_undecided(more).endswith("comes with the program's first steps, when this machine is looked at")
    assert more.take_lease(1, {"token": "a", "time": time.time(), **identity()})
    more.write_progress(Progress("more", 1, "a", "running", time.time()))
    assert "as soon as there is an answer: this machine is looked at every 60 s" in why_undecided(more)
    more.append(1, "launched", token="a", nodes=1)
    more.append(1, "ended", why="failed", exit=1)
    assert "it ended before" in why_undecided(more)


def test_top_of_a_live_run(bench: Any) -> None:
    process = bench.launch(400, options=("--nodes", "1:2", "--start", "1", "--dwell", "1h"))
    bench.wait(lambda: bench.events("decided"), "a decision")
    text = bench.dmr("top", "run").stdout
    head, line, decision = text.splitlines()
    assert head.startswith("RUN") and "SIZE OVER TIME" in head
    assert line.startswith("run") and "running" in line and "█" in line
    assert "stay (1 node)" in decision and "next look in" in decision
    (found,) = json.loads(bench.dmr("top", "run", "--json").stdout)
    assert found["status"]["state"] == "running" and found["status"]["nodes"] == 1
    assert "run" in bench.dmr("top").stdout  # found by the register: it is not below dmr-runs
    shown = on_terminal([str(BIN / "dmr"), "top", "run", "--interval", "0.2"], bench, seconds=3)
    assert "dmr top" in shown and "running" in shown and "Traceback" not in shown
    bench.dmr("stop", "run", "--now", "--wait")
    bench.end(process)


def on_terminal(argv: list[str], bench: Any, seconds: float) -> str:
    """Run a command on a terminal for a while, then press Ctrl-C; returns what it drew."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(bench.folder)
        os.execve(argv[0], argv, {**bench.environment(), "TERM": "xterm-256color", "COLUMNS": "160", "LINES": "40"})
    shown, until = b"", time.monotonic() + seconds
    while time.monotonic() < until:
        if select.select([terminal], [], [], 0.1)[0]:
            shown += os.read(terminal, 65536)
    os.write(terminal, b"\x03")
    limit = time.monotonic() + 10
    while time.monotonic() < limit:
        try:
            if select.select([terminal], [], [], 0.1)[0]:
                shown += os.read(terminal, 65536)
        except OSError:
            break
    else:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return shown.decode(errors="replace")


@pytest.mark.parametrize(
    ("program", "words", "expected"),
    [
        ("dmr", "dmr re", {"resize", "resume", "replay", "report"}),
        ("dmr", "dmr resize --no", {"--nodes"}),
        ("dmr", "dmr status he", {"heat-1"}),
        ("dmr-launch", "dmr-launch --check", {"--checkpoint-every"}),
    ],
)
def test_completion(tmp_path: Path, program: str, words: str, expected: set[str]) -> None:
    RunDir.create(tmp_path / "dmr-runs" / "heat-1", {"run": "heat-1"})
    variable = f"_{program.upper().replace('-', '_')}_COMPLETE"
    place = str(len(words.split()) - 1)
    env = {**os.environ, variable: "bash_complete", "COMP_WORDS": words, "COMP_CWORD": place}
    done = subprocess.run([str(BIN / program)], cwd=tmp_path, env=env, text=True, capture_output=True, timeout=30)
    assert expected <= {line.partition(",")[2] for line in done.stdout.splitlines()}, done


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    done = subprocess.run([str(BIN / "dmr"), "completion", shell], text=True, capture_output=True, timeout=30)
    assert done.returncode == 0 and "_DMR_COMPLETE" in done.stdout and "_DMR_LAUNCH_COMPLETE" in done.stdout
    if shell == "bash":
        check = subprocess.run(["bash", "-n"], input=done.stdout, text=True, capture_output=True)
        assert check.returncode == 0, check.stderr
