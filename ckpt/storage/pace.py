"""Which of two ways to write large pieces is the faster one here: around the page cache, or through it.

Neither always is: around it ranks don't wait for each other on the file's lock, and nothing is copied by the kernel;
through it the kernel merges writes, which a device with costly requests prefers. So both are tried.
"""

from __future__ import annotations

ENOUGH = 64 << 20
"""Saves of less bytes tell nothing of the device."""
TRIES = 2
AGAIN = 64
"""After so many saves in a row the slower way is tried again: devices are shared, and their load changes."""


class Pace:
    """Bytes a second of the saves so far, by the way that they went and by whether an old file was written over."""

    def __init__(self) -> None:
        self._rates: dict[tuple[bool, bool], list[float]] = {}
        self._in_a_row = {True: 0, False: 0}

    def unbuffered(self, over: bool) -> bool:
        """Return whether the next save is to go around the page cache.

        Parameters
        ----------
        over
            Whether it writes over an old file; blocks that are there are faster in both ways.
        """
        around, through = (self._rates.get((way, over), []) for way in (True, False))
        if len(around) < TRIES:
            return True
        if len(through) < TRIES:
            return False
        faster = _typical(around) >= _typical(through)
        return not faster if self._in_a_row[over] >= AGAIN else faster

    def note(self, unbuffered: bool, over: bool, size: int, seconds: float) -> None:
        """Take a save of ``size`` bytes into account."""
        if size < ENOUGH or seconds <= 0:
            return
        rates = self._rates.setdefault((unbuffered, over), [])
        rates.append(size / seconds)
        del rates[:-TRIES]
        others = self._rates.get((not unbuffered, over), [])
        slower = bool(others) and _typical(rates) < _typical(others)
        self._in_a_row[over] = 0 if slower else self._in_a_row[over] + 1


def _typical(rates: list[float]) -> float:
    """Return the best of the last rates: what disturbs a save makes it slower, nothing makes it faster."""
    return max(rates)
