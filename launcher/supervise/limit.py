"""The end of an allocation: when a program has to be asked to leave, and whether it is done before, by its own pace."""

from __future__ import annotations

from ..run.rundir import Progress

SLOWER = 1.25
"""What is left may take that many times as long as the last steps did."""
ROOM = 5.0
"""Seconds left beside a step and two saves, in which the program can still be asked to save and leave."""

LIMIT_LEAD = 60.0
"""Seconds left when the allocation ends, beside one step and two saves."""
LIMIT_SHARE = 0.25
"""No larger part of the time that the allocation had left at the start is the lead, if a step and a save fit in."""


def lead(step: float, save: float, held: float, computing: float) -> float:
    """Return how long before the allocation's end the program has to be asked: a step, two saves and a minute.

    In a short allocation less: a part of it, or what a step and a save take. Never so early that no step is done.

    Parameters
    ----------
    step, save
        Seconds that each takes, 0 while unknown.
    held
        Seconds from the launcher's start to the allocation's end.
    computing
        Seconds from the program's first step to the allocation's end.
    """
    needed = min(SLOWER * (step + save) + ROOM, computing - step / 2)
    return min(step + 2 * save + LIMIT_LEAD, max(LIMIT_SHARE * max(0.0, held), needed))


def done_in_time(progress: Progress | None, seconds_per_step: float | None, save: float, left: float) -> bool:
    """Whether the program ends by itself before the allocation does, so that leaving it would only cost.

    True only while there is still room for a step and two saves in case it does not: to be asked again and again.

    Parameters
    ----------
    progress
        What the program reported last; its number of steps may grow, when another loop follows.
    seconds_per_step
        Mean of this generation.
    save
        Seconds that a save takes.
    left
        Seconds until the allocation ends.
    """
    if progress is None or progress.steps is None or progress.steps <= progress.step:
        return False
    pace = max(progress.seconds_per_step or 0.0, seconds_per_step or 0.0)
    if pace <= 0:
        return False
    return SLOWER * (progress.steps - progress.step) * pace + pace + 2 * save + ROOM < left
