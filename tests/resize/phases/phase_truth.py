"""Series of which the phases are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dmr.resize.phases.signals import Signals

LEVELS = {
    "solve": {"cpu": 0.95, "memory": 60.0, "network": 200.0, "disk": 1.0},
    "assemble": {"cpu": 0.60, "memory": 40.0, "network": 20.0, "disk": 5.0},
    "write": {"cpu": 0.15, "memory": 42.0, "network": 30.0, "disk": 90.0},
}
"""Means of each signal in each phase; cpu is a share."""
SPAN = {"cpu": 0.35, "memory": 18.0, "network": 170.0, "disk": 85.0}
"""A typical change of each signal between two phases; noise is given as a share of it."""
FLOORS = {"cpu": 0.03}


@dataclass(frozen=True)
class Truth:
    signals: Signals
    boundaries: tuple[int, ...]
    """Indices of the first sample of each phase but the first."""
    names: tuple[str, ...]


def scatter(rng: np.random.Generator, count: int, kind: str) -> np.ndarray:
    """Return noise of standard deviation 1."""
    if kind == "gaussian":
        return rng.normal(size=count)
    if kind == "heavy":
        return rng.standard_t(4, size=count) / np.sqrt(2)
    if kind == "uniform":
        return rng.uniform(-np.sqrt(3), np.sqrt(3), size=count)
    if kind == "correlated":
        found = np.empty(count)
        found[0] = rng.normal()
        for index, push in enumerate(rng.normal(size=count - 1) * np.sqrt(1 - 0.5**2)):
            found[index + 1] = 0.5 * found[index] + push
        return found
    if kind == "spiky":
        return 0.5 * rng.normal(size=count) + 6 * (np.arange(count) % int(rng.integers(20, 40)) == 0)
    raise ValueError(kind)


def series(
    rng: np.random.Generator,
    noise: float,
    *,
    occurrences: int = 7,
    shortest: int = 25,
    longest: int = 90,
    kind: str = "gaussian",
) -> Truth:
    """Return a series of phases of random lengths, no two alike beside each other."""
    names: list[str] = []
    while len(names) < occurrences:
        name = str(rng.choice(list(LEVELS)))
        if not names or names[-1] != name:
            names.append(name)
    lengths = rng.integers(shortest, longest, size=occurrences)
    count = int(lengths.sum())
    values = {}
    for signal, span in SPAN.items():
        level = np.repeat([LEVELS[name][signal] for name in names], lengths)
        values[signal] = level + noise * span * scatter(rng, count, kind)
    boundaries = tuple(int(each) for each in np.cumsum(lengths)[:-1])
    return Truth(Signals(np.arange(count, dtype=float), values, FLOORS), boundaries, tuple(names))


def stationary(rng: np.random.Generator, kind: str, count: int = 600) -> Signals:
    """Return a series without any phase, whose noise is not small beside its level."""
    values = {signal: LEVELS["solve"][signal] + 0.3 * span * scatter(rng, count, kind) for signal, span in SPAN.items()}
    return Signals(np.arange(count, dtype=float), values, FLOORS)


def score(found: Sequence[int], truth: Sequence[int], tolerance: int = 2) -> tuple[int, int, int]:
    """Return hits, false and missed boundaries."""
    left = list(truth)
    hits = 0
    for each in found:
        near = [other for other in left if abs(other - each) <= tolerance]
        if near:
            left.remove(min(near, key=lambda other: abs(other - each)))
            hits += 1
    return hits, len(found) - hits, len(left)
