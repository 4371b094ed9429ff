"""Which size to measure next, and when enough is known. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from .. import words
from ..speed import Speed
from ..view import Rate


@dataclass(frozen=True)
class Trial:
    """What to do next: ``measure`` at the present size, go to another ``size``, or ``done`` with the phase."""

    action: Literal["measure", "size", "done"]
    nodes: int
    reason: str


def next_trial(
    rates: Iterable[Rate],
    phase: str | None,
    sizes: Sequence[int],
    now: int,
    *,
    within: float = 0.1,
    steps: int = 10,
) -> Trial:
    """Return what to do next in a phase.

    Parameters
    ----------
    rates
        What this experiment measured, of any phase.
    phase
        The present one.
    sizes
        Sizes whose speed is wanted.
    now
        The present size.
    within
        Relative half-width of a 90 % interval that is narrow enough.
    steps
        Steps that make a measurement.
    """
    own = [each for each in rates if each.phase == phase]
    counted: dict[int, int] = {}
    for each in own:
        counted[each.nodes] = counted.get(each.nodes, 0) + each.steps
    if counted.get(now, 0) < steps and now in sizes:
        return Trial("measure", now, f"{counted.get(now, 0)} of {words.count(steps, 'step')} at {words.nodes(now)}")
    widths = half_widths(own, phase, sizes)
    open_ = {
        size: width
        for size, width in widths.items()
        if width > within and counted.get(size, 0) < steps
    }
    if not open_:
        return Trial("done", now, "all sizes are known well enough")
    # Of those as uncertain the one nearest by: each change of size costs more the more it moves.
    widest = max(open_.values())
    chosen = min((size for size in open_ if open_[size] >= 0.9 * widest), key=lambda size: abs(math.log(size / now)))
    return Trial("size", chosen, f"there the speed is known to ± {open_[chosen]:.0%} only")


def half_widths(rates: Iterable[Rate], phase: str | None, sizes: Sequence[int]) -> dict[int, float]:
    """Return the relative half-width of the 90 % interval of the speed at each size; inf where nothing is known."""
    speed = Speed([each for each in rates if each.phase == phase], phase)
    found = {}
    for size in sizes:
        estimate = speed.at(size)
        found[size] = math.inf if estimate is None else math.sqrt(estimate.high / estimate.low) - 1
    return found


def is_known(
    rates: Sequence[Rate], phases: Iterable[str | None], sizes: Sequence[int], *, within: float, steps: int
) -> bool:
    """Whether the speed of all phases is known well enough, or was measured, at all sizes."""
    for phase in phases:
        own = [each for each in rates if each.phase == phase]
        measured = {size for size in sizes if sum(each.steps for each in own if each.nodes == size) >= steps}
        if any(width > within and size not in measured for size, width in half_widths(own, phase, sizes).items()):
            return False
    return True
