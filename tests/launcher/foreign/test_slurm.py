"""A signal reaches the ranks on all nodes of a real Slurm, and nothing is lost over a successor and a shrink."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent

APP = """
[checkpoint]
files = ["restart.{step}"]
request = "signal"
signal = "USR1"
settle = 0.3
[restart]
append = ["--start", "{checkpoint}"]
[progress]
step = '^step (\\d+)'
finished = '^all done'
"""


@pytest.mark.parametrize("mpi", ["srun", "mpirun"])
def test_a_signal_reaches_the_ranks(slurm: Any, mpi: str) -> None:
    (slurm.folder / "app.toml").write_text(APP)
    program = [sys.executable, str(HERE / "program.py"), "600", "--sleep", "0.03", "--signal", "USR1"]
    options = ["--mpi", mpi, "--nodes", "1:3", "--query-interval", "2", "--dwell", "1h", "--run-dir", "run"]
    launch = shlex.join(["dmr-launch", *options, "--app", "app.toml", "--", *program])
    (slurm.folder / "job.sh").write_text(f"#!/bin/bash\n{launch}\n")
    slurm.cluster.run(
        ["sbatch", "--time=10", "--nodes=2", "--ntasks-per-node=1", "--output=out-%j.txt", "job.sh"],
        cwd=slurm.folder,
        env={"PATH": f"{BIN}:{slurm.cluster.env['PATH']}", "OMPI_ALLOW_RUN_AS_ROOT": "1",
             "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
    )  # fmt: skip
    slurm.at_step(5)
    for nodes in (3, 1):
        answer = slurm.dmr("resize", "run", "--nodes", str(nodes), "--wait")
        assert answer.returncode == 0, answer.stdout + answer.stderr + slurm.output()
    out = slurm.finished()
    generations = slurm.history.generations
    assert [each.nodes for each in generations] == [2, 3, 1], out
    assert slurm.history.crashes == 0 and "will be done again" not in out
    assert all(f"{ranks} ranks, 600 steps in all" in out for ranks in (2, 3, 1))
    value = 1
    for step in range(600):
        value = (value * 6364136223846793005 + step + 1442695040888963407) % 2**64
    assert (slurm.folder / "final.txt").read_text() == str(value)
