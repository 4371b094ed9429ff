"""How long a program may be silent before it is taken for hung: while it starts, and while it computes. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ..run.history import GenerationRecord

HANG_LEAST = 600.0
"""Without progress for less than this no program is taken for hung unless the user said so."""
HANG_FACTOR = 20.0
"""Nor for less than so many times the longest time between two reports of progress, of which there were
`HANG_REPORTS`; nor while it starts for less than so many times the longest start."""
HANG_REPORTS = 5
START_LEAST = 120.0
"""A start may take so long, whatever the user allows later: all ranks read their program at the same time."""
START_FIRST = 1800.0
"""What the first start of a run may take, of which nothing is known."""


def longest_start(generations: Iterable[GenerationRecord]) -> float | None:
    """Return the seconds of the longest start of a run that ended in computing, None when there was none."""
    starts = [each.launch + (each.load or 0.0) for each in generations if each.launch is not None]
    return max(starts, default=None)


def start_patience(within: float | None, hang_after: float | None, longest: float | None) -> float:
    """Return the seconds that ranks may take from their start to their first report; 0 for no bound.

    Parameters
    ----------
    within, hang_after
        What the user allows a start, and a program that computes: None to learn it, 0 for no bound.
    longest
        What `longest_start` returns.
    """
    if within is not None:
        return within
    if hang_after is not None:
        return hang_after and max(START_LEAST, hang_after)
    return START_FIRST if longest is None else max(HANG_LEAST, HANG_FACTOR * longest)


def hang_patience(hang_after: float | None, reports: int, longest: float, saving: float | None) -> float:
    """Return the seconds that a program which computes may take from one report to the next; 0 for no bound.

    Parameters
    ----------
    hang_after
        What the user allows: None to learn it, 0 for no bound.
    reports, longest
        How many intervals between reports of progress there were, and the longest one.
    saving
        Seconds of the last save while it saves, None while it does not.
    """
    if hang_after == 0 or (hang_after is None and reports < HANG_REPORTS):
        return 0.0
    allowed = max(HANG_LEAST, HANG_FACTOR * longest) if hang_after is None else hang_after
    return allowed if saving is None else max(allowed, HANG_FACTOR * saving)
