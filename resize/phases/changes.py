"""Change points over several signals at once: scaled, penalised, confirmed over windows.

The optimal partition is found by PELT (R. Killick, P. Fearnhead, I. A. Eckley 2012, "Optimal detection of
changepoints with a linear computational cost") as `ruptures` has it, with the squared error of signals in
units of their noise. The penalty of a change is the bound that the gain of a false one over ``k`` signals exceeds
rarely: k + 2√(kL) + 2L, L = c·log n (B. Laurent, P. Massart 2000, "Adaptive estimation of a quadratic
functional by model selection", lemma 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..words import how_to_install
from .signals import Array, Signals, running_median, standardised

SEVERITY = 1.5
"""c of the penalty."""
LEAST = 6
"""Samples that a phase has at least."""
MOST_SAMPLES = 4096
"""Longer series are averaged down to this before the search; the places found are then refined."""
TOLERANCE = 3
"""Samples by which the same change may differ between two windows."""


class PhasesError(RuntimeError):
    """What is needed to look for phases is not installed."""


@dataclass(frozen=True)
class Change:
    """A change between sample ``index`` − 1 and ``index``.

    ``confidence`` is the share of the windows that held it in which it was found.
    """

    index: int
    time: float
    confidence: float


def find_changes(signals: Signals, least: int = LEAST) -> tuple[Change, ...]:
    """Return the changes of level, in order of time.

    Parameters
    ----------
    signals
        Any number of signals; unknown values are taken as unchanged.
    least
        Samples that lie between two changes at least.

    Raises
    ------
    PhasesError
        When ruptures is not installed.
    """
    names, matrix, scale = standardised(signals)
    if not names or matrix.shape[0] < 2 * least:
        return ()
    factor = math.ceil(matrix.shape[0] / MOST_SAMPLES)
    coarse = _averaged(matrix, factor)
    confirmed = _confirmed(coarse, least)
    places = [(place * factor, share) for place, share in confirmed]
    floors = np.array([signals.floor(name) for name in names]) / scale
    return tuple(
        Change(index, float(signals.times[index]), share)
        for index, share in _that_matter(matrix, places, floors, least, factor)
    )


def penalty(signals: int, samples: int) -> float:
    """Return what a change has to take off the squared error."""
    rarity = SEVERITY * math.log(max(samples, 2))
    return signals + 2 * math.sqrt(signals * rarity) + 2 * rarity


def _search(matrix: Array, least: int) -> list[int]:
    """Return the places of the optimal partition."""
    try:
        import ruptures
    except ImportError as error:
        raise PhasesError(f"looking for phases needs ruptures ({error}): {how_to_install('phases')}") from None
    if matrix.shape[0] < 2 * least:
        return []
    smooth = np.stack([running_median(column, 5) for column in matrix.T], axis=1)
    # The median over five keeps some correlation of neighbours; its means scatter like those of the raw values × 1.2.
    smooth = smooth / 1.2
    found = ruptures.KernelCPD(kernel="linear", min_size=least).fit(smooth).predict(pen=penalty(*smooth.shape[::-1]))
    return [int(place) for place in found[:-1]]


def _confirmed(matrix: Array, least: int) -> list[tuple[int, float]]:
    """Return places of the whole that at least half of the windows around them find as well, with that share."""
    size = matrix.shape[0]
    whole = _search(matrix, least)
    if not whole:
        return []
    width = max(size // 2, 8 * least)
    if width >= size:
        return [(place, 1.0) for place in whole]
    starts = sorted({*range(0, size - width, max(1, width // 2)), size - width})
    inside = {start: [start + each for each in _search(matrix[start : start + width], least)] for start in starts}
    found = []
    for place in whole:
        around = [each for start, each in inside.items() if 2 * least <= place - start <= width - 2 * least]
        hits = sum(any(abs(place - other) <= TOLERANCE + least // 2 for other in each) for each in around)
        share = (1 + hits) / (1 + len(around))
        if share > 0.5 or not around:
            found.append((place, share))
    return found


def _averaged(matrix: Array, factor: int) -> Array:
    if factor == 1:
        return matrix
    whole = matrix.shape[0] // factor * factor
    found: Array = matrix[:whole].reshape(-1, factor, matrix.shape[1]).mean(axis=1) * math.sqrt(factor)
    return found


def _that_matter(
    matrix: Array, places: list[tuple[int, float]], floors: Array, least: int, factor: int
) -> list[tuple[int, float]]:
    """Refine the places, and leave out the weakest change for as long as one is too weak to matter.

    A short stretch between the levels on either side of it is the way from one to the other, not a phase: samples
    that the change lies in.
    """
    kept = _refined(matrix, sorted(places), least, factor)
    while kept:
        bounds = [0, *(index for index, _ in kept), matrix.shape[0]]
        means = [matrix[a:b].mean(axis=0) for a, b in zip(bounds, bounds[1:], strict=False)]
        passing = _transition(bounds, means, floors, least)
        if passing is not None:
            del kept[passing]
            kept = _refined(matrix, kept, least, factor)
            continue
        strength = [
            float((np.abs(after - before) / np.maximum(floors, 1e-9)).max())
            for before, after in zip(means, means[1:], strict=False)
        ]
        weakest = int(np.argmin(strength))
        if strength[weakest] >= 1.0:
            return kept
        del kept[weakest]
        kept = _refined(matrix, kept, least, factor)
    return kept


def _transition(bounds: list[int], means: list[Array], floors: Array, least: int) -> int | None:
    """Return the number of the change to leave out where a stretch is only the way between two levels."""
    for number in range(1, len(means) - 1):
        if bounds[number + 1] - bounds[number] > least:
            continue
        before, here, after = means[number - 1 : number + 2]
        low, high = np.minimum(before, after) - floors, np.maximum(before, after) + floors
        if ((here >= low) & (here <= high)).all():
            nearer_to_before = np.abs(here - before).sum() < np.abs(here - after).sum()
            return number - 1 if nearer_to_before else number
    return None


def _refined(matrix: Array, places: list[tuple[int, float]], least: int, factor: int) -> list[tuple[int, float]]:
    """Move each place to where the squared error on both sides is least, within a few samples."""
    bounds = [0, *(index for index, _ in places), matrix.shape[0]]
    found: list[tuple[int, float]] = []
    reach = max(least // 2 + 1, 2 * factor)
    for number, (index, share) in enumerate(places, start=1):
        low = found[-1][0] if found else 0
        high = bounds[number + 1]
        first, last = max(low + 2, index - reach), min(high - 2, index + reach)
        if first < last:
            index = first + int(np.argmin(_split_costs(matrix[low:high], np.arange(first, last + 1) - low)))
        found.append((index, share))
    return found


def _split_costs(part: Array, places: NDArray[np.int64]) -> Array:
    """Return the squared error of two levels, split at each place, up to a constant."""
    sums = np.cumsum(part, axis=0)
    left = sums[places - 1]
    right = sums[-1] - left
    left_count, right_count = places[:, None], part.shape[0] - places[:, None]
    found: Array = -(left**2 / left_count + right**2 / right_count).sum(axis=1)
    return found
