"""A run directory on a file system that fills up: the program goes on, and ends with the right bits."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Expected = Callable[[int], np.ndarray]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,nr_inodes=200", "tmpfs", str(folder)], check=False)
    if made.returncode != 0:
        pytest.skip("mounting a file system of its own needs root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take all that is left."""
    ballast = folder / "ballast"
    with open(ballast, "wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(512))
        except OSError:
            return ballast


def launch(bench: Any, folder: Path, *args: object) -> subprocess.Popen[str]:
    bench.run = type(bench.run)(folder / "run")
    (folder / "run").mkdir()
    os.symlink(folder / "run", bench.folder / "run")
    process: subprocess.Popen[str] = bench.launch(*args, options=("--nodes", "1:2", "--start", "1", "--dwell", "1h"))
    return process


def test_a_disk_that_is_full_for_a_while(bench: Any, expected_after: Expected, small: Path) -> None:
    process = launch(bench, small, 250)
    bench.at_step(5)
    ballast = fill(small)
    refused = bench.dmr("resize", "run", "--nodes", "2")
    assert refused.returncode == 1 and refused.stderr.count("\n") == 1  # the request can't even be written
    before = bench.run.read_progress().step
    ballast.unlink()
    bench.at_step(before + 10)
    asked = bench.dmr("resize", "run", "--nodes", "2", "--wait")
    assert asked.returncode == 0, asked.stderr
    out = bench.end(process)
    assert process.returncode == 0, out
    assert np.array_equal(bench.final(), expected_after(250)), out
    assert [each.nodes for each in bench.history.generations] == [1, 2]


def test_a_save_that_finds_the_disk_full_is_given_up(bench: Any, expected_after: Expected, small: Path) -> None:
    process = launch(bench, small, 600)
    bench.at_step(5)
    ballast = fill(small)
    (small / "room").write_bytes(b"")
    with open(ballast, "r+b") as stream:
        stream.truncate(os.path.getsize(ballast) - 8192)  # enough for a request, not for a checkpoint
    bench.dmr("resize", "run", "--nodes", "2")
    progress = bench.run.read_progress().step
    bench.at_step(progress + 20)
    ballast.unlink()
    out = bench.end(process)
    assert process.returncode == 0, out
    assert np.array_equal(bench.final(), expected_after(600)), out


def test_a_run_is_not_begun_on_a_full_disk(bench: Any, small: Path) -> None:
    fill(small)
    process = bench.start("dmr-launch", "--local-nodes", "1", "--run-dir", str(small / "run"), "--", "true")
    out = bench.end(process)
    assert process.returncode == 1
    assert "can't make the run directory" in out and "Traceback" not in out
