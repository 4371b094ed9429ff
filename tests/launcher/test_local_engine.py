"""The local engine, with the MPI that is there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dmr.launcher.engines.choose import find_engine
from dmr.launcher.engines.engine import EngineError, Launch
from dmr.launcher.engines.local import LocalEngine
from dmr.launcher.engines.mpi import find_library
from dmr.launcher.engines.processes import MARK, ProcessRanks, marked

needs_mpi = pytest.mark.skipif(find_library([sys.executable], dict(os.environ)) is None, reason="no MPI")


def ended(ranks: ProcessRanks, seconds: float = 30.0) -> int:
    limit = time.monotonic() + seconds
    while (code := ranks.poll()) is None:
        assert time.monotonic() < limit, "the ranks don't end"
        time.sleep(0.02)
    return code


def gone(ranks: ProcessRanks) -> None:
    limit = time.monotonic() + 5.0
    while marked(ranks.mark):
        assert time.monotonic() < limit, "processes are left over"
        time.sleep(0.02)


def until_written(path: Path, text: str, seconds: float = 20.0) -> None:
    limit = time.monotonic() + seconds
    while not path.exists() or text not in path.read_text():
        assert time.monotonic() < limit, f"{text!r} doesn't come: {path.read_text() if path.exists() else ''}"
        time.sleep(0.02)


@needs_mpi
def test_the_ranks_see_each_other_and_their_variables(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    engine = LocalEngine(2, tasks_per_node=2)
    # In one piece: pieces of several ranks may come mixed.
    text = "f\"{MPI.COMM_WORLD.size} {os.environ['X']} {os.getcwd()};\""
    code = f"from mpi4py import MPI; import os; print({text}, end='')"
    log = tmp_path / "log"
    log.write_text("before;")
    (tmp_path / "there").mkdir()
    launch = Launch([sys.executable, "-c", code], engine.allocation(), {"X": "a b"}, tmp_path / "there", log)
    assert ended(engine.start(launch)) == 0
    assert log.read_text().count(f"4 a b {tmp_path}/there;") == 4 and log.read_text().startswith("before;")
    assert capfd.readouterr().out.count("4 a b ") == 4, "and it is shown"


@pytest.mark.parametrize(("obeys", "sweeps"), [(True, 1), (False, 2)])
def test_steps_are_swept_once_where_the_starter_did_as_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obeys: bool, sweeps: int
) -> None:
    monkeypatch.setattr("dmr.launcher.engines.processes.GRACE_SECONDS", 5.0 if obeys else 0.3)
    program = ["sleep", "60"] if obeys else ["sh", "-c", "trap '' TERM; echo deaf > deaf; sleep 60; sleep 60"]
    swept: list[float] = []
    ranks = ProcessRanks(program, dict(os.environ), tmp_path, sweep=swept.append)
    if not obeys:
        until_written(tmp_path / "deaf", "deaf")
    ranks.kill()
    ranks.kill()
    assert ranks.poll() is not None and len(swept) == sweeps
    gone(ranks)


@needs_mpi
def test_one_rank_that_fails_ends_all(tmp_path: Path) -> None:
    engine = LocalEngine(3)
    code = "from mpi4py import MPI; import os, time; os._exit(3) if MPI.COMM_WORLD.rank == 1 else time.sleep(60)"
    ranks = engine.start(Launch([sys.executable, "-c", code], engine.allocation(), {}, tmp_path, tmp_path / "log"))
    assert ended(ranks) not in (0, None)
    gone(ranks)


@needs_mpi
@pytest.mark.parametrize("stubborn", [False, True])
def test_kill_leaves_nothing(tmp_path: Path, stubborn: bool) -> None:
    engine = LocalEngine(2)
    code = (
        "import os, signal, subprocess, sys, time\n"
        f"if {stubborn}:\n    signal.signal(signal.SIGTERM, signal.SIG_IGN); os.fork() and os.wait(); os.setsid()\n"
        "from mpi4py import MPI\n"
        "child = subprocess.Popen(['sleep', '100'])\n"
        "print('up', flush=True); time.sleep(100)\n"
    )
    ranks = engine.start(Launch([sys.executable, "-c", code], engine.allocation(), {}, tmp_path, tmp_path / "log"))
    until_written(tmp_path / "log", "up")
    began = time.monotonic()
    ranks.kill()
    assert time.monotonic() - began < 15.0
    assert ranks.poll() not in (0, None)
    assert marked(ranks.mark) == []


def test_terminate_reaches_the_program(tmp_path: Path) -> None:
    program = ["sh", "-c", "trap 'echo asked; exit 7' TERM; echo up; sleep 30 & wait"]
    ranks = ProcessRanks(program, dict(os.environ), tmp_path, tmp_path / "log")
    until_written(tmp_path / "log", "up")
    ranks.terminate()
    assert ended(ranks) == 7
    until_written(tmp_path / "log", "asked")
    ranks.kill()
    gone(ranks)


def test_the_status_after_a_signal(tmp_path: Path) -> None:
    ranks = ProcessRanks(["sh", "-c", "kill -9 $$"], dict(os.environ), tmp_path)
    assert ended(ranks) == 137


def test_ranks_end_with_their_launcher(tmp_path: Path) -> None:
    code = (
        "import os, sys, time\nfrom pathlib import Path\nfrom dmr.launcher.engines.processes import ProcessRanks\n"
        f"ranks = ProcessRanks(['sleep', '60'], dict(os.environ), Path({str(tmp_path)!r}))\n"
        "while Path(f'/proc/{ranks.pid}/comm').read_text() != 'sleep\\n': time.sleep(0.01)\n"
        "print(ranks.mark, flush=True)\ntime.sleep(60)\n"
    )
    launcher = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    mark = launcher.stdout.readline().strip()
    assert marked(mark)
    launcher.kill()
    launcher.wait(10)
    launcher.stdout.close()
    limit = time.monotonic() + 5.0
    while marked(mark):
        assert time.monotonic() < limit, "the ranks go on for nobody"
        time.sleep(0.02)


def test_a_log_or_a_program_that_can_not_be_had(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="can't append to the log .*No such file"):
        ProcessRanks(["true"], dict(os.environ), tmp_path, tmp_path / "no" / "log")
    ranks_argv = [str(tmp_path / "absent")]
    try:
        assert ended(ProcessRanks(ranks_argv, dict(os.environ), tmp_path)) == 127  # setpriv says so
    except EngineError as error:
        assert "can't start" in str(error)


def test_a_full_pipe_does_not_hold_the_ranks_up(tmp_path: Path) -> None:
    ranks = ProcessRanks(["sh", "-c", "seq 200000"], dict(os.environ), tmp_path, tmp_path / "log")
    assert ended(ranks) == 0
    assert (tmp_path / "log").read_text().endswith("\n199999\n200000\n")


def test_any_size_up_to_the_machine() -> None:
    engine = LocalEngine(4, tasks_per_node=2)
    held = engine.allocation()
    assert held.nodes == ("local0", "local1", "local2", "local3") and held.job is None and held.tasks_per_node == 2
    held = engine.resize_in_place(held, 1)
    assert held.nodes == ("local0",) == engine.allocation().nodes
    view = engine.observe()
    assert (view.total, view.idle) == (4, 3)
    assert len(engine.resize_in_place(held, 4).nodes) == 4
    with pytest.raises(EngineError, match="4 nodes, not 5"):
        engine.resize_in_place(held, 5)


def test_the_number_of_cores_is_the_default() -> None:
    assert len(LocalEngine().allocation().nodes) == len(os.sched_getaffinity(0))
    with pytest.raises(EngineError, match="at least 1 for nodes, not 0"):
        LocalEngine(0)


def test_which_engine() -> None:
    assert find_engine("auto", environ={}).name == "local"
    assert find_engine("local", local_nodes=3, environ={"SLURM_JOB_ID": "1"}).name == "local"
    assert find_engine("auto", environ={"SLURM_JOB_ID": "1"}).name == "slurm"
    with pytest.raises(EngineError, match="not a Slurm allocation"):
        find_engine("slurm", environ={})
    with pytest.raises(EngineError, match="heterogeneous"):
        find_engine("slurm", environ={"SLURM_JOB_ID": "1", "SLURM_HET_SIZE": "2"})
    with pytest.raises(EngineError, match="unknown engine 'pbs'"):
        find_engine("pbs", environ={})


def test_nothing_of_an_outer_allocation_reaches_the_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {**os.environ, "SLURM_JOB_ID": "5", "SLURM_NTASKS": "99", "PMIX_RANK": "3"}
    engine = LocalEngine(1, environ=environ)
    monkeypatch.setattr(engine, "flavour", lambda launch: Direct())
    launch = Launch(["env"], engine.allocation(), {}, tmp_path, tmp_path / "log")
    assert ended(engine.start(launch)) == 0
    text = (tmp_path / "log").read_text()
    assert MARK in text and "SLURM_" not in text and "PMIX_" not in text


class Direct:
    """Starts one process without any MPI."""

    name = "direct"

    def argv(self, command: list[str], allocation: object, *, local: bool) -> list[str]:
        return command

    def environment(self, environ: object) -> dict[str, str]:
        return {}
