"""The end of an allocation: whether a program is done before it, by its own pace."""

from __future__ import annotations

from ..run.rundir import Progress

SLOWER = 1.25
"""What is left may take that many times as long as the last steps did."""
ROOM = 5.0
"""Seconds left beside a step and two saves, in which the program can still be asked to save and leave."""


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
