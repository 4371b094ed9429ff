"""The end of an allocation: when a launcher asks a program to leave, and whether it is done before, by its own pace.

In plain numbers: launchers act by it, and policies and the simulator foresee by it what launchers will do.
"""

from __future__ import annotations

SLOWER = 1.25
"""What is left may take that many times as long as the last steps did."""
ROOM = 5.0
"""Seconds left beside a step and two saves, in which the program can still be asked to save and leave."""

LIMIT_LEAD = 60.0
"""Seconds left when the allocation ends, beside one step and two saves."""
LIMIT_SHARE = 0.25
"""No larger part of the time that the allocation had left at the start is the lead, if a step and a save fit in."""
LEAST_STEP = 2.0
"""A step is taken to last at least so many seconds where one has to be done before the program is asked."""


def lead(step: float, save: float, held: float, computing: float, most: float = LIMIT_LEAD) -> float:
    """Return how long before the allocation's end the program has to be asked: a step, two saves and a minute.

    In a short allocation less: a part of it, or what a step and a save take. Never before the middle of the first step,
    or of the time to compute in where that is less than a step: a step is done at least.

    Parameters
    ----------
    step, save
        Seconds that each takes, 0 while unknown.
    held
        Seconds from the launcher's start to the allocation's end.
    computing
        Seconds from the program's first step to the allocation's end.
    most
        Seconds that are enough beside a step and two saves.
    """
    computing = max(0.0, computing)
    begun = computing - min(max(step, LEAST_STEP), computing) / 2
    return min(step + 2 * save + most, begun, max(LIMIT_SHARE * held, SLOWER * (step + save) + ROOM))


def done_in_time(rest: float, step: float, save: float, left: float) -> bool:
    """Whether a program ends by itself before its allocation does, so that leaving it would only cost.

    True only while there is still room for a step and two saves in case it does not: to be asked again and again.

    Parameters
    ----------
    rest
        Seconds that the steps which are not done take at the present pace, that under way as a whole.
    step, save
        Seconds that each takes.
    left
        Seconds until the allocation ends.
    """
    return SLOWER * rest + step + 2 * save + ROOM < left


def spare(asked: float, step: float = 0.0, save: float = 0.0) -> float:
    """Return how long before its limit a run has to end, as foreseen, for its launcher not to have it leave.

    It has to be `done_in_time` when the launcher looks for the first time, with a step just begun, or to end before.

    Parameters
    ----------
    asked
        How long before the limit the launcher begins to look, see `lead`.
    step, save
        Seconds that each takes.
    """
    return min(asked, asked + step - (asked - ROOM - step - 2 * save) / SLOWER)


def limit_for(duration: float, step: float = 0.0, save: float = 0.0) -> float:
    """Return a time limit, in seconds, in which a run of this duration is not made to leave; nor in any longer one.

    Parameters
    ----------
    duration
        Seconds from the allocation's start to the run's end, as foreseen.
    step, save
        Seconds that each takes.
    """
    # The least limit with limit - spare(lead) >= duration, for a lead that is no smaller than that of any start-up:
    # min(most, max(LIMIT_SHARE * limit, needed)). `spare` is the less of two lines over the lead: (slope, height).
    most, needed = step + 2 * save + LIMIT_LEAD, SLOWER * (step + save) + ROOM
    lines = (1.0, 0.0), (1 - 1 / SLOWER, step + (ROOM + step + 2 * save) / SLOWER)
    found = []
    for slope, height in lines:
        by_share = (duration + height) / (1 - LIMIT_SHARE * slope)
        found.append(min(duration + slope * most + height, max(by_share, duration + slope * needed + height)))
    return min(found)
