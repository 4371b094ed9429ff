"""Signals to the launcher: noted by a handler, acted on in the loop."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any

CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Counts the signals that ask this process to end, for as long as the context lasts."""

    def __init__(self) -> None:
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
