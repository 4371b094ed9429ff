"""Ends this process when a collective step takes too long, since a lost rank would keep all others waiting."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

EXIT_STATUS = 75
_GRACE = 5.0


class Watchdog:
    """Watches one step at a time; a thread that exists only from the first step on.

    Parameters
    ----------
    comm
        Aborted when a step is over its time; None for a single process, which is never watched.
    rank
        For the message.
    """

    def __init__(self, comm: Any, rank: int) -> None:
        self._comm, self._rank = comm, rank
        self._change = threading.Condition()
        self._due: float | None = None
        self._doing = ""
        self._budget = 0.0
        self._closed = False
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def watch(self, doing: str, seconds: float) -> Iterator[None]:
        """End all ranks when the block takes longer than ``seconds``. Blocks may be nested; the outer one counts."""
        if self._comm is None or self._due is not None:
            yield
            return
        with self._change:
            self._doing, self._budget, self._due = doing, seconds, time.monotonic() + seconds
            self.start()
            self._change.notify()
        try:
            yield
        finally:
            with self._change:
                self._due = None
                self._change.notify()

    def start(self) -> None:
        """Have the thread, where there is something to watch and threads can be started."""
        with self._change:
            if self._comm is None or self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name="dmr.ckpt watchdog", daemon=True)
            with contextlib.suppress(RuntimeError):  # at the end of the program
                thread.start()
                self._thread = thread

    def extend(self, seconds: float) -> None:
        """Allow the present step ``seconds`` more, for a known amount of data."""
        with self._change:
            if self._due is not None:
                self._due += seconds
                self._budget += seconds

    def close(self) -> None:
        """End the thread."""
        with self._change:
            self._closed = True
            self._change.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        with self._change:
            while not self._closed:
                if self._due is None:
                    self._change.wait()
                elif (left := self._due - time.monotonic()) > 0:
                    self._change.wait(left)
                else:
                    break
            else:
                return
        sys.stderr.write(
            f"dmr.ckpt: rank {self._rank}: {self._doing} has waited {self._budget:.0f} s for the other ranks or for "
            f"the file system; one of them is lost, so all ranks end now. The last checkpoint is intact.\n"
        )
        sys.stderr.flush()
        killer = threading.Timer(_GRACE, os._exit, (EXIT_STATUS,))
        killer.daemon = True
        with contextlib.suppress(RuntimeError):  # at the end of the program
            killer.start()
        self._comm.Abort(EXIT_STATUS)
        os._exit(EXIT_STATUS)
