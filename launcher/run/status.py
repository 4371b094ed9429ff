"""What a run is doing, from its directory alone: no scheduler is asked."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from ..supervise.owner import SILENT, Owner, owner_of
from .history import FINAL, GenerationRecord, History, read_history
from .identity import lives
from .newest import newest_checkpoint
from .rundir import LauncherState, Progress, RunDir

LIVE = frozenset({"starting", "running", "saving", "leaving", "queued"})
"""States of a run that goes on by itself."""
RECENT = SILENT
"""A sign of life of that age in seconds, by this machine's clock, still counts: a launcher that waits for an answer of
its scheduler gives none meanwhile, and is not to be told gone before `dmr resume` would take it for that."""


FEW_STEPS = 10
"""What is told from fewer steps is said to be."""


@dataclass(frozen=True)
class RunStatus:
    """One run now.

    ``state`` is ``starting``, ``running``, ``saving``, ``leaving``, ``queued`` (the run waits in the scheduler's
    queue), one of the final ones ``finished``, ``stopped``, ``failed``, or ``lost`` (its launcher is gone). Seconds
    and unix seconds; None where unknown. ``checkpoint_fast``: the checkpoint is on a node, and not yet in the run
    directory; ``checkpoint_raw_bytes``: what it would have without compression. ``phase_confidence``: how surely a
    phase was recognised that the program does not declare, from 0 to 1; with it and no ``phase`` it does what no known
    phase does. ``remaining`` is by the mean speed of this generation, ``remaining_steps`` how many steps that was seen
    over so far.
    """

    run: str
    folder: str
    state: str
    generation: int = 0
    nodes: int | None = None
    ranks: int | None = None
    job: str | None = None
    host: str | None = None
    step: int | None = None
    steps: int | None = None
    seconds_per_step: float | None = None
    remaining: float | None = None
    remaining_steps: int | None = None
    phase: str | None = None
    phase_confidence: float | None = None
    checkpoint: str | None = None
    checkpoint_time: float | None = None
    checkpoint_fast: bool = False
    checkpoint_bytes: int | None = None
    checkpoint_raw_bytes: int | None = None
    checkpoint_seconds: float | None = None
    checkpoint_compress_seconds: float | None = None
    pending_nodes: int | None = None
    pending_job: str | None = None
    pending_since: float | None = None
    resizes: int = 0
    crashes: int = 0
    node_hours: float = 0.0
    queries: int = 0
    updated: float | None = None
    error: str | None = None
    engine: str | None = None
    """The one that the run was begun with: ``slurm``, ``local``, ``held``."""


def events_without_decisions(run: RunDir) -> History:
    """Return the history; decisions, the longest lines by far, are left out."""
    return read_history(run.events(skip=("decided",)))


def history_now(run: RunDir) -> History:
    """Return the history, with the step that the generation which runs has come to."""
    found, progress = events_without_decisions(run), run.read_progress()
    last = found.last
    if last is None or last.end is not None or progress is None:
        return found
    if (progress.generation, progress.token) != (last.number, last.token) or progress.state == "starting":
        return found
    now = replace(last, step=progress.step, seconds_per_step=last.seconds_per_step or progress.seconds_per_step)
    return replace(found, generations=(*found.generations[:-1], now))


def read_status(run: RunDir, now: float | None = None) -> RunStatus:
    """Return the state of a run.

    Raises
    ------
    RunDirError
        When it is no run.
    """
    now = time.time() if now is None else now
    description = run.description()
    history, owner = events_without_decisions(run), owner_of(run)
    progress, launcher = run.read_progress(), run.read_launcher()
    last = history.last
    number = owner.number if owner else 0
    mine = progress if progress is not None and progress.generation == number else None
    state = _state(history, owner, mine, launcher, now)
    live = state in ("running", "saving", "leaving")
    seconds = mine.seconds_per_step if mine is not None and mine.seconds_per_step else None
    if seconds is None and last is not None:
        seconds = last.seconds_per_step
    step = progress.step if progress is not None else last.step if last else None
    left = progress.steps - progress.step if progress is not None and progress.steps is not None else None
    pace, seen = _pace(last, mine) if live else (None, None)
    pace = seconds if pace is None else pace
    phase, sure = _phase(progress, launcher, number) if live else (None, None)
    pending = history.open_successor if state not in ("finished", "failed", "stopped") else None
    saved = (progress.checkpoint if progress is not None else None) or newest_checkpoint(run)
    return RunStatus(
        run=str(description.get("run", run.folder.name)),
        folder=str(run.folder),
        state=state,
        generation=number,
        nodes=last.nodes if last else None,
        ranks=progress.ranks if live and progress is not None else None,
        job=owner.job if owner else None,
        host=owner.lease.get("host") if owner else None,
        step=step,
        steps=progress.steps if progress is not None else None,
        seconds_per_step=seconds,
        remaining=pace * left if live and pace is not None and left is not None else None,
        remaining_steps=seen,
        phase=phase,
        phase_confidence=sure,
        checkpoint=saved.name if saved else None,
        checkpoint_time=saved.time if saved else None,
        checkpoint_fast=saved.fast if saved else False,
        checkpoint_bytes=saved.bytes if saved else None,
        checkpoint_raw_bytes=(saved.raw_bytes or saved.bytes) if saved else None,
        checkpoint_seconds=saved.seconds if saved else None,
        checkpoint_compress_seconds=saved.compress_seconds if saved else None,
        pending_nodes=pending.nodes[1] if pending else None,
        pending_job=pending.job if pending else None,
        pending_since=pending.submitted if pending else None,
        resizes=history.resizes,
        crashes=history.crashes,
        node_hours=history.node_hours(now if state in LIVE else _last_sign(mine, launcher, now)),
        queries=max(history.queries, launcher.queries if launcher else 0),
        updated=mine.time if mine is not None else launcher.time if launcher else None,
        error=mine.error if mine is not None else None,
        engine=description.get("engine_used"),
    )


def _pace(last: GenerationRecord | None, mine: Progress | None) -> tuple[float | None, int | None]:
    """Return the mean seconds a step of this generation, None where too few were done, and how many were."""
    if last is None or mine is None or last.number != mine.generation or last.first_step is None:
        return None, None
    done, begun = mine.step - last.first_step, last.start + (last.launch or 0.0) + (last.load or 0.0)
    return (mine.time - begun) / done if done >= FEW_STEPS and mine.time > begun else None, done


def _last_sign(progress: Progress | None, launcher: LauncherState | None, now: float) -> float:
    """Return when a run whose launcher is gone last gave a sign of life."""
    return min(now, max((each.time for each in (progress, launcher) if each is not None), default=0.0))


def _phase(
    progress: Progress | None, launcher: LauncherState | None, number: int
) -> tuple[str | None, float | None]:
    """Return the phase that the program declared, or else the one that its launcher recognised, and how surely."""
    if progress is not None and progress.phase is not None:
        return progress.phase, None
    if launcher is None or launcher.generation != number:
        return None, None
    return launcher.phase, launcher.phase_confidence


def phase_words(phase: str | None, confidence: float | None) -> str:
    """Return a phase, and how surely it was recognised, in words; ``-`` where nothing is known."""
    if confidence is None:
        return phase or "-"
    return f"{phase} ({confidence:.0%} sure)" if phase is not None else "like none known"


def _state(
    history: History, owner: Owner | None, progress: Progress | None, launcher: LauncherState | None, now: float
) -> str:
    if owner is None:
        return "starting"
    last, alive = history.last, owner_lives(owner, launcher, now)
    why = last.why if last is not None and last.number == owner.number else None
    if why in FINAL:
        return why or "failed"
    if owner.queued and owner.job:
        return "queued"
    if why is not None and history.open_successor and (not alive or history.open_successor.after is not None):
        return "queued"
    if not alive:
        return "lost"
    return progress.state if progress is not None else "starting"


def owner_lives(owner: Owner, launcher: LauncherState | None, now: float) -> bool:
    """Judge at a glance whether the launcher lives; `.owner.OwnerWatch` is the careful way."""
    here = lives(owner.lease)
    if here is not None:
        return here
    signs = [float(owner.lease.get("time", 0.0))]
    if launcher is not None and launcher.generation == owner.number:
        signs.append(launcher.time)
    return abs(now - max(signs)) < RECENT
