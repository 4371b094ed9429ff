"""From signals and what the program declared to the phases of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .changes import LEAST, find_changes
from .recurring import Stretch, recognise
from .signals import Signals, noise

NEAR = 3
"""Samples within which a found change and a declared one are the same."""


@dataclass(frozen=True)
class Declared:
    """A phase that the program declared, from ``start`` to ``end`` in seconds."""

    name: str
    start: float
    end: float


@dataclass(frozen=True)
class Held:
    """A time in which a run computed at one size without a break: a generation from its first step to its end.

    ``goes_on`` is whether it takes up what was done before: not where its size was asked for because another phase
    was to begin.
    """

    start: float
    end: float
    nodes: int
    goes_on: bool = True


def find_phases(
    signals: Signals,
    held: Sequence[Held],
    declared: Iterable[Declared] = (),
    least: int = LEAST,
    *,
    split: bool = True,
) -> tuple[Stretch, ...]:
    """Return the phases of a run, in order of time.

    What the program declared is kept; where it declared nothing, changes are looked for. Each size is looked at for
    itself: a change of size is no change of phase.

    Parameters
    ----------
    signals
        Per node, or as shares of what was held, so that they can be compared between sizes.
    held
        In order of time.
    split
        Whether changes that were found inside a declared phase split it, where they are not its ends again.

    Raises
    ------
    PhasesError
        When ruptures is not installed.
    """
    names = sorted(declared, key=lambda each: each.start)
    found: list[Stretch] = []
    for part, each in enumerate(held):
        pieces = _within(signals.cut(each.start, each.end), each, names, least, split)
        found.extend(replace(piece, part=part, goes_on=each.goes_on or place > 0) for place, piece in enumerate(pieces))
    floors = {name: signals.floor(name) for name in signals.values}
    return _joined(recognise(found, floors))


def _within(part: Signals, held: Held, declared: Sequence[Declared], least: int, split: bool) -> list[Stretch]:
    edges = sorted({held.start, held.end, *_declared_edges(held, declared)})
    near = NEAR * part.period
    shares = dict.fromkeys(edges, 1.0)
    for change in find_changes(part, least):
        inside = any(each.start <= change.time < each.end for each in declared)
        if (split or not inside) and all(abs(change.time - edge) > near for edge in edges):
            shares[change.time] = change.confidence
    times = sorted(shares)
    found = []
    for start, end in zip(times, times[1:], strict=False):
        middle = (start + end) / 2
        name = next((each.name for each in reversed(declared) if each.start <= middle < each.end), None)
        means, errors = _signature(part.cut(start, end))
        found.append(Stretch(start, end, held.nodes, means, name, "", shares[start], errors))
    return found


def _declared_edges(held: Held, declared: Sequence[Declared]) -> Iterable[float]:
    for each in declared:
        for edge in (each.start, each.end):
            if held.start < edge < held.end:
                yield edge


def _signature(part: Signals) -> tuple[dict[str, float], dict[str, float]]:
    """Return mean of each signal and the standard error of it."""
    means, errors = {}, {}
    for name, values in part.values.items():
        known = values[np.isfinite(values)]
        if known.size:
            means[name] = float(np.mean(known))
            errors[name] = noise(known) / math.sqrt(known.size)
    return means, errors


def _joined(stretches: Sequence[Stretch]) -> tuple[Stretch, ...]:
    """Put stretches of the same phase and size that follow one another without a gap together."""
    found: list[Stretch] = []
    for each in stretches:
        before = found[-1] if found else None
        if before is None or (before.label, before.nodes, before.end) != (each.label, each.nodes, each.start):
            found.append(each)
            continue
        total = before.seconds + each.seconds
        names = {*before.signature, *each.signature}
        mean = {
            name: (
                before.signature.get(name, each.signature.get(name, 0.0)) * before.seconds
                + each.signature.get(name, before.signature.get(name, 0.0)) * each.seconds
            )
            / total
            for name in names
        }
        share = min(before.confidence, each.confidence)
        found[-1] = replace(before, end=each.end, signature=mean, confidence=share)
    return tuple(found)
