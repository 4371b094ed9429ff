"""Measured speeds made fit to fit: warm-up and outliers taken out, one value and its error a size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median

from .view import Rate

WARM_UP = 1.15
"""The first measurement at a size is warm-up when it is this much slower than the median of the others."""
OUTLIER = 4.0
"""Measurements this many robust standard deviations from the median are left out."""
OWN_ERROR = 0.03
"""Relative error of a mean that no scatter shows: placement, neighbours, and what the models leave out."""
EARLIER_ERROR = 0.10
"""The same for earlier runs of the program, whose input and nodes may have been others."""


@dataclass(frozen=True)
class Sample:
    """Seconds a step at one size, and the relative standard error of that."""

    nodes: int
    seconds: float
    error: float
    steps: int
    earlier: bool = False


@dataclass(frozen=True)
class Cleaned:
    """Samples by size, ascending, and how many measurements were left out."""

    samples: tuple[Sample, ...]
    warm_up: int = 0
    outliers: int = 0


def clean(rates: Iterable[Rate], earlier: Iterable[Rate] = (), phase: str | None = None) -> Cleaned:
    """Return one sample a size.

    Parameters
    ----------
    rates, earlier
        In order of time. At a size that this run measured itself, earlier runs are not asked.
    phase
        Take this phase's measurements; those of all phases where it has none.
    """
    own = _by_size(rates, phase)
    others = _by_size(earlier, phase)
    samples, warm_up, outliers = [], 0, 0
    for nodes in sorted({*own, *others}):
        found = own.get(nodes) or others[nodes]
        kept, was_warm_up = _without_warm_up(found)
        kept, far = _without_outliers(kept)
        warm_up, outliers = warm_up + was_warm_up, outliers + far
        steps = sum(weight for _, weight in kept)
        mean = sum(value * weight for value, weight in kept) / steps
        floor = OWN_ERROR if nodes in own else EARLIER_ERROR
        samples.append(Sample(nodes, mean, math.hypot(floor, _standard_error(kept, mean)), steps, nodes not in own))
    return Cleaned(tuple(samples), warm_up, outliers)


def scaled(own: Iterable[Rate], other: Iterable[Rate]) -> tuple[Rate, ...]:
    """Return the measurements of another machine as fast as this one: by the median ratio at what both measured.

    Nothing where they have no size of a phase in common: then how much faster the other is can't be told.
    """
    mine = {(each.phase, each.nodes): each.seconds_per_step for each in own}
    others = tuple(other)
    ratios = [
        mine[each.phase, each.nodes] / each.seconds_per_step
        for each in others
        if each.seconds_per_step > 0 and (each.phase, each.nodes) in mine
    ]
    if not ratios:
        return ()
    ratio = median(ratios)
    return tuple(replace(each, seconds_per_step=each.seconds_per_step * ratio) for each in others)


def _by_size(rates: Iterable[Rate], phase: str | None) -> Mapping[int, list[tuple[float, int]]]:
    good = [each for each in rates if 0 < each.seconds_per_step < math.inf and each.steps > 0 and each.nodes > 0]
    of_phase = [each for each in good if each.phase == phase]
    found: dict[int, list[tuple[float, int]]] = {}
    for each in of_phase or good:
        found.setdefault(each.nodes, []).append((each.seconds_per_step, each.steps))
    return found


def _without_warm_up(found: list[tuple[float, int]]) -> tuple[list[tuple[float, int]], int]:
    if len(found) >= 3 and found[0][0] > WARM_UP * median(value for value, _ in found[1:]):
        return found[1:], 1
    return found, 0


def _without_outliers(found: list[tuple[float, int]]) -> tuple[list[tuple[float, int]], int]:
    if len(found) < 4:
        return found, 0
    middle = median(value for value, _ in found)
    spread = 1.4826 * median(abs(value - middle) for value, _ in found)
    far = OUTLIER * max(spread, 0.01 * middle)
    kept = [each for each in found if abs(each[0] - middle) <= far]
    return kept, len(found) - len(kept)


def _standard_error(kept: list[tuple[float, int]], mean: float) -> float:
    if len(kept) < 2:
        return 0.0
    variance = sum((value - mean) ** 2 for value, _ in kept) / (len(kept) - 1)
    return math.sqrt(variance / len(kept)) / mean
