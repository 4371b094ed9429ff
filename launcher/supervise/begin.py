"""How a launcher comes to a run: a fresh one, as its successor, requeued, or to resume it. Ends in a lease."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..engines.engine import Allocation, Engine, EngineError, Submission
from ..run.history import read_history
from ..run.options import RunOptions
from ..run.registry import register
from ..run.rundir import ENV_GENERATION, ENV_NODES, ENV_RUN_DIR, ENV_TOKEN, RunDir, RunDirError, new_token
from ..slurm.submit import CPUS_PER_TASK, TASKS_PER_NODE
from ..slurm.times import TIME_LIMIT, TIME_MIN
from . import exits
from .arrival import Arrival, Turn
from .console import Console
from .handover import job_name
from .hooks import reached
from .interrupts import Interrupts
from .leave import leave_job
from .owner import OwnerWatch, lease_content, owner_of, slurm_restarts
from .supervisor import Supervisor


class Refused(RunDirError):
    """This launcher must not touch the run; the text says why."""


@dataclass(frozen=True)
class Claim:
    """What the environment of a successor says: the run, and the token that it was submitted under."""

    run: RunDir
    number: int
    token: str

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Claim | None:
        """Return the claim of this job, None when it is nobody's successor.

        Raises
        ------
        Refused
            When this process runs inside a malleable program, or the variables are damaged.
        """
        if ENV_RUN_DIR not in environ:
            return None
        if ENV_NODES in environ:
            raise Refused(
                f"dmr-launch was started inside a program that dmr-launch runs ({environ[ENV_RUN_DIR]}): "
                f"runs don't nest; unset {ENV_RUN_DIR} if that is what you want"
            )
        try:
            return cls(RunDir(Path(environ[ENV_RUN_DIR])), int(environ[ENV_GENERATION]), environ[ENV_TOKEN])
        except (KeyError, ValueError) as error:
            raise Refused(
                f"{ENV_RUN_DIR} is set, but {error} is missing or malformed beside it; unset it to start a new run"
            ) from None


    def belongs_to(self, job: str | None) -> bool:
        """Whether the claim is this job's own. One that a successor's script submits inherits the environment."""
        known = {
            str(each["job"])
            for each in self.run.events(skip=("decided",))
            if each.get("token") == self.token and each.get("event") in ("submitted", "started") and each.get("job")
        }
        return job is None or not known or job in known


def own_claim(environ: MutableMapping[str, str], job: str | None) -> Claim | None:
    """Return this job's own claim; what was said to another job is taken out of the environment.

    Raises
    ------
    Refused
        See `Claim.from_environment`.
    """
    claim = Claim.from_environment(environ)
    if claim is None or claim.belongs_to(job):
        return claim
    forget_claim(environ)
    return None


def forget_claim(environ: MutableMapping[str, str]) -> None:
    """Take out of an environment what was said to another run's successor."""
    for name in (ENV_RUN_DIR, ENV_GENERATION, ENV_TOKEN, TASKS_PER_NODE, CPUS_PER_TASK, TIME_LIMIT, TIME_MIN):
        environ.pop(name, None)


def begin(folder: Path, options: RunOptions, engine: Engine, held: Allocation, console: Console) -> int:
    """Create a run and supervise it on what is held; returns the exit status."""
    run = RunDir.create(folder, {**options.to_json(), "created": time.time(), "engine_used": engine.name})
    console.to_run(run.folder)
    token = new_token()
    if not run.take_lease(1, lease_content(token, held.job, slurm_restarts())):
        raise Refused(f"{run.folder} has just been taken by another launcher")
    run.append(1, "created", run=options.run, nodes=len(held.nodes), command=list(options.command))
    reached("created", 1)
    console.say(f"run {options.run} in {run.folder}")
    register(run)
    _aside(engine, lambda: _keep_origin(run, engine, console))
    return Supervisor(run, options, engine, console, held).run(1, token, "fresh")


def _aside(engine: Engine, work: Callable[[], None]) -> None:
    if engine.can_submit:
        threading.Thread(target=work, name="dmr-origin", daemon=True).start()


def _learn_origin(engine: Engine) -> None:
    """Find out what successors are made from early: near the time limit there may be no time to ask accounting."""
    from ..slurm.engine import SlurmEngine

    if isinstance(engine, SlurmEngine):
        with contextlib.suppress(EngineError):
            engine.origin()


def _keep_origin(run: RunDir, engine: Engine, console: Console) -> None:
    """Keep the job's script in the run directory, so that the run can be resubmitted after the scheduler forgot it.

    Where the scheduler cut the job's time limit, the user is told.
    """
    from ..slurm.engine import SlurmEngine
    from ..slurm.saved import save_origin

    if isinstance(engine, SlurmEngine):
        with contextlib.suppress(EngineError, OSError):
            save_origin(run.folder, engine)
        with contextlib.suppress(EngineError):
            times = engine.asked_times()
            if times.told:
                (console.say if times.known else console.warn)(times.told)


def requeued(run: RunDir, job: str | None, restarts: int) -> Claim | None:
    """Return the claim of a job that held this run before it was requeued, None when it did not."""
    for number in reversed(run.leases()):
        lease = run.read_lease(number) or {}
        if job is not None and lease.get("job") == job and int(lease.get("restarts", 0)) < restarts:
            return Claim(run, number, str(lease.get("token")))
    return None


def arrive(claim: Claim, command: Sequence[str], options: RunOptions, engine: Engine, console: Console) -> int:
    """Take over a run as its successor, or end; returns the exit status.

    Raises
    ------
    Refused
        When this job runs another command than the run's.
    """
    run = claim.run
    if tuple(command) != options.command:
        raise Refused(
            f"this job was submitted to continue {run.folder}, which runs {' '.join(options.command)!r}, "
            f"not {' '.join(command)!r}; keep one dmr-launch to a job script"
        )
    console.to_run(run.folder)
    allocation = engine.allocation()
    arrival = Arrival(
        run, engine, console, claim.token, claim.number, job=allocation.job, restarts=slurm_restarts()
    )
    with Interrupts() as interrupts:
        _get_ready(engine, command)
        arrival.announce(len(allocation.nodes), os.uname().nodename)
        turn = _wait_for(arrival, interrupts)
        if turn is None:
            arrival.withdraw("ended while it waited for its turn")
            return exits.of_signal(interrupts.signal)
        if turn.verdict == "done":
            console.say(turn.reason)
            return exits.FINISHED
        if turn.verdict != "go":
            console.say(f"not taking over: {turn.reason}")
            return leave_job(engine, allocation.job, options.after_handover, console, interrupts)
    cause = _cause(run, claim.token, turn)
    if cause == "requeue":  # a successor was told what may take long to find out
        _aside(engine, lambda: _learn_origin(engine))
    reached("taken", turn.number)
    return Supervisor(run, options, engine, console, allocation).run(turn.number, claim.token, cause)


def _get_ready(engine: Engine, command: Sequence[str]) -> None:
    """Find out how ranks are started before the owner is told to leave: until then the run computes."""
    from ..slurm.engine import SlurmEngine

    if isinstance(engine, SlurmEngine):
        with contextlib.suppress(EngineError):  # the start itself tells, and counts it as what it is
            engine.get_ready(command)


def _wait_for(arrival: Arrival, interrupts: Interrupts) -> Turn | None:
    while not interrupts.count:
        if (turn := arrival.step()) is not None:
            return turn
        time.sleep(0.2)
    return None


def _cause(run: RunDir, token: str, turn: Turn) -> str:
    if turn.reason in ("requeued", "resumed"):
        return turn.reason.removesuffix("d")
    history = read_history(run.events(skip=("decided",)))
    if history.last is not None and history.last.why in ("expand", "shrink", "moved", "time limit"):
        return history.last.why
    return "takeover"


def assess(run: RunDir, engine: Engine | None, job: str | None) -> int:
    """Return the number of the owner that can be followed.

    Raises
    ------
    Refused
        When the run has finished, or its launcher lives.
    """
    owner = owner_of(run)
    if owner is None:
        raise Refused(f"{run.folder} was never started: start it with dmr-launch in another folder")
    history = read_history(run.events(skip=("decided",)))
    if history.finished:
        raise Refused(f"{run.folder} has finished; there is nothing to resume")
    watch = OwnerWatch(run, owner, engine, my_job=job, my_restarts=slurm_restarts())
    if not _has_left(history.last, owner.number) and watch.decide() == "alive":
        raise Refused(f"{run.folder} is alive: {owner.describe()} supervises it; see 'dmr status {run.folder}'")
    return owner.number


def resume_by_job(run: RunDir, options: RunOptions, engine: Engine, console: Console, nodes: int | None = None) -> str:
    """Submit a job that continues a run whose launcher is gone; returns the job.

    The lease is taken for that job before it is submitted, so that of several that try, one submits.

    Raises
    ------
    Refused, EngineError
        As `resume`; or when the scheduler does not take the job.
    """
    history = read_history(run.events(skip=("decided",)))
    pending = history.open_successor
    if pending is not None and not history.finished:
        # A launcher that was killed while it submitted has left no job id.
        info = engine.job(pending.job) if pending.job else engine.find(pending.name)
        if info is not None and info.state in ("pending", "running"):
            raise Refused(f"job {info.job} is {info.state}, and continues {run.folder} when it starts")
        if info is not None and info.state == "unknown":
            raise EngineError(
                f"job {pending.job} may still wait to continue {run.folder}, and the scheduler does not answer: "
                f"try again when it does ({info.reason})"
            )
    number = assess(run, engine, None) + 1
    token = new_token()
    if not run.take_lease(number, lease_content(token, None, 0, queued=True)):
        raise Refused(f"somebody else has just taken over {run.folder}")
    size = nodes or (history.last.nodes if history.last else options.sizes[0])
    name = job_name(options.run, number, token)
    environment = {ENV_RUN_DIR: str(run.folder), ENV_GENERATION: str(number), ENV_TOKEN: token}
    if pending is not None:  # should it turn up after all, it knows that it is not wanted
        run.append(number, "cancelled", token=pending.token, job=pending.job, reason="the run was resumed")
    nodes_asked = (size, size)
    fields: dict[str, Any] = {"token": token, "successor": number, "name": name, "nodes": nodes_asked}
    run.append(number, "submitted", job=None, **fields)
    reached("submitting", number)
    try:
        job = engine.submit(Submission(number, token, name, nodes_asked, environment))
    except EngineError as error:
        run.append(number, "cancelled", token=token, job=None, reason=str(error))
        raise
    run.append(number, "submitted", job=job, **fields)
    return job


def _has_left(last: object, number: int) -> bool:
    from ..run.history import FINAL, GenerationRecord

    return isinstance(last, GenerationRecord) and last.number == number and last.why in FINAL


def resume(
    run: RunDir, options: RunOptions, engine: Engine, console: Console, nodes: int | None = None
) -> int:
    """Continue a run whose launcher is gone, in the foreground; returns the exit status.

    Parameters
    ----------
    nodes
        Size to go on with where there is a choice; None for the last one.

    Raises
    ------
    Refused
        When the run has finished, when its launcher lives, or when another one was quicker.
    """
    held = engine.allocation()
    # An engine without a queue knows nothing of the job that the owner may run in.
    number = assess(run, engine if engine.can_submit else None, held.job) + 1
    reached("resuming", number)
    token = new_token()
    if not run.take_lease(number, lease_content(token, held.job, slurm_restarts())):
        raise Refused(f"another launcher has just taken over {run.folder}")
    console.to_run(run.folder)
    console.say(f"resuming run {options.run} in {run.folder}")
    _aside(engine, lambda: _learn_origin(engine))
    try:
        return Supervisor(run, options, engine, console, held).run(number, token, "resume", nodes)
    except EngineError:
        run.append(number, "ended", why="failed")
        raise
