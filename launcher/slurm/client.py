"""What is asked of Slurm, behind one Protocol: by its commands here, by pyslurm in `.pyslurm_client`."""

from __future__ import annotations

from typing import Protocol

from . import parse
from .commands import CommandFailed, Commands
from .parse import JobRow, NodeRow


class Client(Protocol):
    """Questions to the controller: one request each, without a second try unless it is said. All raise `Unanswered`."""

    def queue(self) -> list[JobRow]:
        """Return all jobs that pend or hold nodes, of all users and partitions."""

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
        try:
            rows = parse.jobs(self._commands.query(argv, tries=tries).out)
        except CommandFailed as error:
            if error.unknown_job:
                return None
            raise
        return next((row for row in rows if job in (row.raw, *row.ids)), rows[0] if rows else None)
