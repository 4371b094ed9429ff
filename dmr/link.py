"""Rank 0's end of the run directory: what the launcher asks, and what it is told."""

from __future__ import annotations

import dataclasses
import os
import time
from typing import Any

from .launcher.run.rundir import Control, Generation, LauncherState, Progress, RunDir, SavedCheckpoint


class Link:
    """Reads the launcher's requests and reports progress. Lives on rank 0 alone; never waits.

    A file system that fails for a moment doesn't stop the program: a report that can't be written is
    tried again at the next safe point.

    Parameters
    ----------
    generation
        Whose run directory it is.
    ranks
        How many there are.
    period
        Least seconds between two reports that carry no news but the step.
    """

    def __init__(self, generation: Generation, ranks: int, period: float) -> None:
        self._period = period
        self.run_dir = RunDir(generation.folder)
        self.generation = generation
        before = self.run_dir.read_progress()
        self.progress = Progress(
            run=self.run_dir.description().get("run", ""),
            generation=generation.number,
            token=generation.token,
            state="starting",
            time=time.time(),
            pid=os.getpid(),
            ranks=ranks,
            started=time.time(),
            acknowledged=before.acknowledged if before else 0,
            checkpoint=before.checkpoint if before else None,
        )
        self._written = 0.0
        self.report(now=True)

    def request(self) -> Control | None:
        """Return the request that is to be acted on now, None when there is none."""
        try:
            control = self.run_dir.read_control()
        except OSError:
            return None
        if control is None or control.generation != self.generation.number:
            return None
        return control if control.id > self.progress.acknowledged else None

    def launcher(self) -> LauncherState | None:
        """Return what the launcher last said of itself."""
        try:
            return self.run_dir.read_launcher()
        except OSError:
            return None

    def update(self, *, now: bool = False, **fields: Any) -> None:
        """Change fields of the report; written at once with ``now`` or in another state, else once in a period."""
        now = now or fields.get("state", self.progress.state) != self.progress.state
        self.progress = dataclasses.replace(self.progress, **fields)
        self.report(now=now)

    def report(self, *, now: bool) -> None:
        clock = time.monotonic()
        if not now and clock - self._written < self._period:
            return
        self.progress = dataclasses.replace(self.progress, time=time.time())
        try:
            self.run_dir.write_progress(self.progress)
        except OSError:
            return
        self._written = clock

    def event(self, name: str, /, **fields: Any) -> None:
        """Append an event of the application to the ledger."""
        try:
            self.run_dir.append(self.generation.number, name, by_app=True, **fields)
        except OSError:
            return

    def saved(self, checkpoint: SavedCheckpoint, request: int) -> None:
        """Report a committed checkpoint, and that the request for it is served."""
        self.update(
            now=True,
            checkpoint=checkpoint,
            state_bytes=checkpoint.raw_bytes or checkpoint.bytes,
            acknowledged=max(request, self.progress.acknowledged),
            error=None,
        )
        self.event("checkpoint", **{**dataclasses.asdict(checkpoint), "time": checkpoint.time})

    def drained(self, checkpoint: SavedCheckpoint) -> None:
        """Report that a checkpoint is in the run directory, too."""
        last = self.progress.checkpoint
        if last is not None and last.name == checkpoint.name:
            last = dataclasses.replace(last, fast=False)
        self.update(now=True, checkpoint=last, drain_seconds=checkpoint.seconds, error=None)
        self.event("drained", **dataclasses.asdict(checkpoint))

    def failed(self, request: int, step: int, why: str) -> None:
        """Report that a checkpoint could not be made, and that the program goes on without it."""
        self.update(now=True, state="running", acknowledged=max(request, self.progress.acknowledged), error=why)
        self.event("checkpoint failed", step=step, error=why)
