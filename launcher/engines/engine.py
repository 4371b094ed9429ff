"""What the supervisor needs of a place to run in: Slurm, or this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from ...resize.view import ClusterView

JobState = Literal["pending", "running", "ended", "unknown"]

Ending = Literal["none", "cancelled", "preempted", "requeued", "limit", "unknown"]
"""Why the scheduler ends a job: ``none`` when it does not, ``requeued`` when it starts it again under its id."""


class EngineError(Exception):
    """The engine can't do what was asked; the text says what, where and what to do."""


class ShrinkRefused(EngineError):
    """This site doesn't let a running job give nodes back; a successor can do it instead."""


class SubmitRefused(EngineError):
    """The scheduler answered the submission with a no (limits, bad options)."""


class Unanswered(EngineError):
    """The scheduler did not answer in time. Whether it acted is unknown: look before a retry."""


@dataclass(frozen=True)
class Allocation:
    """Nodes that this launcher holds.

    ``nodes`` are in the engine's order, the one that the launcher runs on first. ``end`` is the unix
    time at which the allocation ends, None when it has no limit.
    """

    job: str | None
    nodes: tuple[str, ...]
    tasks_per_node: int
    cpus_per_task: int | None = None
    end: float | None = None


@dataclass(frozen=True)
class Launch:
    """One start of the application's ranks.

    ``prefix`` goes before the command on each rank, and becomes it. ``environment`` is added to the inherited one.
    ``log`` is the file that the ranks' output is appended to beside the launcher's own standard output; None to
    inherit both streams.
    """

    command: Sequence[str]
    allocation: Allocation
    environment: Mapping[str, str]
    folder: Path
    log: Path | None = None
    prefix: Sequence[str] = ()


class Ranks(Protocol):
    """The running ranks of one generation."""

    def poll(self) -> int | None:
        """Return the exit status, None while they run. Never blocks."""

    def terminate(self) -> None:
        """Ask all ranks to end (SIGTERM)."""

    def kill(self) -> None:
        """End all ranks on all nodes, and wait until they are gone (bounded)."""

    def dump(self) -> None:
        """Ask all ranks to write their stacks to standard error (SIGUSR2); for programs that speak to the launcher."""

    def signal(self, name: str) -> bool:
        """Send a signal (``USR1``) to all ranks; False when that could not be done."""


@dataclass(frozen=True)
class JobInfo:
    """What the scheduler says of one job.

    ``nodes`` is the size held, or asked for while pending. ``outcome`` is how an ended job ended: Slurm's state in
    lower case (``completed``, ``cancelled``, ``failed``, ``timeout``, ``preempted``, ``node_fail``,
    ``out_of_memory`` …), empty where the scheduler knows nothing of the job any more.
    """

    job: str
    state: JobState
    nodes: int = 0
    reason: str = ""
    start: float | None = None
    end: float | None = None
    outcome: str = ""


@dataclass(frozen=True)
class Submission:
    """A successor to be submitted.

    ``nodes`` is (minimum, maximum). ``after`` is a job that has to end first (a chain), None to start as
    soon as there is room (make before break). ``name`` carries run, generation and token, so that
    a submission whose answer was lost can be found again. ``limit`` is a time limit in seconds that is shorter
    than the user's own, so that the job fits before another one that waits; None for the user's own. ``whole``: the
    scheduler is not to cut the time limit, though the user lets it (``--time-min``).
    """

    generation: int
    token: str
    name: str
    nodes: tuple[int, int]
    environment: Mapping[str, str]
    after: str | None = None
    options: Sequence[str] = field(default=())
    limit: float | None = None
    whole: bool = False


class Engine(Protocol):
    """A place to run in. Every call is bounded in time; none retries a call that may have acted."""

    name: str
    can_submit: bool
    """Whether a successor can be submitted; without it, every resize is a relaunch in place."""

    @property
    def no_shrink(self) -> str | None:
        """Why the job can't give nodes back, None as far as is known. Asks nobody."""

    def allocation(self) -> Allocation:
        """Return what this launcher holds now."""

    def observe(self) -> ClusterView | None:
        """Ask the scheduler once for nodes and queue; None when it did not answer."""

    def start(self, launch: Launch) -> Ranks:
        """Start the application's ranks on the nodes of the launch's allocation."""

    def resize_in_place(self, allocation: Allocation, nodes: int) -> Allocation:
        """Give nodes back (Slurm), or take any size up to the machine's (local); returns what is held then.

        Raises
        ------
        ShrinkRefused
            When the site forbids it, or when it would have to grow.
        """

    def submit(self, submission: Submission) -> str:
        """Submit a successor; returns its job id.

        Raises
        ------
        SubmitRefused, Unanswered
        """

    def foresee(self, submission: Submission) -> float | None:
        """Return when the scheduler would start a submission, in unix seconds; None where it doesn't say."""

    def find(self, name: str) -> JobInfo | None:
        """Look for a job of this user by its exact name, None when there is none.

        Raises
        ------
        Unanswered
        """

    def job(self, job: str) -> JobInfo:
        """Return the state of a job; ``unknown`` when the scheduler did not answer."""

    def resize_pending(self, job: str, nodes: tuple[int, int]) -> None:
        """Change what a pending job asks for."""

    def cancel(self, job: str) -> None:
        """Cancel a job; quiet when it has ended already."""

    def ending(self) -> Ending:
        """Return why the scheduler ends, or is about to end, this launcher's own job. Answers within seconds."""

    def survivors(self, allocation: Allocation) -> Allocation:
        """Return what is left of an allocation after a failure: without nodes that are lost, or don't respond."""

    def silent(self, allocation: Allocation) -> tuple[str, ...]:
        """Return the nodes of an allocation that don't answer for now, and that the scheduler has not given up."""
