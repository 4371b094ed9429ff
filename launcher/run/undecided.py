"""Why a run has no decision yet, and when the first one comes."""

from __future__ import annotations

from .options import RunOptions
from .rundir import RunDir, RunDirError
from .status import read_status


def why_undecided(run: RunDir) -> str:
    """Return it in one sentence."""
    try:
        options, status = RunOptions.of_run(run), read_status(run)
    except RunDirError:
        return f"no decision of {run.folder} is recorded"
    head = f"no decision yet in {status.run}: "
    if options.rigid:
        return f"{head}it has one size only, so that there is nothing to decide (--nodes MIN:MAX allows others)"
    asked = "the scheduler is asked" if status.engine == "slurm" else "this machine is looked at"
    if status.state in ("starting", "queued"):
        return f"{head}the first one comes with the program's first steps, when {asked}"
    if status.state in ("running", "saving", "leaving"):
        return f"{head}the first one comes as soon as there is an answer: {asked} every {options.query_interval:g} s"
    return f"{head}it ended before {asked}"
