"""dmr-launch --fast-dir through a real Slurm: on several nodes, on one, and in a job elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Expected = Callable[[int], np.ndarray]


def test_on_one_node_it_is_used_and_a_successor_elsewhere_misses_nothing(
    slurm: Any, expected_after: Expected, tmp_path: Path
) -> None:
    node = tmp_path / "node"
    node.mkdir(mode=0o700)
    options = ("--nodes", "1:4", "--dwell", "1h", "--checkpoint-every", "10steps", "--fast-dir", str(node))
    slurm.submit(300, 0.05, options=options, sbatch=("--nodes=2",))
    slurm.at_step(15)
    assert slurm.dmr("resize", "run", "--nodes", "1", "--wait").returncode == 0
    slurm.wait(lambda: any(each["generation"] == 2 for each in slurm.events("drained")), "a copy")
    answer = slurm.dmr("resize", "run", "--nodes", "4", "--wait")
    assert answer.returncode == 0, answer.stderr
    out = slurm.finished()
    assert np.array_equal(slurm.final(), expected_after(300)), out
    assert [each.nodes for each in slurm.history.generations] == [2, 1, 4], out
    saved = {number: [e for e in slurm.events("checkpoint") if e["generation"] == number] for number in (1, 2, 3)}
    assert not any(each["fast"] for each in saved[1] + saved[3]), "several nodes"
    assert saved[2][0]["fast"] and not saved[2][-1]["fast"], "the last one is for a job elsewhere"
    assert slurm.history.generations[2].first_step == saved[2][-1]["step"]
    assert out.count("the ranks are on several nodes") == 2, out
    assert list(node.iterdir()) == []
