"""How a launcher leaves a job whose run goes on, or has ended, in another one."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ..engines.engine import Engine, EngineError
from . import exits
from .console import Console
from .interrupts import Interrupts

TRIES = 5
SECONDS_TO_END = 60.0
"""How long a cancelled job may take until this process is told."""


def in_batch_job(environ: Mapping[str, str]) -> bool:
    """Whether this process runs in a batch script, rather than in somebody's interactive allocation."""
    return "SLURM_JOB_ID" in environ and environ.get("ENVIRONMENT") == "BATCH"


def leave_job(engine: Engine, job: str | None, how: str, console: Console, interrupts: Interrupts) -> int:
    """End this job, so that what comes after dmr-launch in its script does not run on an unfinished run.

    Parameters
    ----------
    how
        ``cancel`` this job, or ``exit`` at once.

    Returns
    -------
    int
        The exit status for this launcher.
    """
    if job is None or how == "exit":
        return exits.FINISHED
    for attempt in range(1, TRIES + 1):
        if attempt > 1 and engine.job(job).state == "ended":
            return exits.UNFINISHED  # it outlives its job
        told = interrupts.count
        try:
            engine.cancel(job)
        except EngineError as error:
            # The scancel may itself have been ended by what it did.
            console.detail(f"could not cancel this job yet: {error}")
            patience = 5.0 * attempt
        else:
            patience = SECONDS_TO_END
        until = time.monotonic() + patience
        while time.monotonic() < until:
            if interrupts.count > told:
                return exits.of_signal(interrupts.signal)
            time.sleep(0.1)
    console.warn(f"could not cancel this job, {job}, whose run goes on elsewhere")
    return exits.UNFINISHED
