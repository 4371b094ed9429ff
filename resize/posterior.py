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
SERIAL = (math.log(1e-5), math.log(1e1), 37)
"""Least, most and number of grid values of the log of the serial part, relative to the parallel work."""
OVERHEAD = (math.log(1e-8), math.log(1e-1), 17)
"""The same of the overhead that grows with size."""
SHARP = 0.12
"""A grid on which one point has more weight than this is refined."""
ROUNDS = 6


@dataclass(frozen=True)
class Posterior:
    """Points (law, serial part s, overhead o) with T(n) = e^scale (1/n + s + o·g(n)), and their weights.

    ``family`` is an index into `FAMILIES`; g(n) is n for Sevcik, n−1 for the universal law, and o is 0
    for Amdahl. ``variance`` is that of the scale.
    """

    family: NDArray[np.int64]
    serial: Array
    overhead: Array
    weight: Array
    scale: Array
    variance: float

    def predict(self, nodes: float) -> tuple[float, float]:
        """Return mean and standard deviation of log T at a size."""
        logs = self.scale + log_time(self.family, self.serial, self.overhead, nodes)
        mean = float(self.weight @ logs)
        return mean, math.sqrt(max(0.0, float(self.weight @ (logs - mean) ** 2)) + self.variance)

    def evidence(self) -> dict[FamilyName, float]:
        """Return the probability of each law."""
        return {name: float(self.weight[self.family == index].sum()) for index, name in enumerate(FAMILIES)}


def log_time(family: NDArray[np.int64], serial: Array, overhead: Array, nodes: float) -> Array:
    """Return log T(n) up to the scale."""
    growing = np.where(family == FAMILIES.index("usl"), nodes - 1.0, nodes)
    found: Array = np.log(1 / nodes + serial + overhead * growing)
    return found


def posterior(samples: Sequence[Sample]) -> Posterior:
    """Return the posterior for one or more samples.

    Errors are Gaussian in the logarithm; the scale has a flat prior and is integrated out; the logs of serial
    part and overhead have flat priors over `SERIAL` and `OVERHEAD`.
    """
    parts = [_family(index, samples) for index in range(len(FAMILIES))]
    best = min(float(chi2.min()) for *_, chi2, _ in parts)
    weights = [volume * np.exp((best - chi2) / 2) for *_, chi2, volume in parts]
    total = sum(float(each.sum()) for each in weights)
    serial = np.concatenate([part[0] for part in parts])
    overhead = np.concatenate([part[1] for part in parts])
    family = np.concatenate([np.full(part[0].size, index) for index, part in enumerate(parts)])
    scale, variance = _scale(family, serial, overhead, samples)
    return Posterior(family, serial, overhead, np.concatenate(weights) / total, scale, variance)


def _family(index: int, samples: Sequence[Sample]) -> tuple[Array, Array, Array, float]:
    """Return serial part, overhead and chi² of the points of one law, and the prior weight of each point."""
    name = FAMILIES[index]
    bounds = [SERIAL] if name == "amdahl" else [SERIAL, OVERHEAD]
    axes = [np.linspace(*each) for each in bounds]
    for _ in range(ROUNDS):
        mesh = np.meshgrid(*axes, indexing="ij")
        serial = np.exp(mesh[0]).ravel()
        overhead = np.zeros_like(serial) if name == "amdahl" else np.exp(mesh[1]).ravel()
        chi2 = _chi2(np.full(serial.size, index), serial, overhead, samples)
        share = np.exp((chi2.min() - chi2) / 2)
        share /= share.sum()
        if share.max() <= SHARP:
            break
        finer = [_zoom(axis, share.reshape(mesh[0].shape), place) for place, axis in enumerate(axes)]
        if all(new[0] == old[0] and new[-1] == old[-1] for new, old in zip(finer, axes, strict=True)):
            break
        axes = finer
    covered = math.prod((axis[-1] - axis[0]) / (b[1] - b[0]) for axis, b in zip(axes, bounds, strict=True))
    return serial, overhead, chi2, PRIOR[name] * covered / serial.size


def _zoom(axis: Array, share: Array, place: int) -> Array:
    """Return an axis of as many values over the part that holds the weight, and a step around it."""
    other = tuple(each for each in range(share.ndim) if each != place)
    held = np.flatnonzero(share.sum(axis=other) > 1e-4)
    low, high = max(0, int(held[0]) - 1), min(axis.size - 1, int(held[-1]) + 1)
    finer: Array = np.linspace(axis[low], axis[high], axis.size)
    return finer


def _chi2(family: NDArray[np.int64], serial: Array, overhead: Array, samples: Sequence[Sample]) -> Array:
    if len(samples) == 1:
        return np.zeros_like(serial)
    scale, _ = _scale(family, serial, overhead, samples)
    found = np.zeros_like(serial)
    for each in samples:
        residual = math.log(each.seconds) - scale - log_time(family, serial, overhead, each.nodes)
        found += (residual / each.error) ** 2
    return found


def _scale(
    family: NDArray[np.int64], serial: Array, overhead: Array, samples: Sequence[Sample]
) -> tuple[Array, float]:
    total = sum(1 / each.error**2 for each in samples)
    scale = np.zeros_like(serial)
    for each in samples:
        scale += (math.log(each.seconds) - log_time(family, serial, overhead, each.nodes)) / each.error**2
    return scale / total, 1 / total


@lru_cache(maxsize=65536)
def from_one_size(measured: int, nodes: int) -> tuple[float, float]:
    """Return mean and standard deviation of log T(nodes)/T(measured) when only that size was measured."""
    prior = _prior()
    ratio = log_time(prior.family, prior.serial, prior.overhead, nodes)
    ratio = ratio - log_time(prior.family, prior.serial, prior.overhead, measured)
    mean = float(prior.weight @ ratio)
    return mean, math.sqrt(float(prior.weight @ (ratio - mean) ** 2))


@lru_cache(maxsize=1)
def _prior() -> Posterior:
    return posterior([Sample(1, 1.0, 1.0, 1)])
