"""Jobs that Slurm ends, requeues or takes nodes from: the run ends with the right bits."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Expected = Callable[[int], np.ndarray]
PARTITIONS = (
    "low PriorityTier=1 PreemptMode={mode} GraceTime={grace} Default=YES",
    "high PriorityTier=10 PreemptMode=OFF",
)
PREEMPTION = ["PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE"]


def preemptible(cluster_factory: Any, slurm_on: Any, mode: str, grace: int) -> Any:
    partitions = tuple(each.format(mode=mode, grace=grace) for each in PARTITIONS)
    return slurm_on(cluster_factory(4, partitions=partitions, config=PREEMPTION))


def preempt(slurm: Any, nodes: int, seconds: int = 5) -> str:
    argv = ["sbatch", "--parsable", "--partition=high", "--time=1", f"--nodes={nodes}", "--output=/dev/null"]
    return str(slurm.cluster.run([*argv, f"--wrap=sleep {seconds}"], cwd=slurm.folder).stdout.strip())


@pytest.mark.slow
@pytest.mark.parametrize("grace", [0, 20])
def test_preempted_and_cancelled(cluster_factory: Any, slurm_on: Any, expected_after: Expected, grace: int) -> None:
    slurm = preemptible(cluster_factory, slurm_on, "CANCEL", grace)
    job = slurm.submit(
        150, 0.05, options=("--nodes", "1:3", "--dwell", "1h"), sbatch=("--nodes=3",), exec_=grace == 0
    )
    slurm.at_step(5)
    preempt(slurm, 3)
    slurm.wait(lambda: any(each.why == "preempted" for each in slurm.history.generations), "the preemption", 40)
    out = slurm.finished()
    assert np.array_equal(slurm.final(), expected_after(150)), out
    history = slurm.history
    assert history.crashes == 0
    assert history.generations[0].job == job and history.generations[-1].job != job
    assert sum(each.steps for each in history.generations) == 150


def start_again(slurm: Any, job: str) -> None:
    """A requeued job has to wait for two minutes, unless its user says otherwise; it can't start in the same second."""
    slurm.wait(lambda: slurm.queue().get(job) == "PENDING", "the requeue", 90)
    slurm.cluster.run(["scontrol", "update", f"JobId={job}", "StartTime=now+3"])


@pytest.mark.slow
@pytest.mark.parametrize("grace", [0, 20])
def test_preempted_and_requeued(cluster_factory: Any, slurm_on: Any, expected_after: Expected, grace: int) -> None:
    slurm = preemptible(cluster_factory, slurm_on, "REQUEUE", grace)
    job = slurm.submit(150, 0.05, options=("--nodes", "1:3", "--dwell", "1h"), sbatch=("--nodes=3", "--requeue"))
    slurm.at_step(5)
    preempt(slurm, 3)
    start_again(slurm, job)
    slurm.wait(lambda: slurm.history.finished, "the end of the run", 90.0)
    slurm.wait(lambda: slurm.queue().get(job) != "RUNNING", "the end of the job", 30.0)
    again = slurm.queue().get(job) == "PENDING"
    if again:  # Slurm 24.11 requeues a job that was preempted with a grace time once more, at its end
        start_again(slurm, job)
    out = slurm.finished()
    assert np.array_equal(slurm.final(), expected_after(150)), out
    history = slurm.history
    assert {each.job for each in history.generations} == {job}, out
    assert history.crashes == 0 and not history.stopping and not history.successors
    assert (slurm.folder / "post.txt").read_text().count("post-command") == 1 + again


@pytest.mark.slow
def test_a_lost_node_that_costs_the_job_requeues_it(
    cluster_factory: Any, slurm_on: Any, expected_after: Expected
) -> None:
    slurm = slurm_on(cluster_factory(4, config=["SlurmdTimeout=5"]))
    options = ("--nodes", "1:3", "--dwell", "1h", "--checkpoint-every", "20steps")
    job = slurm.submit(200, 0.05, options=options, sbatch=("--nodes=3", "--requeue"))
    slurm.at_step(30)
    slurm.cluster.kill_node("n3")
    kill_ranks_of(slurm.folder, "n3")
    start_again(slurm, job)
    out = slurm.finished()
    assert np.array_equal(slurm.final(), expected_after(200)), out
    assert {each.job for each in slurm.history.generations} == {job}, out
    assert slurm.history.generations[-1].cause == "requeue", out


@pytest.mark.slow
def test_a_lost_node_costs_the_ranks_not_the_job(cluster_factory: Any, slurm_on: Any, expected_after: Expected) -> None:
    slurm = slurm_on(cluster_factory(4, config=["SlurmdTimeout=5"]))
    job = slurm.submit(
        200, 0.05, options=("--nodes", "1:3", "--dwell", "1h", "--checkpoint-every", "20steps"),
        sbatch=("--nodes=3", "--no-kill"),
    )  # fmt: skip
    slurm.at_step(30)
    slurm.cluster.kill_node("n3")
    kill_ranks_of(slurm.folder, "n3")
    out = slurm.finished()
    assert np.array_equal(slurm.final(), expected_after(200)), out
    history = slurm.history
    assert {each.job for each in history.generations} == {job}, out
    assert history.generations[-1].nodes == 2
    assert any(each.get("lost") for each in slurm.events("shrunk")), out


def kill_ranks_of(folder: Path, node: str) -> None:
    """A node that is lost takes its ranks along; a virtual one's have to be ended."""
    for name in os.listdir("/proc"):
        try:
            environ = Path(f"/proc/{name}/environ").read_bytes() if name.isdigit() else b""
            if f"SLURMD_NODENAME={node}".encode() in environ and os.readlink(f"/proc/{name}/cwd") == str(folder):
                os.kill(int(name), signal.SIGKILL)
        except OSError:
            continue


@pytest.mark.slow
def test_a_requeued_job_goes_on(slurm: Any, expected_after: Expected) -> None:
    job = slurm.submit(200, 0.05, options=("--nodes", "2", "--checkpoint-every", "10steps"), sbatch=("--nodes=2",))
    slurm.at_step(30)
    slurm.cluster.run(["scontrol", "requeue", job])
    start_again(slurm, job)
    out = slurm.finished()
    assert np.array_equal(slurm.final(), expected_after(200)), out
    assert {each.job for each in slurm.history.generations} == {job}
    assert slurm.history.generations[-1].cause == "requeue"
    assert not slurm.history.stopping


def test_a_hung_program_shows_its_stacks_and_starts_again(slurm: Any, expected_after: Expected) -> None:
    slurm.submit(
        60, "--hang-at", 30, options=("--nodes", "2", "--hang-after", "3", "--checkpoint-every", "10steps"),
        sbatch=("--nodes=2",),
    )  # fmt: skip
    out = slurm.finished()
    assert np.array_equal(slurm.final(), expected_after(60)), out
    assert [each.why for each in slurm.history.generations] == ["hung", "finished"]
    assert out.count("Current thread") >= 2, "no stack of every rank"
    assert "counting.py" in out


def test_a_successor_for_another_program_is_refused(slurm: Any) -> None:
    """Two dmr-launch in one script: the second one's successor does not take the first for its own."""
    script = slurm.folder / "two.sh"
    app = Path(__file__).parent / "apps" / "counting.py"
    script.write_text(
        "#!/bin/bash\n"
        f"dmr-launch --run-dir first --nodes 1 -- python {app} 5\n"
        f"dmr-launch --run-dir run --nodes 1:2 --query-interval 2 --dwell 1h -- python {app} 120 0.05\n"
    )
    slurm.sbatch("--nodes=1", str(script))
    slurm.at_step(5)
    assert slurm.dmr("resize", "run", "--nodes", "2", "--wait").returncode == 0
    out = slurm.finished()
    assert "keep one dmr-launch to a job script" in out
    assert [each.nodes for each in slurm.history.generations] == [1, 2]
    assert isinstance(subprocess.DEVNULL, int)
