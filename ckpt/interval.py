"""When the next checkpoint is due: rules that are pure; clocks and costs are handed in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Moment:
    """A point of a run: the step, and seconds on a clock that does not jump (`time.monotonic`)."""

    step: int
    seconds: float


class Interval(Protocol):
    """Says whether a checkpoint is due."""

    def due(self, now: Moment, last: Moment, cost: float | None = None, left: float | None = None) -> bool:
        """Return whether to save now.

        Parameters
        ----------
        last
            When the last one was committed, or the run began.
        cost
            Seconds that a save takes, as measured; None when not yet known.
        left
            Seconds until the allocation ends; None without a limit.
        """


@dataclass(frozen=True)
class EverySteps:
    """After so many steps."""

    steps: int

    def due(self, now: Moment, last: Moment, cost: float | None = None, left: float | None = None) -> bool:
        return now.step - last.step >= self.steps


@dataclass(frozen=True)
class EverySeconds:
    """After so many seconds."""

    seconds: float

    def due(self, now: Moment, last: Moment, cost: float | None = None, left: float | None = None) -> bool:
        return now.seconds - last.seconds >= self.seconds


@dataclass(frozen=True)
class Automatic:
    """At the interval that loses the least time to saves and failures, and once more before the allocation ends.

    Parameters
    ----------
    mtbf
        Mean time between failures of the whole allocation, in seconds.
    least
        Never more often than this, in seconds.
    first
        When the first one is due, since its cost is not known before; in seconds.
    margin
        Seconds to keep free before the end of the allocation, beside twice the cost.
    """

    mtbf: float
    least: float = 10.0
    first: float = 60.0
    margin: float = 30.0

    def interval(self, cost: float | None) -> float:
        """Return the seconds between two checkpoints."""
        if cost is None:
            return min(self.first, self.mtbf)
        return max(daly(cost, self.mtbf), self.least)

    def due(self, now: Moment, last: Moment, cost: float | None = None, left: float | None = None) -> bool:
        waited = now.seconds - last.seconds
        if waited >= self.interval(cost):
            return True
        ending = left is not None and left <= 2 * (cost or 0.0) + self.margin
        # Once: what was saved since the end came near is not saved again.
        return ending and left is not None and waited > 2 * (cost or 0.0) + self.margin - left


def young(cost: float, mtbf: float) -> float:
    """Return Young's interval between checkpoints, in seconds (CACM 17(9), 1974): ``sqrt(2 cost mtbf)``."""
    return math.sqrt(2 * cost * mtbf)


def daly(cost: float, mtbf: float) -> float:
    """Return Daly's interval between checkpoints, in seconds.

    The higher-order estimate, equation 37 of J. T. Daly, Future Generation Computer Systems 22 (2006) 303-312; good for
    any ratio of cost to mean time between failures.

    Parameters
    ----------
    cost, mtbf
        Seconds of a save; mean seconds between failures.
    """
    if cost >= 2 * mtbf:
        return mtbf
    ratio = cost / (2 * mtbf)
    return young(cost, mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - cost
