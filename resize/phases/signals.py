"""Signals of a run over time, and their noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MAD = 1.4826
"""Standard deviation of a Gaussian over its median absolute deviation."""
WINSOR = 4.0
"""Samples are pulled in to so many standard deviations of the noise from their running median."""
SPIKE = 2
"""Excursions of at most so many samples are noise."""


class SignalsError(ValueError):
    """The signals can't be used; the message says what is wrong with them."""


@dataclass(frozen=True)
class Signals:
    """Several signals sampled at the same times.

    Parameters
    ----------
    times
        Seconds, shape (n,), strictly ascending.
    values
        By name, shape (n,) each; NaN where unknown.
    floors
        By name: changes below this don't matter, in the signal's unit. Default: `RELATIVE_FLOOR` of its level.
    """

    times: Array
    values: Mapping[str, Array]
    floors: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        times = np.asarray(self.times, dtype=np.float64)
        object.__setattr__(self, "times", times)
        if times.ndim != 1 or (np.diff(times) <= 0).any() or not np.isfinite(times).all():
            raise SignalsError("times have to be finite and ascend strictly")
        values = {name: np.asarray(each, dtype=np.float64) for name, each in self.values.items()}
        for name, each in values.items():
            if each.shape != times.shape:
                raise SignalsError(f"signal {name!r} has shape {each.shape}, the times have {times.shape}")
        object.__setattr__(self, "values", values)

    @property
    def period(self) -> float:
        """Median seconds between two samples; 1 with fewer than two."""
        return float(np.median(np.diff(self.times))) if self.times.size > 1 else 1.0

    def cut(self, start: float, end: float) -> Signals:
        """Return the samples with ``start`` ≤ time < ``end``."""
        low, high = np.searchsorted(self.times, [start, end])
        return Signals(
            self.times[low:high], {name: each[low:high] for name, each in self.values.items()}, self.floors
        )

    def floor(self, name: str) -> float:
        """Return the change of a signal that is the least to matter."""
        if name in self.floors:
            return self.floors[name]
        known = self.values[name][np.isfinite(self.values[name])]
        return RELATIVE_FLOOR * float(np.quantile(np.abs(known), 0.9)) if known.size else math.inf


RELATIVE_FLOOR = 0.05
"""Share of a signal's level (0.9 quantile of its magnitude) that a change has to reach."""


def filled(values: Array) -> Array:
    """Return the values with each unknown one replaced by the last known before it, leading ones by the first."""
    known = np.isfinite(values)
    if known.all():
        return values
    if not known.any():
        return np.zeros_like(values)
    place = np.where(known, np.arange(values.size), 0)
    np.maximum.accumulate(place, out=place)
    place[: int(np.argmax(known))] = int(np.argmax(known))
    found: Array = values[place]
    return found


def running_median(values: Array, width: int) -> Array:
    """Return the median over ``width`` (odd) samples around each; the ends are mirrored."""
    if width <= 1 or values.size < width:
        return values
    half = width // 2
    padded = np.concatenate([values[half:0:-1], values, values[-2 : -half - 2 : -1]])
    found: Array = np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=1)
    return found


def noise(values: Array) -> float:
    """Return the standard deviation of a sample that the scatter of a mean over many would belong to.

    From first, second and block differences, robustly, so that changes of level don't count. Scatter of
    neighbours that goes together makes means scatter more: with correlation ρ of neighbours the variance
    is σ² (1 + ρ) / (1 − ρ), that of a first-order autoregressive process.
    """
    if values.size < 4:
        return 0.0
    first = _spread(np.diff(values)) / math.sqrt(2)
    second = _spread(values[2:] - values[:-2]) / math.sqrt(2)
    if first <= 0:
        return second
    rho = min(0.9, max(0.0, (second / first) ** 2 - 1))
    return first / math.sqrt(1 - rho) * math.sqrt((1 + rho) / (1 - rho))


def _spread(differences: Array) -> float:
    """Return a robust standard deviation; that of the wider tails where more than half of all are equal."""
    middle = MAD * float(np.median(np.abs(differences)))
    # Signals that mostly stand still and jump now and then: the ninth decile of a Gaussian is at 1.645 σ.
    return max(middle, float(np.quantile(np.abs(differences), 0.9)) / 1.645 if middle == 0 else 0.0)


def standardised(signals: Signals) -> tuple[tuple[str, ...], Array, Array]:
    """Return names, values in units of their noise, and that noise, without signals that never change.

    Returns
    -------
    names
        Of the signals kept.
    matrix
        Shape (n, number of names), spikes pulled in.
    scale
        Noise of each, in the signal's unit; at least a quarter of the least change that matters.
    """
    names, columns, scales = [], [], []
    for name, raw in signals.values.items():
        if np.isfinite(raw).sum() < max(4, raw.size // 2):
            continue
        values = filled(raw)
        sigma = max(noise(values), signals.floor(name) / 4, 1e-12)
        smooth = running_median(values, 2 * SPIKE + 1)
        if float(smooth.max() - smooth.min()) < signals.floor(name) or math.isinf(sigma):
            continue
        tamed = np.clip(values, smooth - WINSOR * sigma, smooth + WINSOR * sigma)
        names.append(name)
        columns.append(tamed / sigma)
        scales.append(sigma)
    if not names:
        return (), np.zeros((signals.times.size, 0)), np.zeros(0)
    return tuple(names), np.stack(columns, axis=1), np.array(scales)
