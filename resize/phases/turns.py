"""What comes next in a run whose phases come in turn."""

from __future__ import annotations

from collections.abc import Sequence

from ..view import Ahead
from .knowledge import MOST_OCCURRENCES, Occurrence


def repeated(order: Sequence[Occurrence], step: int, last: int) -> tuple[Ahead, ...]:
    """Return the phases from the present one on, where they have come in the same turn at least twice.

    Parameters
    ----------
    order
        The phases so far, the present one last, its end not known yet.
    step, last
        Where the run is, and the step that it ends with.
    """
    names = [each.phase for each in order]
    for period in range(2, len(names) // 2 + 1):
        if names[-period - 1 :] != names[-2 * period - 1 : -period] or len(names) < 2 * period + 1:
            continue
        found: list[Ahead] = []
        start, place = order[-1].start, 0
        while start < last and len(found) < MOST_OCCURRENCES:
            like = order[len(order) - 1 - period + place % period]
            end = min(last, max(start + 1, start + like.end - like.start))
            if not found:
                end = max(end, min(last, step + 1))
            found.append(Ahead(like.phase, start, end, 0.5))
            start, place = end, place + 1
        return tuple(found)
    return ()
