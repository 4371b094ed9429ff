"""What Slurm recorded of jobs that have run: the rows of its accounting."""

from __future__ import annotations

from collections.abc import Sequence

from ..engines.engine import EngineError
from .commands import Commands

COLUMNS = (
    "JobIDRaw", "JobName", "Partition", "State", "Submit", "Eligible", "Start", "End", "NNodes", "NodeList",
    "ElapsedRaw", "TotalCPU", "MaxRSS", "NTasks", "AllocCPUS", "ExitCode",
)  # fmt: skip
RUNNING = ("JobID", "NTasks", "AveCPU", "MaxRSS")
SECONDS = 10.0


def ask_accounting(commands: Commands, jobs: Sequence[str]) -> str | None:
    """Return what ``sacct -P`` prints of jobs, all their starts included; None where there is no accounting.

    Parameters
    ----------
    jobs
        Ids of jobs.
    """
    argv = ["sacct", "--parsable2", "--duplicates", f"--jobs={','.join(jobs)}", f"--format={','.join(COLUMNS)}"]
    try:
        return commands.query(argv, seconds=SECONDS).out
    except EngineError:
        return None


def ask_running(commands: Commands, job: str) -> str | None:
    """Return what ``sstat -P`` prints of the steps of a job that runs; None where Slurm gathers nothing."""
    argv = ["sstat", "--parsable2", "--allsteps", f"--jobs={job}", f"--format={','.join(RUNNING)}"]
    try:
        return commands.query(argv, seconds=SECONDS).out
    except EngineError:
        return None
