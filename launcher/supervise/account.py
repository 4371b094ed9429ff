"""A launcher's place in its run: the lease it holds, the ledger it writes, the history up to now."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from typing import Any

from ..run.history import History, read_history
from ..run.rundir import LauncherState, RunDir, RunDirError, new_token
from .console import Console
from .handover import Successor
from .hooks import reached
from .owner import BEAT, lease_content, slurm_restarts

LOOK_AT_LEASES = 1.0
WRITE_TRIES = 120
WRITE_PAUSE = 5.0
"""How often, and how many seconds apart, a run directory that can't be written is tried until giving up."""


class Fenced(Exception):
    """Another launcher has taken over the run."""


class Account:
    """Keeps the books of the generation that this launcher now is."""

    def __init__(self, run: RunDir, console: Console, clock: Callable[[], float] = time.time) -> None:
        self.run, self.console, self.clock = run, console, clock
        self.number, self.token = 0, ""
        self.launched = False
        """Whether ranks were started under this lease."""
        self.history: History = read_history(())
        self._control = 0
        self._beat = 0.0
        self._looked = 0.0
        self._full = False
        self.phase: tuple[str | None, float | None] = (None, None)
        """The phase that was recognised, and how surely."""

    def open(self, number: int, token: str) -> None:
        """Begin with a lease that was taken."""
        self.number, self.token = number, token
        self.history = read_history(self.run.events(skip=("decided",)))
        self._end_the_lost()
        control = self.run.read_control()
        self._control = max(self.history.last_control, control.id if control else 0)
        reached("leased", number)

    def _end_the_lost(self) -> None:
        """Let a generation whose launcher was killed end with its last sign of life, however late this one comes."""
        last = self.history.last
        if last is None or last.end is not None or last.number >= self.number:
            return
        signs = [float(each["time"]) for each in self.run.events(last.number, skip=("decided",))]
        progress = self.run.read_progress()
        mine = progress if progress is not None and progress.generation == last.number else None
        if mine is not None:
            signs.append(mine.time)
        lost = max(signs, default=last.start)
        self.record("lost", lost=last.number, last=lost, step=mine.step if mine else None)
        self.reread()

    def next_generation(self, job: str | None) -> None:
        """Take the next lease, so that each start of ranks has one of its own.

        Raises
        ------
        Fenced
            When somebody else holds it.
        """
        token = new_token()
        if not self._take(self.number + 1, lease_content(token, job, slurm_restarts())):
            raise Fenced
        self.number, self.token, self.launched = self.number + 1, token, False
        reached("leased", self.number)

    def _take(self, number: int, content: dict[str, Any]) -> bool:
        """Take a lease; a run directory that can't be written is tried again for a while."""
        for left in reversed(range(WRITE_TRIES)):
            try:
                return self.run.take_lease(number, content)
            except OSError as error:
                with contextlib.suppress(OSError):
                    if (self.run.read_lease(number) or {}).get("token") == content["token"]:
                        return True  # only what comes after its creation has failed
                if not left:
                    raise RunDirError(
                        f"{self.run.folder} can't be written for {WRITE_TRIES * WRITE_PAUSE / 60:.0f} min "
                        f"({error.strerror}): make room, then dmr resume {self.run.folder}"
                    ) from None
                if left == WRITE_TRIES - 1:
                    self.console.warn(f"can't write to {self.run.folder}: {error.strerror}; waiting")
                time.sleep(WRITE_PAUSE)
        return False

    def record(self, event: str, **fields: Any) -> bool:
        """Append to the ledger of this generation; False when that was not possible."""
        try:
            self.run.append(self.number, event, **fields)
        except OSError as error:
            if not self._full:
                self.console.warn(f"can't write to {self.run.folder}: {error.strerror}; going on without records")
            self._full = True
            return False
        self._full = False
        return True

    def reread(self) -> None:
        """Bring the history up to date, where the run directory can be read."""
        with contextlib.suppress(OSError):
            self.history = read_history(self.run.events(skip=("decided",)))

    def next_control(self) -> int:
        """Return the id of the next request."""
        self._control += 1
        return self._control

    def beat(self, nodes: int, successor: Successor | None, queries: int, *, now: bool = False) -> None:
        """Renew the sign of life when it is due, which also tells the application and `dmr status` what waits."""
        moment = self.clock()
        if not now and 0 <= moment - self._beat < BEAT:
            return
        self._beat = moment
        state = LauncherState(
            self.number, moment, os.getpid(), socket.gethostname(), nodes, self.history.resizes,
            successor.nodes[1] if successor else None, successor.job if successor else None,
            successor.number if successor else None, successor.submitted if successor else None, queries,
            *self.phase,
        )  # fmt: skip
        try:
            self.run.write_launcher(state)
        except OSError:
            return

    def refuse_fence(self, *, now: bool = False) -> None:
        """Make sure that nobody has taken over; looks once a second, or ``now``.

        Raises
        ------
        Fenced
            When somebody has.
        """
        moment = self.clock()
        if not now and 0 <= moment - self._looked < LOOK_AT_LEASES:
            return
        self._looked = moment
        try:
            leases = self.run.leases()
        except OSError:  # a file system that fails for a moment; a commit is refused all the same
            return
        if leases and leases[-1] > self.number:
            raise Fenced
