"""The supervisor on the local engine, with real MPI programs."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

APPS = Path(__file__).parent / "apps"
Expected = Callable[[int], np.ndarray]


def test_a_run_at_one_size_finishes(bench: Any, expected_after: Expected) -> None:
    process = bench.launch(20, options=("--nodes", "2"))
    out = bench.end(process)
    assert process.returncode == 0, out
    assert "finished on 2 ranks" in out
    assert np.array_equal(bench.final(), expected_after(20))
    (only,) = bench.history.generations
    assert (only.nodes, only.why, only.steps, only.cause) == (2, "finished", 20, "fresh")
    assert only.launch is not None and only.launch > 0
    assert (bench.run.folder / "logs" / "0001.out").read_text().startswith("finished on 2 ranks")


def test_sizes_change_on_request_and_nothing_is_lost(bench: Any, expected_after: Expected) -> None:
    process = bench.launch(150, options=("--nodes", "1:4", "--start", "2", "--dwell", "1h"))
    bench.at_step(5)
    for nodes in (4, 1, 3):
        answer = bench.dmr("resize", "run", "--nodes", str(nodes), "--wait")
        assert answer.returncode == 0, answer.stderr
        assert answer.stdout.startswith(f"done: runs on {nodes} node")
    out = bench.end(process)
    assert process.returncode == 0, out
    assert np.array_equal(bench.final(), expected_after(150))
    history = bench.history
    assert [each.nodes for each in history.generations] == [2, 4, 1, 3]
    assert [each.why for each in history.generations] == ["expand", "shrink", "expand", "finished"]
    assert sum(each.steps for each in history.generations) == 150
    assert all(each.save is not None and each.load is not None for each in history.generations[1:-1])
    assert [(each.change, each.nodes) for each in history.changes()] == [
        ("add", 2), ("add", 2), ("remove", 3), ("add", 2), ("remove", 3),
    ]  # fmt: skip


def test_the_policy_takes_what_nobody_wants(bench: Any, expected_after: Expected) -> None:
    process = bench.launch(60, 0.05, "--suggest", "expand", options=("--nodes", "1:2", "--start", "1", "--dwell", "1"))
    out = bench.end(process)
    assert process.returncode == 0, out
    assert [each.nodes for each in bench.history.generations][:2] == [1, 2]
    assert np.array_equal(bench.final(), expected_after(60))
    decisions = bench.events("decided")
    assert any(each["decision"]["action"] == "expand" for each in decisions)
    assert all(each["decision"]["table"] for each in decisions)


def test_a_crash_is_restarted_from_the_last_checkpoint(bench: Any, expected_after: Expected) -> None:
    process = bench.launch(40, "--fail-at", 25, options=("--nodes", "2", "--checkpoint-every", "10steps"))
    out = bench.end(process)
    assert process.returncode == 0, out
    assert out.count("made to fail at step 25") == 2  # the rank's own traceback, and the launcher's one line
    assert np.array_equal(bench.final(), expected_after(40))
    first, second = bench.history.generations
    assert (first.why, second.cause, second.first_step) == ("crashed", "restart", 20)


def test_what_is_lost_without_a_checkpoint_is_told(bench: Any, expected_after: Expected) -> None:
    process = bench.launch(40, 0.05, "--fail-at", 30, options=("--nodes", "2"))
    out = bench.end(process)
    assert process.returncode == 0, out
    assert "starts from the beginning: there was no checkpoint" in out and "--checkpoint-every" in out
    assert np.array_equal(bench.final(), expected_after(40))


def test_fast_failures_stop_the_run(bench: Any) -> None:
    process = bench.launch(40, "--fail-at", 0, "--always", options=("--nodes", "1", "--max-restarts", "9"))
    out = bench.end(process)
    assert process.returncode == 1
    assert "3 generations in a row failed" in out
    assert [each.why for each in bench.history.generations] == ["crashed", "crashed", "failed"]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--exit", 5), 5, "sys.exit(5)"),
        (("--open", "in.deck"), 1, "FileNotFoundError: [Errno 2] No such file or directory: 'in.deck'"),
    ],
)
def test_what_fails_before_the_first_step_is_not_repeated(
    bench: Any, arguments: tuple[Any, ...], status: int, said: str
) -> None:
    process = bench.launch(10, *arguments, options=("--nodes", "2"))
    out = bench.end(process)
    assert process.returncode == status, out
    assert f"since it would fail again: rank 0: {said}" in out or f"since it would fail again: rank 1: {said}" in out
    assert [each.why for each in bench.history.generations] == ["failed"]


def test_the_budget_of_restarts_is_kept_over_a_resume(bench: Any) -> None:
    options = ("--nodes", "1", "--max-restarts", "1", "--checkpoint-every", "1steps")
    process = bench.launch(60, 0.01, "--fail-at", 5, "--always", options=options)
    out = bench.end(process)
    assert process.returncode == 1
    assert "--max-restarts 1" in out
    assert len(bench.history.generations) == 2


def test_a_mistake_of_the_user_is_not_repeated(bench: Any) -> None:
    process = bench.launch(10, "--user-error", options=("--nodes", "2"))
    out = bench.end(process)
    assert process.returncode == 1
    assert out.count("error: the input deck names no material") == 1
    assert "not started again" in out
    assert "Traceback" not in out
    assert len(bench.history.generations) == 1


@pytest.mark.parametrize("status", [0, 7])
def test_a_program_that_knows_nothing_of_dmr_runs_as_it_is(bench: Any, status: int) -> None:
    process = bench.start(
        "dmr-launch", "--engine", "local", "--local-nodes", "2", "--nodes", "1:2", "--run-dir", "run", "--",
        sys.executable, "-c", f"import sys; print('plain'); sys.exit({status})",
    )  # fmt: skip
    out = bench.end(process)
    assert process.returncode == status
    assert "plain" in out and "never spoke to the launcher" in out
    assert len(bench.history.generations) == 1


def stumbling(bench: Any, times: int, how: str, steps: int, *options: str) -> Any:
    return bench.start(
        "dmr-launch", "--engine", "local", "--local-nodes", "2", "--nodes", "2", "--run-dir", "run", *options, "--",
        sys.executable, str(APPS / "stumbling.py"), str(times), how, str(steps),
    )  # fmt: skip


def test_ranks_that_die_before_mpi_is_up_are_started_again(bench: Any, expected_after: Expected) -> None:
    process = stumbling(bench, 1, "signal", 20)
    out = bench.end(process)
    assert process.returncode == 0, out
    assert "did not start" in out and "signal 11" in out
    assert np.array_equal(bench.final(), expected_after(20))
    assert [each.why for each in bench.history.generations] == ["not started", "finished"]
    assert bench.history.crashes == 0


def test_a_program_that_never_comes_up_is_started_three_times(bench: Any) -> None:
    process = stumbling(bench, 9, "signal", 20)
    out = bench.end(process)
    assert process.returncode not in (0, None) and "giving up after 3 starts" in out, out
    assert [each.why for each in bench.history.generations] == ["not started", "not started", "failed"]


def test_a_first_start_that_hangs_shows_its_stacks_and_is_made_again(bench: Any, expected_after: Expected) -> None:
    process = stumbling(bench, 1, "hang", 20, "--start-within", "3")
    out = bench.end(process)
    assert process.returncode == 0, out
    assert "has not reported 3 s after its start (a hang in MPI_Init?)" in out
    assert out.count("stumbling.py") >= 2, f"no stack of every rank: {out}"
    assert np.array_equal(bench.final(), expected_after(20))
    assert [each.why for each in bench.history.generations] == ["hung", "finished"]


def test_starts_that_hang_use_up_the_restarts(bench: Any) -> None:
    process = stumbling(bench, 9, "hang", 20, "--start-within", "2", "--max-restarts", "1")
    out = bench.end(process)
    assert process.returncode == 1, out
    assert "it has failed 2 times (--max-restarts 1)" in out
    assert [each.why for each in bench.history.generations] == ["hung", "failed"]


def test_a_malleable_program_that_ends_by_itself_before_its_first_word_is_not_repeated(bench: Any) -> None:
    process = stumbling(bench, 9, "exit", 20)
    out = bench.end(process)
    assert process.returncode == 7, out
    assert len(bench.history.generations) == 1


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (3, "not started again, since it would fail again: the program ended by itself with exit status 3, before its"),
        (0, "the program imported dmr, but ended before a first safe point, so it was run as it is"),
    ],
)
def test_a_program_that_ends_before_its_first_safe_point_is_told_as_that(bench: Any, status: int, said: str) -> None:
    process = bench.start(
        "dmr-launch", "--engine", "local", "--local-nodes", "2", "--nodes", "1:2", "--run-dir", "run", "--",
        sys.executable, "-c", f"import dmr; raise SystemExit({status})",
    )  # fmt: skip
    out = bench.end(process)
    assert process.returncode == status, out
    assert said in out and "never spoke" not in out
    assert [each.why for each in bench.history.generations] == ["failed" if status else "finished"]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_ends(bench: Any, expected_after: Expected, number: signal.Signals, status: int) -> None:
    process = bench.launch(200, options=("--nodes", "2"))
    bench.at_step(5)
    process.send_signal(number)
    out = bench.end(process, within=20)
    assert process.returncode == status, out
    assert bench.history.last.why == "stopped"
    saved = bench.run.read_progress().checkpoint
    assert saved is not None and saved.step >= 5
    assert bench.dmr("status", "run").stdout.count("stopped") == 1
    again = bench.start("dmr", "resume", "run")
    assert bench.end(again).count(f"continues at step {saved.step}") == 1
    assert np.array_equal(bench.final(), expected_after(200))


def test_ctrl_c_twice_ends_at_once(bench: Any) -> None:
    process = bench.launch(10, 30, options=("--nodes", "1"))
    bench.wait(lambda: bench.run.read_progress(), "progress")
    process.send_signal(signal.SIGINT)
    bench.wait(lambda: bench.events("stopping"), "the first one noticed")
    process.send_signal(signal.SIGINT)
    bench.end(process, within=15)
    assert process.returncode == 130


def test_ranks_that_do_not_leave_are_killed_at_the_deadline(bench: Any) -> None:
    process = bench.launch(10, "--hang-at", 5, options=("--nodes", "2", "--grace", "2"))
    bench.wait(lambda: (bench.folder / "hung-once").exists(), "the hang")
    began = time.monotonic()
    assert bench.dmr("stop", "run").returncode == 0
    out = bench.end(process, within=30)
    assert time.monotonic() - began < 20
    assert "did not save and leave in time" in out
    assert bench.history.last.why == "stopped"


def test_a_resize_waits_for_the_end_of_a_step_however_long(bench: Any, expected_after: Expected) -> None:
    process = bench.launch(2, 6, options=("--nodes", "1:2", "--start", "2", "--grace", "1"))
    bench.wait(lambda: (found := bench.run.read_progress()) and found.state == "running", "the first step")
    assert bench.dmr("resize", "run", "--nodes", "1").returncode == 0
    out = bench.end(process, within=60)
    assert process.returncode == 0, out
    assert out.count("waiting for the end of its step") == 1
    assert [(each.nodes, each.why) for each in bench.history.generations] == [(2, "shrink"), (1, "finished")]
    assert np.array_equal(bench.final(), expected_after(2))


def test_stop_now_does_not_wait_for_a_step(bench: Any) -> None:
    process = bench.launch(10, 60, options=("--nodes", "1"))
    bench.wait(lambda: (found := bench.run.read_progress()) and found.state == "running", "the first step")
    assert bench.dmr("stop", "run", "--now", "--wait").returncode == 0
    bench.end(process, within=15)
    assert process.returncode == 0
    assert bench.run.read_progress().checkpoint is None


def test_a_launcher_whose_lease_was_taken_ends_itself(bench: Any) -> None:
    process = bench.launch(1000, options=("--nodes", "1"))
    bench.at_step(3)
    assert bench.run.take_lease(2, {"token": "somebody else"})
    out = bench.end(process, within=20)
    assert process.returncode == 76
    assert "another launcher has taken over" in out


def test_an_idle_launcher_is_small_and_quiet(bench: Any) -> None:
    process = bench.launch(2000, 0.05, options=("--nodes", "1:2", "--start", "1", "--query-interval", "2"))
    bench.wait(lambda: bench.events("decided"), "a decision")
    before, began = _cpu_seconds(process.pid), time.monotonic()
    time.sleep(4)
    share = (_cpu_seconds(process.pid) - before) / (time.monotonic() - began)
    resident = _resident_mib(process.pid)
    process.send_signal(signal.SIGINT)
    bench.end(process)
    assert share < 0.02, f"{share:.2%} of a core"  # benchmarks tell more exactly; this shows busy waiting
    assert resident < 60, f"{resident:.0f} MiB"


def _cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stream:
        fields = stream.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _resident_mib(pid: int) -> float:
    with open(f"/proc/{pid}/status") as stream:
        return next(int(line.split()[1]) for line in stream if line.startswith("VmRSS")) / 1024


def test_output_that_nobody_reads_does_not_stop_the_run(bench: Any, expected_after: Expected) -> None:
    process = bench.launch(60, options=("--nodes", "1"))
    bench.at_step(3)
    assert process.stdout is not None
    process.stdout.close()
    process.wait(timeout=30)
    assert process.returncode == 0
    assert np.array_equal(bench.final(), expected_after(60))
    assert isinstance(process, subprocess.Popen)
