"""dmr-launch killed with SIGKILL at each step of the protocol, then continued: nothing is lost, nothing runs twice."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Expected = Callable[[int], np.ndarray]

STEPS = [
    "1:leased",
    "1:launched",
    "1:computing",
    "1:decided",
    "1:requested",
    "1:left",
    "1:ended",
    "2:leased",
    "2:launched",
]


@pytest.mark.parametrize("step", STEPS)
def test_resume_continues_a_run_whose_launcher_was_killed(bench: Any, expected_after: Expected, step: str) -> None:
    options = ("--nodes", "1:2", "--start", "1", "--dwell", "0", "--query-interval", "1")
    process = bench.launch(60, "--suggest", "expand", options=options, kill_at=step)
    bench.end(process)
    assert process.returncode == -signal.SIGKILL
    assert not bench.folder.joinpath("final.npy").exists()
    assert bench.dmr("status", "run", "--json").stdout.count('"state": "lost"') == 1
    again = bench.start("dmr", "resume", "run")
    out = bench.end(again)
    assert again.returncode == 0, out
    assert np.array_equal(bench.final(), expected_after(60))
    assert [each.why for each in bench.history.generations][-1] == "finished"
    assert bench.dmr("status", "run", "--json").stdout.count('"state": "finished"') == 1


def test_a_run_killed_before_its_first_start_is_continued_from_the_beginning(bench: Any) -> None:
    process = bench.launch(60, options=("--nodes", "1"), kill_at="created")
    bench.end(process)
    assert process.returncode == -signal.SIGKILL
    again = bench.start("dmr", "resume", "run")
    bench.end(again)
    assert again.returncode == 0


def test_of_two_that_resume_at_once_exactly_one_wins(bench: Any, expected_after: Expected) -> None:
    process = bench.launch(100, options=("--nodes", "1", "--checkpoint-every", "10steps"))
    bench.at_step(20)
    process.kill()
    bench.end(process)
    rivals = [bench.start("dmr", "resume", "run") for _ in range(3)]
    outs = [bench.end(each) for each in rivals]
    assert sorted(each.returncode for each in rivals) == [0, 1, 1], outs
    assert np.array_equal(bench.final(), expected_after(100))
    assert len(bench.run.leases()) == 2
    assert sum("continues at step" in out for out in outs) == 1


def test_no_rank_computes_on_for_a_launcher_that_is_gone(bench: Any) -> None:
    process = bench.launch(5000, 0.05, options=("--nodes", "2"))
    bench.at_step(3)
    ranks = _ranks(bench.folder)
    assert len(ranks) >= 2
    process.kill()
    bench.end(process)
    limit = time.monotonic() + 15
    while ranks & _ranks(bench.folder):
        assert time.monotonic() < limit, "ranks still run"
        time.sleep(0.1)


def test_resume_is_refused_while_the_run_is_alive_and_when_it_has_finished(bench: Any) -> None:
    process = bench.launch(60, options=("--nodes", "1"))
    bench.at_step(3)
    alive = bench.dmr("resume", "run")
    assert alive.returncode == 1 and "is alive" in alive.stderr and alive.stderr.count("\n") == 1
    bench.end(process)
    finished = bench.dmr("resume", "run")
    assert finished.returncode == 1 and "has finished" in finished.stderr
    asked = bench.dmr("resize", "run", "--nodes", "1")
    assert asked.returncode == 1 and "has finished" in asked.stderr


def test_a_zombie_launcher_is_not_taken_for_alive(bench: Any) -> None:
    process = bench.launch(60, options=("--nodes", "1"))
    bench.at_step(3)
    process.kill()
    time.sleep(0.5)  # dead, but nobody has waited for it
    assert '"state": "lost"' in bench.dmr("status", "run", "--json").stdout
    assert isinstance(process, subprocess.Popen)


def _ranks(folder: Path) -> set[int]:
    """Return the processes whose working directory is the test's and that belong to a rank."""
    found = set()
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.readlink(f"/proc/{name}/cwd") == str(folder):
                environ = Path(f"/proc/{name}/environ").read_bytes()
                if b"OMPI_COMM_WORLD_RANK=" in environ:
                    found.add(int(name))
        except OSError:
            continue
    return found
