"""A scheduler whose limits forbid another size: the run goes on at the size it has, and asks no second time at once."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dmr.launcher.cluster.tools import missing

Expected = Callable[[int], np.ndarray]
STEPS = 120


def run_into_a_limit(slurm: Any, set_limit: Callable[[], None], words: str, interval: str) -> None:
    """Start a run, set a limit, ask for 3 nodes twice; ``words`` are the scheduler's."""
    options = ("--nodes", "1:3", "--dwell", "1h", "--query-interval", interval)
    job = slurm.submit(STEPS, 0.08, options=options, sbatch=("--nodes=1",))
    slurm.at_step(3)
    set_limit()
    for _ in range(2):
        answer = slurm.dmr("resize", "run", "--nodes", "3", "--wait")
        assert answer.returncode == 1 and words in answer.stderr, answer.stdout + answer.stderr + slurm.seen()
    assert set(slurm.queue()) == {job}
    (cancelled,) = slurm.events("cancelled")
    assert words in cancelled["reason"]
    assert len({each["token"] for each in slurm.events("submitted")}) == 1, "it was asked once"


def went_on(slurm: Any, expected: np.ndarray) -> None:
    out = slurm.finished()
    assert np.array_equal(slurm.final(), expected), out
    (only,) = slurm.history.generations
    assert (only.nodes, only.why) == (1, "finished")


@pytest.mark.parametrize(
    ("enforced", "words", "interval"),
    [("ALL", "Node count specification invalid", "60"), ("NO", "PartitionNodeLimit", "2")],
)
def test_a_partition_that_takes_smaller_jobs_now(
    cluster_factory: Any, slurm_on: Any, expected_after: Expected, enforced: str, words: str, interval: str
) -> None:
    slurm = slurm_on(cluster_factory(4, config=[f"EnforcePartLimits={enforced}"]))

    def smaller() -> None:
        slurm.cluster.run(["scontrol", "update", "PartitionName=main", "MaxNodes=2"])

    run_into_a_limit(slurm, smaller, words, interval)
    went_on(slurm, expected_after(STEPS))


def test_accounting_that_allows_no_other_job(cluster_factory: Any, slurm_on: Any, expected_after: Expected) -> None:
    if reason := missing(accounting=True):
        pytest.skip(reason)
    slurm = slurm_on(cluster_factory(4, accounting=True, config=["AccountingStorageEnforce=limits,qos"]))

    def manage(*words: str) -> None:
        slurm.cluster.run(["sacctmgr", "--immediate", *words])

    def one_job() -> None:
        manage("modify", "qos", "normal", "set", "MaxSubmitJobsPerUser=1")

    manage("add", "account", "science")
    manage("add", "user", getpass.getuser(), "account=science", "defaultaccount=science")
    run_into_a_limit(slurm, one_job, "QOSMaxSubmitJobPerUserLimit", "60")
    went_on(slurm, expected_after(STEPS))
