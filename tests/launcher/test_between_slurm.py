"""In a Slurm job: requests that come while ranks start."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

APPS = Path(__file__).parent / "apps"
Expected = Callable[[int], np.ndarray]


def start(slurm: Any, *args: object) -> None:
    """Start a run on four nodes, whose second generation may take long to come up."""
    launch = shlex.join(
        ["dmr-launch", "--nodes", "1:4", "--policy", "static", "--run-dir", "run", "--",
         sys.executable, str(APPS / "slow.py"), *map(str, args)]
    )  # fmt: skip
    script = slurm.folder / "job.sh"
    script.write_text(f"#!/bin/bash\n#SBATCH --job-name=slow\n{launch}\necho $? > status\n")
    slurm.sbatch("--nodes=4", str(script))


@pytest.mark.slow
def test_a_stop_while_ranks_load_ends_them_at_once(slurm: Any) -> None:
    start(slurm, 0, 5000, "--get-ready", 30)
    slurm.at_step(5)
    assert slurm.dmr("resize", "run", "--nodes", "2").returncode == 0

    def loaded() -> bool:
        progress = slurm.run.read_progress()
        return bool(progress.generation == 2 and progress.state == "starting" and progress.loaded)

    slurm.wait(loaded, "a load")
    assert slurm.dmr("stop", "run", "--wait").stdout.endswith("done: stopped\n")
    slurm.wait(lambda: not slurm.queue(), "an empty queue", 30.0)
    assert (slurm.folder / "status").read_text() == "0\n", slurm.seen()
    first, second = slurm.history.generations
    assert (first.why, second.why) == ("shrink", "stopped")
    assert slurm.run.read_progress().checkpoint.step == first.step
    (told,) = slurm.events("stopping")
    assert second.end - told["time"] < 8, slurm.seen()


@pytest.mark.slow
def test_ranks_that_have_not_come_up_are_started_on_the_nodes_that_are_wanted(
    slurm: Any, expected_after: Expected
) -> None:
    start(slurm, 120, 60, "--fail-at", 20)
    slurm.wait(lambda: len(slurm.events("launched")) == 2, "the second generation")
    answer = slurm.dmr("resize", "run", "--nodes", "2", "--wait")
    assert answer.returncode == 0 and answer.stdout == "done: runs on 2 nodes\n", answer
    slurm.finished(60.0)
    assert np.array_equal(slurm.final(), expected_after(60))
    history = slurm.history
    assert [(each.nodes, each.why) for each in history.generations] == [(4, "crashed"), (4, "shrink"), (2, "finished")]
    assert history.crashes == 1 and [each["after"] for each in slurm.events("shrunk")] == [2]
