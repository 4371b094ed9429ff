"""dmr-launch --fast-dir on the local engine: changes of size, crashes, a launcher that is killed."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Expected = Callable[[int], np.ndarray]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    folder = tmp_path / "node"
    folder.mkdir(mode=0o700)
    return folder


def test_changes_of_size_go_by_the_node_alone(bench: Any, expected_after: Expected, node: Path) -> None:
    options = ("--nodes", "1:4", "--start", "2", "--dwell", "1h", "--fast-dir", str(node))
    process = bench.launch(150, options=options)
    bench.at_step(5)
    for nodes in (4, 1):
        assert bench.dmr("resize", "run", "--nodes", str(nodes), "--wait").returncode == 0
    out = bench.end(process)
    assert process.returncode == 0, out
    assert np.array_equal(bench.final(), expected_after(150))
    assert [each.nodes for each in bench.history.generations] == [2, 4, 1]
    saved = bench.events("checkpoint")
    assert len(saved) == 2 and all(each["fast"] for each in saved)
    copied = [each["step"] for each in bench.events("drained")]
    assert copied == [each["step"] for each in saved], "each was copied by the generation that loaded it"
    assert list(node.iterdir()) == []
    assert len(list(bench.run.checkpoints.glob("step-*.h5"))) == 2


def test_a_crash_and_a_killed_launcher_lose_nothing(bench: Any, expected_after: Expected, node: Path) -> None:
    options = ("--nodes", "2", "--checkpoint-every", "5steps", "--fast-dir", str(node))
    process = bench.launch(120, 0.02, "--fail-at", 28, options=options)
    bench.at_step(50, generation=2)
    process.kill()
    bench.end(process)
    bench.wait(lambda: bench.dmr("status", "run", "--json").stdout.count('"lost"'), "the loss to be seen")
    again = bench.start("dmr", "resume", "run")
    out = bench.end(again)
    assert again.returncode == 0, out
    assert np.array_equal(bench.final(), expected_after(120))
    first, second, third = bench.history.generations
    assert (first.why, second.cause, second.first_step) == ("crashed", "restart", 25)
    assert third.first_step >= 50
    assert list(node.iterdir()) == []


def test_where_a_checkpoint_stands_is_told(bench: Any, node: Path) -> None:
    process = bench.launch(3000, options=("--nodes", "2", "--checkpoint-every", "10steps", "--fast-dir", str(node)))
    bench.wait(lambda: bench.events("drained"), "a copy")
    shown = bench.dmr("ckpt", "ls", "run").stdout
    assert ".h5 (fast)" in shown and shown.count("not known bad") >= 2
    both = json.loads(bench.dmr("ckpt", "ls", "run", "--json").stdout)
    assert {each["fast"] for each in both} == {True, False}
    assert "checkpoint_fast" in bench.dmr("status", "run", "--json").stdout
    process.send_signal(signal.SIGTERM)
    bench.end(process)
    assert bench.history.last.why == "stopped" and list(node.iterdir()) == []
    saved = bench.run.read_progress().checkpoint
    assert not saved.fast and (bench.run.checkpoints / saved.name).exists()
    assert "(fast)" not in bench.dmr("ckpt", "ls", "run").stdout


@pytest.mark.parametrize(("mode", "said"), [(0o777, "not sticky"), (None, "No such file")])
def test_a_folder_that_can_not_be_used_is_refused(bench: Any, node: Path, mode: int | None, said: str) -> None:
    if mode is None:
        node.rmdir()
    else:
        node.chmod(mode)
    process = bench.launch(5, options=("--nodes", "1", "--fast-dir", str(node)))
    out = bench.end(process)
    assert process.returncode == 2 and f"--fast-dir: {node}" in out and said in out
    assert not bench.run.folder.exists()
