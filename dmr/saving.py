"""When a run saves, how, and what the launcher hears of it."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from .ckpt import CheckpointError, Fenced, Level, Moment, NotDrained, Store, Writer
from .launcher.run.rundir import Generation, RunDir, SavedCheckpoint
from .link import Link
from .safepoint import Ask, Order
from .settings import Settings
from .world import SingleProcess


class Saver:
    """Saves the state of a run. Making it, and every method not said otherwise, is collective.

    Parameters
    ----------
    generation
        Whose run directory is saved to.
    comm
        The run's own communicator.
    settings
        Of the run.
    link
        Rank 0's end of the run directory, None on other ranks.
    """

    def __init__(self, generation: Generation, comm: Any, settings: Settings, link: Link | None) -> None:
        self._settings, self._link = settings, link
        self._rank = comm.Get_rank()
        self._store = _open_store(generation, comm, settings)
        self._last = Moment(0, time.monotonic())
        self._cost: float | None = None

    def load_newest(self) -> Any:
        """Return the newest good checkpoint, None when there is none."""
        loaded = self._store.load_newest()
        self._last = Moment(loaded.step if loaded else 0, time.monotonic())
        if self._link and loaded:
            entry = _entry(loaded, fast=loaded.path.parent == self._store.fast)
            self._link.update(now=True, loaded=entry, step=loaded.step, state_bytes=loaded.raw_bytes)
        return loaded

    def due(self, step: int) -> bool:
        """Whether a checkpoint is due by the settings. Not collective."""
        now = Moment(step, time.monotonic())
        every, rule = self._settings.every_steps, self._settings.rule
        by_steps = every is not None and step > self._last.step and step % every == 0
        return by_steps or (rule is not None and rule.due(now, self._last, self._cost))

    def steps_left(self, step: int) -> int | None:
        """Return the steps until a checkpoint is due by steps, None when none is. Not collective."""
        every = self._settings.every_steps
        return None if every is None else every - step % every

    @property
    def busy(self) -> bool:
        """Whether this rank is saving in the background. Not collective."""
        return self._store.saving

    def save(self, step: int, items: dict[str, Any], info: Any, order: Order) -> bool:
        """Make a checkpoint; False when that failed and the program goes on without it.

        In the background where that was asked for and nobody waits for it. To the fast folder where there is one,
        unless it was asked for or the program goes on elsewhere.

        Raises
        ------
        CheckpointError
            When the program may not go on: a later generation has taken over, or it was to stop.
        """
        self.collect()
        behind = self._settings.background and order.request == 0 and not order.leaves
        if self._link:
            self._link.update(state="saving", step=step)
        try:
            if behind:
                self._store.save_later(step, items, info)
                self._last = Moment(step, time.monotonic())
                if self._link:
                    self._link.update(state="running")
                return True
            self._done(self._store.save(step, items, info, level=_level(order)), order.request)
        except CheckpointError as error:
            if isinstance(error, Fenced) or order.ask is Ask.STOP:
                raise
            self._failed(step, error, order.request)
            return False
        return True

    def collect(self) -> None:
        """Take note of what became of a save or copy in the background; waits for it where it is still under way.

        Raises
        ------
        Fenced
            When a later generation has taken over.
        """
        before = self._store.drained
        if self._link and self._store.saving:
            self._link.update(state="saving")
        try:
            saved = self._store.wait()
        except Fenced:
            raise
        except NotDrained as error:
            self._say(f"dmr: going on, although {error}")
            if self._link:
                self._link.failed(0, self._last.step, str(error))
        except CheckpointError as error:
            self._failed(self._last.step, error, 0)
        else:
            if saved is not None:
                self._done(saved, 0)
        drained = self._store.drained
        if self._link and drained is not None and drained is not before:
            self._link.drained(_entry(drained))

    def close(self) -> None:
        """Wait for a save in the background, and let go of the communicator."""
        self.collect()
        self._store.close()

    def _done(self, saved: Any, request: int) -> None:
        self._cost = saved.seconds
        self._last = Moment(max(saved.step, self._last.step), time.monotonic())
        if self._link:
            self._link.saved(_entry(saved, fast=saved.path.parent == self._store.fast), request)

    def _failed(self, step: int, error: CheckpointError, request: int) -> None:
        self._last = Moment(self._last.step, time.monotonic())
        self._say(f"dmr: the checkpoint at step {step} failed, going on without it: {error}")
        if self._link:
            self._link.failed(request, step, str(error))

    def _say(self, text: str) -> None:
        if self._rank == 0:
            print(text, file=sys.stderr, flush=True)


def _level(order: Order) -> Level:
    if order.leaves and order.here:
        return "fast"
    return "shared" if order.leaves or order.request else "both"


def _open_store(generation: Generation, comm: Any, settings: Settings) -> Store:
    run_dir = RunDir(generation.folder)

    def check() -> None:
        leases = run_dir.leases()
        if leases and leases[-1] > generation.number:
            raise Fenced(
                f"generation {leases[-1]} of this run has taken over; "
                f"generation {generation.number} may not save any more"
            )

    writer = Writer(
        run=comm.bcast(run_dir.description().get("run", "") if comm.Get_rank() == 0 else "", root=0),
        generation=generation.number,
        token=generation.token,
        staging=run_dir.staging(generation.number),
        check=check,
    )
    alone = isinstance(comm, SingleProcess)
    return Store(
        run_dir.checkpoints,
        None if alone else comm,
        driver=settings.driver,
        keep=settings.keep,
        writer=writer,
        fast_dir=settings.fast_dir,
        compress=settings.compress,
    )


def _entry(done: Any, fast: bool = False) -> SavedCheckpoint:
    name = os.path.basename(str(done.path))
    raw, compressing = done.raw_bytes, getattr(done, "compress_seconds", 0.0)
    return SavedCheckpoint(name, done.step, done.bytes, done.seconds, time.time(), fast, raw, compressing)
