"""Signals to the launcher: noted by a handler, acted on in the loop."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Counts the signals that ask this process to end, for as long as the context lasts.

    Parameters
    ----------
    first
        Called in the handler with the number of the first signal.
    """

    def __init__(self, first: Callable[[int], None] | None = None) -> None:
        self._first = first
        self.signal: int | None = None
        self.count = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for each in CAUGHT:
            if signal.getsignal(each) is not signal.SIG_IGN:  # nohup asked for it
                self._before[each] = signal.signal(each, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each, before in self._before.items():
            signal.signal(each, before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        self.count += 1
        if self.count == 1 and self._first is not None:
            self._first(number)
