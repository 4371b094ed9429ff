"""The steps of a job: found by name, and ended."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..engines.engine import EngineError
from . import parse
from .commands import CommandFailed, Commands

# Steps that the starters of Open MPI and Hydra make for their daemons on the other nodes.
DAEMONS = frozenset(("orted", "prted", "hydra_pmi_proxy", "hydra_bstrap_proxy", "pmi_proxy"))


def list_steps(commands: Commands, job: str, seconds: float) -> list[tuple[str, str]]:
    """Return id and name of the numbered steps that run in a job; those of batch script and shell are not numbered.

    Parameters
    ----------
    seconds
        How long the question may take.

    Raises
    ------
    Unanswered
    """
    try:
        answer = commands.query(["squeue", "-h", "-s", "-j", job, "-o", parse.STEP_FORMAT], seconds=seconds)
    except CommandFailed:
        return []
    return [(step, name) for step, name in parse.steps(answer.out) if step.rpartition(".")[2].isdecimal()]


def signal_steps(commands: Commands, job: str, label: str, name: str, seconds: float) -> bool:
    """Send a signal to all tasks of a job's steps of one name; False when there is none, or no answer came."""
    try:
        found = [step for step, each in list_steps(commands, job, seconds / 2) if each == label]
        if found:
            commands.act(["scancel", f"--signal={name}", *found], seconds=seconds / 2)
    except EngineError:
        return False
    return bool(found)


def sweeper(commands: Commands, job: str, label: str) -> Callable[[float], None]:
    """Return what ends a start's steps and waits until the nodes are free of them, within the seconds it is given."""

    def sweep(seconds: float) -> None:
        until = time.monotonic() + seconds
        pause = 0.1
        while True:
            remaining = max(1.0, until - time.monotonic())
            try:
                found = list_steps(commands, job, remaining)
                left = [step for step, name in found if name == label or name in DAEMONS]
                if not left:
                    return
                commands.act(["scancel", "--signal=KILL", *left], seconds=max(1.0, until - time.monotonic()))
            except EngineError:
                pass  # the controller is away; the processes of this machine are ended all the same
            if time.monotonic() + pause > until:
                return
            time.sleep(pause)
            pause = min(1.0, 2 * pause)

    return sweep
