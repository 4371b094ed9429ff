"""What is asked of Slurm, behind one Protocol: by its commands, or through pyslurm."""

from __future__ import annotations

import importlib.util
import sys
from typing import Protocol

from ..engines.engine import EngineError
from . import parse
from .commands import CommandFailed, Commands
from .parse import JobRow, NodeRow

CLIENTS = ("commands", "pyslurm")
ENV_CLIENT = "DMR_SLURM_CLIENT"
"""Variable that chooses the client of a run; its successors inherit it."""


class Client(Protocol):
    """Questions to the controller: one request each, without a second try unless it is said. All raise `Unanswered`."""

    def queue(self) -> list[JobRow]:
        """Return all jobs that pend or hold nodes, of all users and partitions; ended ones may be among them."""

    def nodes(self) -> list[NodeRow]:
        """Return all nodes, once for each of their partitions."""

    def jobs_of(self, user: str) -> list[JobRow]:
        """Return a user's jobs, those that ended a short while ago included (Slurm's MinJobAge)."""

    def job(self, job: str, *, tries: int = 1) -> JobRow | None:
        """Return one job, None when Slurm doesn't know it (any more)."""


class CommandClient:
    """Asks with squeue and sinfo."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def queue(self) -> list[JobRow]:
        return parse.jobs(self._commands.query(["squeue", "-h", "-a", "-O", parse.QUEUE_FORMAT]).out)

    def nodes(self) -> list[NodeRow]:
        return parse.nodes(self._commands.query(["sinfo", "-h", "-a", "-N", "-o", parse.NODE_FORMAT]).out)

    def jobs_of(self, user: str) -> list[JobRow]:
        argv = ["squeue", "-h", "-a", "-t", "all", "-u", user, "-O", parse.QUEUE_FORMAT]
        return parse.jobs(self._commands.query(argv).out)

    def job(self, job: str, *, tries: int = 1) -> JobRow | None:
        argv = ["squeue", "-h", "-a", "-t", "all", "-j", job, "-O", parse.QUEUE_FORMAT]
        return _only(self._commands, argv, job, tries)


class PyslurmClient:
    """Asks through pyslurm, in a process of its own for each question, see `.pyslurm_worker`.

    Raises
    ------
    EngineError
        When pyslurm is not installed.
    """

    def __init__(self, commands: Commands) -> None:
        if importlib.util.find_spec("pyslurm") is None:
            raise EngineError(
                f"pyslurm is not installed beside this launcher: install the release that fits the Slurm here, "
                f"or unset {ENV_CLIENT} to ask with Slurm's commands"
            )
        self._commands = commands
        self._worker = [sys.executable, "-m", "dmr.launcher.slurm.pyslurm_worker"]

    def queue(self) -> list[JobRow]:
        return parse.jobs(self._commands.query([*self._worker, "queue"], name="pyslurm").out)

    def nodes(self) -> list[NodeRow]:
        return parse.nodes(self._commands.query([*self._worker, "nodes"], name="pyslurm").out)

    def jobs_of(self, user: str) -> list[JobRow]:
        return [row for row in self.queue() if row.user == user]

    def job(self, job: str, *, tries: int = 1) -> JobRow | None:
        master, _, task = job.partition("_")
        if not task:
            return _only(self._commands, [*self._worker, "job", job], job, tries, "pyslurm")
        # pyslurm loads a task by an id that only the queue tells.
        rows = parse.jobs(self._commands.query([*self._worker, "queue"], tries=tries, name="pyslurm").out)
        return next((row for row in rows if job in row.ids), None)


def find_client(choice: str, commands: Commands) -> Client:
    """Return the client of this name.

    Raises
    ------
    EngineError
        When there is none of it, or it is not installed.
    """
    if choice not in CLIENTS:
        raise EngineError(f"unknown Slurm client {choice!r} in {ENV_CLIENT}: choose one of {', '.join(CLIENTS)}")
    return PyslurmClient(commands) if choice == "pyslurm" else CommandClient(commands)


def _only(commands: Commands, argv: list[str], job: str, tries: int, name: str | None = None) -> JobRow | None:
    try:
        rows = parse.jobs(commands.query(argv, tries=tries, name=name).out)
    except CommandFailed as error:
        if error.unknown_job:
            return None
        raise
    return next((row for row in rows if job in (row.raw, *row.ids)), rows[0] if rows else None)
