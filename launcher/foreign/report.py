"""Progress of a program that does not speak: written in its place."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import Any

from ..run.rundir import Generation, Progress, RunDir, SavedCheckpoint
from .catalogue import Record

PERIOD = 1.0
"""Seconds between two reports of nothing but steps."""


class Report:
    """The application's end of the run directory, ``progress.json`` and its events.

    A report is written only when something is new: who waits for progress is not to be deceived by a clock.
    """

    def __init__(self, run: RunDir, name: str, generation: Generation, ranks: int, loaded: Record | None) -> None:
        self._run, self._generation = run, generation
        now = time.time()
        self.progress = Progress(
            name, generation.number, generation.token, "starting", now, ranks=ranks, started=now,
            step=loaded.step if loaded else 0, loaded=saved(loaded) if loaded else None,
        )  # fmt: skip
        self._stepped = time.monotonic()
        self._written: float | None = None
        self._unwritten = True

    def update(self, **fields: Any) -> None:
        """Change fields; at once on disk in another state, or with a request or checkpoint that is new."""
        before = self.progress
        self.progress = dataclasses.replace(before, **fields)
        self._unwritten = self._unwritten or self.progress != before
        urgent = any(
            getattr(before, key) != getattr(self.progress, key)
            for key in ("state", "acknowledged", "checkpoint", "error")
        )
        now = time.monotonic()
        if not self._unwritten or not (urgent or self._written is None or now - self._written >= PERIOD):
            return
        self.progress = dataclasses.replace(self.progress, time=time.time())
        with contextlib.suppress(OSError):  # a full file system must not end the run
            self._run.write_progress(self.progress)
            self._written, self._unwritten = now, False

    def stepped(self, step: int | None, steps: int | None) -> None:
        """Take note of the step that the log tells of, and of how long it took."""
        if step is None:
            return
        before, now = self.progress, time.monotonic()
        rate = before.seconds_per_step
        state = before.state
        if state == "starting":
            state, self._stepped = "running", now
        elif step > before.step:
            rate = (now - self._stepped) / (step - before.step)
        if step != before.step:
            self._stepped = now
        self.update(step=step, steps=steps or before.steps, seconds_per_step=rate, state=state)

    def event(self, name: str, /, **fields: Any) -> None:
        """Append an event of the application to the ledger."""
        with contextlib.suppress(OSError):
            self._run.append(self._generation.number, name, by_app=True, **fields)


def saved(record: Record, seconds: float | None = None) -> SavedCheckpoint:
    """Return a record as the run directory tells of it."""
    return SavedCheckpoint(
        record.name, record.step, record.bytes, 0.0 if seconds is None else seconds, record.time
    )
