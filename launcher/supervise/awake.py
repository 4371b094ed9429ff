"""Time as far as this process was awake: what patience with the ranks is measured by.

A job that is suspended (``scontrol suspend``, gang scheduling), a machine that is paused and a clock that is set all
make the time of day leap, while the ranks could do nothing: that is no reason to take them for hung.
"""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST_GAP = 30.0
"""Between two readings no more than this counts; a turn of the supervisor takes a fraction of a second as a rule."""


class AwakeClock:
    """Seconds, from 0 on; to be read at least every few seconds.

    Parameters
    ----------
    clock
        A clock that never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()
        self._awake = 0.0

    def __call__(self) -> float:
        now = self._clock()
        self._awake += min(max(0.0, now - self._last), LONGEST_GAP)
        self._last = now
        return self._awake
