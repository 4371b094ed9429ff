"""When the scheduler is asked, and by whom: one question at a time, rarely, never in the supervisor's way."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from ...resize.view import ClusterView
from .engine import Engine

LONGEST = 300.0
"""Seconds between two questions to a scheduler that does not answer, at the most."""
JITTER = 0.1
"""Runs that were started together shall not ask together."""


class Watcher:
    """Asks for the state of the cluster in a thread of its own: a scheduler that hangs holds up nothing else.

    Parameters
    ----------
    interval
        Seconds between two questions. Doubled after each that was not answered.
    """

    def __init__(self, engine: Engine, interval: float, clock: Callable[[], float]) -> None:
        self.engine, self.interval = engine, interval
        self.queries = 0
        self.view: ClusterView | None = None
        self.unanswered = 0
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._answer: ClusterView | None = None
        self._next = 0.0

    def poll(self, wanted: bool) -> bool:
        """Return True when a new view has come; start the next question when one is due and wanted."""
        if self._thread is not None:
            if self._thread.is_alive():
                return False
            self._thread = None
            return self._answered()
        if wanted and self._clock() >= self._next:
            self.queries += 1
            self._thread = threading.Thread(target=self._ask, name="dmr-query", daemon=True)
            self._thread.start()
        return False

    def soon(self, seconds: float = 0.0) -> None:
        """Ask next in so many seconds at the latest."""
        self._next = min(self._next, self._clock() + seconds)

    def _ask(self) -> None:
        self._answer = None
        self._answer = self.engine.observe()

    def _answered(self) -> bool:
        wait = self.interval
        if self._answer is None:
            self.unanswered += 1
            wait = min(max(LONGEST, self.interval), self.interval * 2**self.unanswered)
        else:
            self.unanswered = 0
            self.view = self._answer
        self._next = self._clock() + wait * random.uniform(1 - JITTER, 1 + JITTER)
        return self._answer is not None
