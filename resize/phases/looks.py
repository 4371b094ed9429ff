"""What a phase looks like to those who watch the nodes, and which phases of two runs are the same."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .recurring import BETWEEN_SIZES, BY_SIZE, ERRORS, STATE, Stretch
from .signals import RELATIVE_FLOOR, Array, Signals

WHOLE = "whole run"
"""Name of the phase of a run in which no other was found."""
EDGE = 2
"""Samples at both ends of a phase that belong to it in part; of a short one fewer."""
LEAST = 2
"""Samples without which nothing is said of how a phase looks."""
SLACK = 3.0
"""Least changes that matter by which the same phase may differ between two runs: other jobs have the node, too."""
SEPARATION = 0.35
"""Share of a signal's span over all known phases by which it may."""


@dataclass(frozen=True)
class Look:
    """Mean of each signal in a phase at a size, and the standard deviation of one sample a second around it."""

    phase: str
    nodes: int
    mean: Mapping[str, float]
    spread: Mapping[str, float]
    samples: int


@dataclass(frozen=True)
class Tolerance:
    """How much a signal may differ: the least change that matters, and the span over all known phases."""

    name: str
    floor: float
    span: float

    def likeness(self, spread: float, samples: int, *, elsewhere: bool = False) -> float:
        """Return by how much the median over some samples may be off; ``elsewhere``: known from another size."""
        if self.name in STATE:
            return math.inf
        # The median of a few samples scatters 1.25 times as much as their mean.
        error = ERRORS * 1.25 * spread / math.sqrt(samples)
        return max(error, max(SLACK * self.floor, SEPARATION * self.span) * (BETWEEN_SIZES if elsewhere else 1.0))


def tolerances(looks: Sequence[Look], floors: Mapping[str, float]) -> dict[str, Tolerance]:
    """Return the tolerance of each signal."""
    found = {}
    for name in {name for each in looks for name in each.mean}:
        values = [each.mean[name] for each in looks if name in each.mean]
        floor = floors.get(name, RELATIVE_FLOOR * max(map(abs, values)))
        found[name] = Tolerance(name, floor, max(values) - min(values))
    return found


def looks_of(stretches: Sequence[Stretch], signals: Signals) -> tuple[Look, ...]:
    """Return what the phases of a run look like, by phase and size.

    Parameters
    ----------
    stretches
        With their labels.
    signals
        Of the whole run. Where a sample is the mean over more than a second, one second scatters more.
    """
    places: dict[tuple[str, int], list[Array]] = {}
    for each in stretches:
        inside = min(EDGE * signals.period, each.seconds / 5)
        low, high = np.searchsorted(signals.times, [each.start + inside, each.end - inside])
        if high > low:
            places.setdefault((each.label, each.nodes), []).append(np.arange(low, high, dtype=np.float64))
    widen = math.sqrt(max(1.0, signals.period))
    found = []
    for (phase, nodes), parts in places.items():
        chosen = np.concatenate(parts).astype(np.intp)
        mean, spread = {}, {}
        for name, values in signals.values.items():
            known = values[chosen][np.isfinite(values[chosen])]
            if known.size >= LEAST:
                mean[name], spread[name] = float(known.mean()), float(known.std()) * widen
        if mean:
            found.append(Look(phase, nodes, mean, spread, round(chosen.size * max(1.0, signals.period))))
    return tuple(found)


def merged(looks: Iterable[tuple[float, Look]]) -> tuple[Look, ...]:
    """Return one look a phase and size from those of several runs, each with its weight."""
    rows: dict[tuple[str, int], list[tuple[float, Look]]] = {}
    for weight, each in looks:
        rows.setdefault((each.phase, each.nodes), []).append((weight * each.samples, each))
    return tuple(_mean(phase, nodes, same) for (phase, nodes), same in rows.items())


def _mean(phase: str, nodes: int, looks: Sequence[tuple[float, Look]]) -> Look:
    mean, spread = {}, {}
    for name in dict.fromkeys(name for _, each in looks for name in each.mean):
        known = [(weight, each.mean[name], each.spread[name]) for weight, each in looks if name in each.mean]
        total = math.fsum(weight for weight, _, _ in known) or 1.0
        middle = math.fsum(weight * value for weight, value, _ in known) / total
        square = math.fsum(weight * (around**2 + (value - middle) ** 2) for weight, value, around in known) / total
        mean[name], spread[name] = middle, math.sqrt(square)
    return Look(phase, nodes, mean, spread, sum(each.samples for _, each in looks))


def named_as_known(
    stretches: Sequence[Stretch], own: Sequence[Look], known: Sequence[Look], floors: Mapping[str, float]
) -> tuple[Stretch, ...]:
    """Return stretches that nobody declared under the names that earlier runs have for what looks the same.

    The likest are paired first. Phases of one size that were told apart get different names. What is like none keeps
    its name, or gets a new one where that is taken.

    Parameters
    ----------
    own, known
        What the phases of this run, and those of earlier ones, look like.
    """
    declared = {each.label for each in stretches if each.name is not None}
    free = dict.fromkeys(each.label for each in stretches if each.label not in declared)
    names = dict.fromkeys(each.phase for each in known if each.phase not in declared)
    if len(free) > 1:
        names.pop(WHOLE, None)
    allowed = tolerances([*own, *known], floors)
    pairs = sorted(
        (apart, label, name)
        for label in free
        for name in names
        if (apart := _apart(label, name, own, known, allowed)) <= 1.0
    )
    sizes = {label: {each.nodes for each in stretches if each.label == label} for label in free}
    chosen: dict[str, str] = {}
    for _, label, name in pairs:
        beside = [other for other, its in chosen.items() if its == name]
        if label not in chosen and not any(sizes[label] & sizes[other] for other in beside):
            chosen[label] = name
    taken = {*names, *declared}
    number = 1
    for label in free:
        if label in chosen:
            continue
        new = label
        while new in taken:
            new, number = f"phase {number}", number + 1
        chosen[label] = new
        taken.add(new)
    return tuple(replace(each, label=chosen.get(each.label, each.label)) for each in stretches)


def _apart(
    label: str, name: str, own: Sequence[Look], known: Sequence[Look], allowed: Mapping[str, Tolerance]
) -> float:
    """Return the largest difference of a signal, in what it may be; at the sizes of both, else between their sizes."""
    pairs = [(mine, other) for mine in own for other in known if (mine.phase, other.phase) == (label, name)]
    shared = [(mine, other) for mine, other in pairs if mine.nodes == other.nodes]
    return min((_difference(mine, other, allowed) for mine, other in shared or pairs), default=math.inf)


def _difference(mine: Look, other: Look, allowed: Mapping[str, Tolerance]) -> float:
    elsewhere = mine.nodes != other.nodes
    found = -math.inf
    for signal in mine.mean:
        if signal in other.mean and not (elsewhere and signal in BY_SIZE):
            error = math.hypot(*(each.spread[signal] / math.sqrt(max(1, each.samples)) for each in (mine, other)))
            within = allowed[signal].likeness(error, 1, elsewhere=elsewhere)
            found = max(found, abs(mine.mean[signal] - other.mean[signal]) / within)
    return found if found >= 0 else math.inf
