"""A scheduler that is away, slow or says no: the application goes on computing, and exactly one successor comes."""

from __future__ import annotations

import stat
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Expected = Callable[[int], np.ndarray]


def wrapped(slurm: Any, command: str, body: str) -> str:
    """Put a command of the user's before Slurm's; returns what the job script has to begin with. $REAL is Slurm's."""
    real = slurm.cluster.run(["bash", "-c", f"type -P {command}"]).stdout.strip()
    folder = slurm.folder / "bin"
    folder.mkdir(exist_ok=True)
    (folder / command).write_text(f"#!/bin/bash\nREAL={real}\n{body}\n")
    (folder / command).chmod(stat.S_IRWXU)
    return f"export PATH={folder}:$PATH"


LOST_ANSWER = """\
answer=$($REAL "$@") || exit
echo "$answer" >> {folder}/submitted
if [ ! -e {folder}/once ]; then
    touch {folder}/once
    echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2
    exit 1
fi
echo "$answer"
"""


def test_a_submission_whose_answer_was_lost_is_found_not_repeated(slurm: Any, expected_after: Expected) -> None:
    before = wrapped(slurm, "sbatch", LOST_ANSWER.format(folder=slurm.folder))
    slurm.submit(200, 0.05, options=("--nodes", "1:3", "--dwell", "1h"), sbatch=("--nodes=1",), before=before)
    slurm.at_step(3)
    assert slurm.dmr("resize", "run", "--nodes", "3", "--wait").returncode == 0
    out = slurm.finished()
    assert np.array_equal(slurm.final(), expected_after(200)), out
    assert "no answer to the submission" in out
    assert [each.nodes for each in slurm.history.generations] == [1, 3]
    assert len((slurm.folder / "submitted").read_text().split()) == 1


def test_a_submission_that_is_refused_leaves_the_run_as_it_is(slurm: Any, expected_after: Expected) -> None:
    slurm.submit(200, 0.05, options=("--nodes", "1:3", "--dwell", "1h"), sbatch=("--nodes=1",))
    slurm.at_step(3)
    slurm.cluster.run(["scontrol", "update", "PartitionName=main", "State=INACTIVE"])
    try:
        answer = slurm.dmr("resize", "run", "--nodes", "3", "--wait")
    finally:
        slurm.cluster.run(["scontrol", "update", "PartitionName=main", "State=UP"])
    assert answer.returncode == 1 and "does not take the job" in answer.stderr
    out = slurm.finished()
    assert np.array_equal(slurm.final(), expected_after(200)), out
    assert [each.nodes for each in slurm.history.generations] == [1]
    assert "was refused" in out


def test_where_a_job_may_not_shrink_a_successor_does(slurm: Any, expected_after: Expected) -> None:
    refuse = 'case "$*" in *NodeList=*) echo "slurm_update error: Job shrink is disabled" >&2; exit 1;; esac'
    before = wrapped(slurm, "scontrol", f'{refuse}\nexec $REAL "$@"')
    job = slurm.submit(200, 0.05, options=("--nodes", "1:3", "--dwell", "1h"), sbatch=("--nodes=3",), before=before)
    slurm.at_step(3)
    assert slurm.dmr("resize", "run", "--nodes", "1", "--wait").returncode == 0
    out = slurm.finished()
    assert np.array_equal(slurm.final(), expected_after(200)), out
    assert [each.nodes for each in slurm.history.generations] == [3, 3, 1], out
    assert slurm.history.generations[-1].job != job


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["computing", "pending", "shrinking", "handover"])
def test_the_controller_is_away_for_a_while(slurm: Any, expected_after: Expected, stage: str) -> None:
    nodes = 3 if stage == "shrinking" else 1
    options = ("--nodes", "1:3", "--dwell", "1h", "--query-interval", "1")
    slurm.submit(500, 0.05, options=options, sbatch=(f"--nodes={nodes}",))
    slurm.at_step(3)
    if stage == "pending":
        other = slurm.sbatch("--nodes=6", "--wrap=sleep 60").strip()
        slurm.wait(lambda: slurm.queue().get(other) == "RUNNING", "the other job")
    if stage in ("pending", "handover"):
        slurm.dmr("resize", "run", "--nodes", "3")
        slurm.wait(lambda: slurm.events("submitted")[-1:] and slurm.events("submitted")[-1]["job"], "a successor")
    if stage == "handover":
        slurm.wait(lambda: slurm.events("started"), "the successor's start")
    slurm.cluster.stop_controller()
    try:
        before = slurm.run.read_progress()
        if stage == "shrinking":
            slurm.dmr("resize", "run", "--nodes", "1")
        time.sleep(15)
        after = slurm.run.read_progress()
        assert (after.generation, after.step) > (before.generation, before.step), "the application stood still"
    finally:
        slurm.cluster.start_controller()
    if stage == "pending":
        slurm.cluster.run(["scancel", other])
    out = slurm.finished(within=150)
    assert np.array_equal(slurm.final(), expected_after(500)), out
    assert slurm.history.crashes == 0, out
    assert slurm.history.generations[-1].nodes == {"computing": 1, "shrinking": 1}.get(stage, 3), out
