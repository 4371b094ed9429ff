"""How often a run asks the scheduler: counted by wrappers around Slurm's commands."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

Expected = Callable[[int], np.ndarray]
COMMANDS = ("squeue", "sinfo", "scontrol", "sbatch", "scancel", "sacctmgr", "sprio", "srun")


def counted(slurm: Any) -> str:
    """Put a wrapper before each of Slurm's commands; returns what a job script has to begin with."""
    folder = slurm.folder / "bin"
    folder.mkdir()
    for command in COMMANDS:
        real = slurm.cluster.run(["bash", "-c", f"type -P {command}"], check=False).stdout.strip()
        if real:
            (folder / command).write_text(f'#!/bin/sh\necho {command} "$1" >> {slurm.folder}/calls\nexec {real} "$@"\n')
            (folder / command).chmod(stat.S_IRWXU)
    return f"export PATH={folder}:$PATH"


def calls(slurm: Any) -> Counter[str]:
    return Counter(line.split()[0] for line in (slurm.folder / "calls").read_text().splitlines())


def test_a_run_that_keeps_its_size_hardly_asks(slurm: Any, expected_after: Expected) -> None:
    options = ("--nodes", "1:4", "--policy", "static", "--query-interval", "60")
    slurm.submit(300, 0.05, options=options, sbatch=("--nodes=2",), before=counted(slurm))
    out = slurm.finished()
    assert np.array_equal(slurm.final(), expected_after(300)), out
    made = calls(slurm)
    # What is held, whether the sizes can be had, one look at the queue.
    assert made["squeue"] + made["sinfo"] <= 6, made
    assert made["scontrol"] <= 5 and made["sbatch"] == made["scancel"] == 0, made
    assert made.total() <= 14, made
    assert slurm.history.queries == 1


def test_a_change_of_size_costs_few_requests(slurm: Any, expected_after: Expected) -> None:
    options = ("--nodes", "1:4", "--query-interval", "60", "--dwell", "1h")
    slurm.submit(300, 0.05, options=options, sbatch=("--nodes=2",), before=counted(slurm))
    slurm.at_step(3)
    for nodes in ("1", "3"):
        assert slurm.dmr("resize", "run", "--nodes", nodes, "--wait").returncode == 0
    out = slurm.finished()
    assert np.array_equal(slurm.final(), expected_after(300)), out
    made = calls(slurm)
    assert [each.nodes for each in slurm.history.generations] == [2, 1, 3]
    assert made["sbatch"] == 1, made
    assert made.total() <= 34, made


def test_a_dry_run_tells_what_would_be_submitted_and_decided(slurm: Any) -> None:
    slurm.submit(10, options=("--nodes", "1:4", "--dry-run"), sbatch=("--nodes=2", "--comment=mine"), after="")
    slurm.wait(lambda: not slurm.queue(), "the end of the job")
    out = slurm.output()
    assert "sizes:         1:4 nodes, begins with 2" in out, out
    assert "successor:     DMR_RUN_DIR=" in out and "sbatch --parsable --nodes=4" in out, out
    assert "policy queue: " in out and "ends in" in out, out
    assert not (slurm.folder / "run").exists()
