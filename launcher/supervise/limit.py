"""The end of an allocation: whether a program is done before it, by what it reports."""

from __future__ import annotations

from ...resize import limit
from ..run.rundir import Progress


def done_in_time(progress: Progress | None, seconds_per_step: float | None, save: float, left: float) -> bool:
    """Whether the program ends by itself before the allocation does, see `resize.limit.done_in_time`.

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
    return pace > 0 and limit.done_in_time((progress.steps - progress.step) * pace, pace, save, left)
