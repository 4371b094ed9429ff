"""Free nodes over future time."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable


class Profile:
    """How many nodes are free from each time on, as far as limits tell.

    Parameters
    ----------
    now, free
        The present, and the nodes free in it.
    releases
        (time, nodes) that become free; those in the past count as now.
    """

    def __init__(self, now: float, free: int, releases: Iterable[tuple[float, int]] = ()) -> None:
        self.times = [now]
        self.free = [free]
        for when, nodes in sorted(releases):
            if when == math.inf:
                break
            if when <= self.times[-1]:
                self.free[-1] += nodes
            else:
                self.times.append(when)
                self.free.append(self.free[-1] + nodes)

    def earliest(self, nodes: int, duration: float, after: float = -math.inf) -> float:
        """Return the first time from which ``nodes`` are free for ``duration`` seconds, inf if there is none."""
        times, free = self.times, self.free
        index = max(0, bisect_right(times, after) - 1)
        while index < len(times):
            if free[index] < nodes:
                index += 1
                continue
            start = max(times[index], after)
            end = start + duration
            last = index + 1
            while last < len(times) and times[last] < end and free[last] >= nodes:
                last += 1
            if last == len(times) or times[last] >= end:
                return start
            index = last
        return math.inf

    def reserve(self, start: float, duration: float, nodes: int) -> None:
        """Take ``nodes`` for ``duration`` seconds from ``start``.

        Raises
        ------
        ValueError
            When they are not all free.
        """
        if start == math.inf or duration <= 0:
            return
        first, last = self._split(start), (len(self.times) if duration == math.inf else self._split(start + duration))
        if min(self.free[first:last], default=nodes) < nodes:
            raise ValueError(f"{nodes} nodes are not free from {start} for {duration} s")
        for index in range(first, last):
            self.free[index] -= nodes

    def release(self, start: float, duration: float, nodes: int) -> None:
        """Give back what `reserve` took, from now on where it began in the past."""
        end = start + duration
        begin = max(start, self.times[0])
        if start == math.inf or end <= begin:
            return
        first, last = self._split(begin), (len(self.times) if end == math.inf else self._split(end))
        for index in range(first, last):
            self.free[index] += nodes

    def least(self, start: float, duration: float) -> int:
        """Return the number of nodes that are free all the time from ``start`` for ``duration`` seconds."""
        index = max(0, bisect_right(self.times, start) - 1)
        end, found = start + duration, self.free[index]
        while index < len(self.times) and self.times[index] < end:
            found = min(found, self.free[index])
            index += 1
        return found

    def until(self, nodes: int) -> float:
        """Return until when so many nodes are free from the beginning; inf if for ever."""
        return next((when for when, free in zip(self.times, self.free, strict=True) if free < nodes), math.inf)

    def _split(self, when: float) -> int:
        index = bisect_right(self.times, when) - 1
        if index < 0:
            raise ValueError(f"{when} lies before {self.times[0]}")
        if self.times[index] == when:
            return index
        self.times.insert(index + 1, when)
        self.free.insert(index + 1, self.free[index])
        return index + 1
