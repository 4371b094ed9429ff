"""A run directory on a file system without locks, or without hard links either: a run needs neither."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Expected = Callable[[int], np.ndarray]
SOURCE = Path(__file__).parent / "apps" / "refuses.c"


@pytest.fixture(scope="module")
def refuses(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the library that stands for such a file system."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: install gcc")
    made = tmp_path_factory.mktemp("refuses") / "refuses.so"
    subprocess.run([compiler, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", made, SOURCE, "-ldl"], check=True)
    return made


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_a_run_is_resized_killed_and_resumed(
    bench: Any, refuses: Path, monkeypatch: pytest.MonkeyPatch, expected_after: Expected, links: bool
) -> None:
    log = bench.folder / "refused"
    monkeypatch.setenv("LD_PRELOAD", str(refuses))
    monkeypatch.setenv("REFUSES_BELOW", str(bench.folder / "run"))
    monkeypatch.setenv("REFUSES_LOG", str(log))
    if not links:
        monkeypatch.setenv("REFUSES_LINKS", "1")
    process = bench.launch(
        200, options=("--nodes", "1:3", "--start", "1", "--dwell", "1h", "--checkpoint-every", "5steps")
    )
    bench.at_step(20)
    assert bench.dmr("resize", "run", "--nodes", "3", "--wait").returncode == 0
    bench.at_step(60)
    os.kill(process.pid, signal.SIGKILL)
    resumed = [bench.start("dmr", "resume", "run") for _ in range(2)]
    outs = [bench.end(each) for each in resumed]
    assert sum(each.returncode == 0 for each in resumed) == 1, outs
    assert np.array_equal(bench.final(), expected_after(200))
    assert [each.nodes for each in bench.history.generations][:2] == [1, 3]
    assert bench.dmr("ckpt", "ls", "run").returncode == 0
    refused = set(log.read_text().split())
    assert "flock" in refused and ("link" in refused) != links
