"""What a real Slurm does to a run that must not end it, or double it."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Expected = Callable[[int], np.ndarray]
APP = Path(__file__).parent / "apps" / "counting.py"


def processes(slurm: Any, word: str) -> list[int]:
    """Return the processes in the run's folder whose program's name holds a word, or whose generation it is."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/cwd") != str(slurm.folder):
                continue
            program = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            environ = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        is_rank = program[1:2] == [str(APP).encode()]
        if word in os.path.basename(program[0]).decode() or (is_rank and word.encode() in environ):
            found.append(int(name))
    return found


def test_a_node_that_goes_down_with_the_job_is_no_wish_to_stop(slurm: Any, expected_after: Expected) -> None:
    slurm.submit(
        150, 0.05, options=("--nodes", "1:2", "--dwell", "1h", "--checkpoint-every", "10steps"),
        sbatch=("--nodes=2", "--no-requeue"),
    )  # fmt: skip
    slurm.at_step(20)
    (launched,) = slurm.events("launched")
    node = launched["hosts"][1]
    slurm.cluster.run(["scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test"])
    try:
        out = slurm.finished()
        assert np.array_equal(slurm.final(), expected_after(150)), out
        assert not slurm.history.stopping and len({each.job for each in slurm.history.generations}) == 2, out
    finally:
        slurm.cluster.run(["scontrol", "update", f"NodeName={node}", "State=RESUME"], check=False)


def test_ranks_do_not_outlive_their_starter(slurm: Any) -> None:
    slurm.submit(100000, 0.05, options=("--nodes", "2"), sbatch=("--nodes=2",))
    slurm.at_step(20)
    assert slurm.dmr("checkpoint", "run", "--wait").returncode == 0
    first = processes(slurm, "DMR_GENERATION=1")
    assert len(first) == 2
    for pid in [*processes(slurm, "srun"), *processes(slurm, "mpirun")]:
        os.kill(pid, signal.SIGKILL)
    slurm.wait(lambda: len(slurm.events("launched")) == 2, "the next start")
    assert processes(slurm, "DMR_GENERATION=1") == []
    slurm.at_step(21, generation=2)


def test_a_job_that_a_successors_script_submits_starts_a_run_of_its_own(slurm: Any) -> None:
    launch = f"dmr-launch --query-interval 2 --dwell 1h --nodes 1:2 -- {sys.executable} {APP}"
    chain = slurm.folder / "chain.sh"
    chain.write_text(
        "#!/bin/bash\n"
        f"{launch} 100 0.05\n"
        f"if [ ! -e again ]; then touch again; sbatch --nodes=1 --ntasks-per-node=1 --output=again-%j.txt {chain}; fi\n"
    )
    job = slurm.sbatch("--nodes=1", str(chain))
    run = slurm.folder / "dmr-runs" / f"counting-{job}"
    slurm.run = type(slurm.run)(run)
    slurm.at_step(3)
    assert slurm.dmr("resize", str(run), "--nodes", "2", "--wait").returncode == 0
    out = slurm.finished()
    assert [each.nodes for each in slurm.history.generations] == [1, 2], out
    runs = sorted(path.name for path in (slurm.folder / "dmr-runs").iterdir())
    assert len(runs) == 2, f"{runs}\n{out}"


@pytest.mark.parametrize("mpi", ["auto", "mpirun"])
def test_ranks_of_a_first_generation_that_die_before_mpi_is_up_are_started_again(
    slurm: Any, expected_after: Expected, mpi: str
) -> None:
    command = [sys.executable, str(APP.with_name("stumbling.py")), "1", "signal", "20"]
    launch = shlex.join(["dmr-launch", "--mpi", mpi, "--nodes", "2", "--run-dir", "run", "--", *command])
    slurm.sbatch("--nodes=2", f"--wrap={launch}")
    out = slurm.finished()
    assert np.array_equal(slurm.final(), expected_after(20)), out
    assert [each.why for each in slurm.history.generations] == ["not started", "finished"]
    assert slurm.history.crashes == 0 and len({each.job for each in slurm.history.generations}) == 1


def test_a_first_start_that_hangs_shows_its_stacks_and_is_made_again(slurm: Any, expected_after: Expected) -> None:
    command = [sys.executable, str(APP.with_name("stumbling.py")), "1", "hang", "20"]
    launch = shlex.join(["dmr-launch", "--start-within", "4", "--nodes", "2", "--run-dir", "run", "--", *command])
    slurm.sbatch("--nodes=2", f"--wrap={launch}")
    out = slurm.finished()
    assert np.array_equal(slurm.final(), expected_after(20)), out
    assert [each.why for each in slurm.history.generations] == ["hung", "finished"]
    assert out.count("stumbling.py") >= 2, f"no stack of every rank: {out}"
    assert len({each.job for each in slurm.history.generations}) == 1


def test_a_job_whose_run_is_in_another_one_runs_its_script_no_further(slurm: Any) -> None:
    job = slurm.submit(100000, 0.05, options=("--nodes", "2"), sbatch=("--nodes=2",))
    slurm.at_step(5)
    assert slurm.run.take_lease(2, {**slurm.run.read_lease(1), "job": "999999", "token": "other"})
    slurm.wait(lambda: job not in slurm.queue(), "the end of the job")
    assert "another launcher has taken over" in slurm.output()
    assert not (slurm.folder / "post.txt").exists()
    state = slurm.cluster.run(["scontrol", "show", "job", job]).stdout
    assert "JobState=CANCELLED" in state
    assert processes(slurm, "DMR_GENERATION=1") == []


def test_the_status_is_that_of_the_rank_that_failed(slurm: Any) -> None:
    """The other one is ended by a signal, and srun's own status is the greatest of both."""
    program = "import os, sys, time; time.sleep(0 if os.environ['SLURM_PROCID'] == '1' else 60); sys.exit(3)"
    launch = shlex.join(["dmr-launch", "--nodes", "2", "--", sys.executable, "-c", program])
    slurm.sbatch("--nodes=2", f"--wrap={launch}; echo $? > status")
    slurm.wait(lambda: (slurm.folder / "status").exists(), "the end")
    assert (slurm.folder / "status").read_text() == "3\n"
