"""What measurements say of the laws' parameters: weights on a grid that is refined where the weight is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .families import FAMILIES, FamilyName
from .samples import Sample

Array = NDArray[np.float64]

PRIOR: dict[FamilyName, float] = {"amdahl": 0.6, "sevcik": 0.2, "usl": 0.2}
"""Weight of each law before anything is measured: the simplest first."""
SERIAL = (math.log(1e-5), math.log(1e1), 25)
"""Least, most and number of grid values of the log of the serial part, relative to the parallel work."""
OVERHEAD = (math.log(1e-8), math.log(1e-1), 11)
"""The same of the overhead that grows with size."""
SHARP = 0.12
"""A grid on which one point has more weight than this is refined."""
ROUNDS = 6
NEGLIGIBLE = 1e-6
"""Points with less than this share of the largest weight are left out."""


@dataclass(frozen=True)
class Posterior:
    """Points of the laws with T(n) = e^scale (1/n + base + overhead·n), and their weights.

    ``family`` is an index into `FAMILIES`. ``base`` is the serial part s, less the overhead where that grows with
    n−1 (the universal law) instead of n (Sevcik's); Amdahl's law has no overhead. ``variance`` is that of the scale.
    """

    family: NDArray[np.int64]
    base: Array
    overhead: Array
    weight: Array
    scale: Array
    variance: float

    def predict(self, nodes: float) -> tuple[float, float]:
        """Return mean and standard deviation of log T at a size."""
        logs = self.scale + np.log(self.base + self.overhead * nodes + 1 / nodes)
        mean = float(self.weight @ logs)
        logs -= mean
        return mean, math.sqrt(float(self.weight @ (logs * logs)) + self.variance)

    def evidence(self) -> dict[FamilyName, float]:
        """Return the probability of each law."""
        return {name: float(self.weight[self.family == index].sum()) for index, name in enumerate(FAMILIES)}


def posterior(samples: Sequence[Sample]) -> Posterior:
    """Return the posterior for one or more samples.

    Errors are Gaussian in the logarithm; the scale has a flat prior and is integrated out; the logs of serial
    part and overhead have flat priors over `SERIAL` and `OVERHEAD`.
    """
    parts = [_family(name, samples) for name in FAMILIES]
    best = min(float(part.chi2.min()) for part in parts)
    weights = [part.volume * np.exp((best - part.chi2) / 2) for part in parts]
    weight = np.concatenate(weights)
    kept = weight > NEGLIGIBLE * weight.max()
    family = np.concatenate([np.full(part.base.size, index) for index, part in enumerate(parts)])[kept]
    base, overhead, scale = (
        np.concatenate([getattr(part, name) for part in parts])[kept] for name in ("base", "overhead", "scale")
    )
    variance = 1 / sum(1 / each.error**2 for each in samples)
    return Posterior(family, base, overhead, weight[kept] / weight[kept].sum(), scale, variance)


@dataclass(frozen=True)
class _Part:
    """The points of one law; ``volume`` is the prior weight of each."""

    base: Array
    overhead: Array
    chi2: Array
    scale: Array
    volume: float


def _family(name: FamilyName, samples: Sequence[Sample]) -> _Part:
    (low, high, count), other = SERIAL, OVERHEAD
    over_low, over_high = other[0], other[1]
    simple = name == "amdahl"
    for _ in range(ROUNDS):
        serial = np.exp(low + (high - low) * _unit(count))
        overhead = np.zeros(1) if simple else np.exp(over_low + (over_high - over_low) * _unit(other[2]))
        base = serial[:, None] - (overhead if name == "usl" else 0.0)
        base, spread = np.broadcast_arrays(base, overhead)
        chi2, scale = _chi2(base, spread, samples)
        share = np.exp((chi2.min() - chi2) / 2)
        share /= share.sum()
        if share.max() <= SHARP:
            break
        before = (low, high, over_low, over_high)
        low, high = _zoom(low, high, share.sum(axis=1))
        if not simple:
            over_low, over_high = _zoom(over_low, over_high, share.sum(axis=0))
        if before == (low, high, over_low, over_high):
            break
    covered = (high - low) / (SERIAL[1] - SERIAL[0])
    if not simple:
        covered *= (over_high - over_low) / (OVERHEAD[1] - OVERHEAD[0])
    return _Part(base.ravel(), spread.ravel(), chi2.ravel(), scale.ravel(), PRIOR[name] * covered / chi2.size)


@lru_cache(maxsize=8)
def _unit(count: int) -> Array:
    return np.arange(count, dtype=np.float64) / (count - 1)


def _zoom(low: float, high: float, share: Array) -> tuple[float, float]:
    """Return the part of an axis that holds the weight, and a step around it."""
    held = np.flatnonzero(share > 1e-4)
    step = (high - low) / (share.size - 1)
    return low + step * max(0, int(held[0]) - 1), low + step * min(share.size - 1, int(held[-1]) + 1)


def _chi2(base: Array, overhead: Array, samples: Sequence[Sample]) -> tuple[Array, Array]:
    """Return chi² of every point and its best scale."""
    weights = [1 / each.error**2 for each in samples]
    residuals = [math.log(each.seconds) - np.log(base + overhead * each.nodes + 1 / each.nodes) for each in samples]
    scale: Array = sum(w * r for w, r in zip(weights, residuals, strict=True)) / sum(weights)
    if len(samples) == 1:
        return np.zeros_like(scale), scale
    chi2: Array = sum(w * (r - scale) ** 2 for w, r in zip(weights, residuals, strict=True))
    return chi2, scale


@lru_cache(maxsize=65536)
def from_one_size(measured: int, nodes: int) -> tuple[float, float]:
    """Return mean and standard deviation of log T(nodes)/T(measured) when only that size was measured."""
    prior = _prior()
    ratio = np.log(prior.base + prior.overhead * nodes + 1 / nodes)
    ratio -= np.log(prior.base + prior.overhead * measured + 1 / measured)
    mean = float(prior.weight @ ratio)
    return mean, math.sqrt(float(prior.weight @ (ratio - mean) ** 2))


@lru_cache(maxsize=1)
def _prior() -> Posterior:
    return posterior([Sample(1, 1.0, 1.0, 1)])
