"""Which size each phase should have: the fewest node-hours for a given time, changes of size paid for.

For a price λ of a second in node-seconds, each phase takes the size with the least n·T(n) + λ·T(n); the least λ
that keeps the time is found by bisection. What a change costs is added where neighbouring phases differ, and a
plan that does not beat one size throughout is not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Seconds = Callable[[str, int], float | None]
"""(phase, nodes) → seconds a step, None where unknown."""


@dataclass(frozen=True)
class Part:
    """A phase as it comes, and how many steps it has."""

    phase: str
    steps: int


@dataclass(frozen=True)
class SizePlan:
    """Sizes by phase, and what the parts take with them beside ``base`` nodes throughout."""

    sizes: Mapping[str, int]
    seconds: float
    node_hours: float
    base: int
    base_seconds: float
    base_node_hours: float


def plan(
    parts: Sequence[Part],
    allowed: Sequence[int],
    seconds: Seconds,
    base: int,
    *,
    change: float = 0.0,
    slower: float = 1.0,
) -> SizePlan | None:
    """Return the plan; None when the speed of a phase is not known at enough sizes, or no size is allowed.

    Parameters
    ----------
    base
        The size that it is measured against.
    change
        Seconds without computing that a change of size takes.
    slower
        The plan may take this many times what ``base`` takes.
    """
    steps: dict[str, int] = {}
    for part in parts:
        steps[part.phase] = steps.get(part.phase, 0) + part.steps
    times: dict[str, dict[int, float]] = {}
    for phase in steps:
        known = {size: seconds(phase, size) for size in {*allowed, base}}
        times[phase] = {size: each * steps[phase] for size, each in known.items() if each is not None}
        if base not in times[phase]:
            return None
    choices = {phase: {size: each for size, each in found.items() if size in allowed} for phase, found in times.items()}
    if not parts or not all(choices.values()):
        return None
    base_seconds = sum(found[base] for found in times.values())
    limit = slower * base_seconds
    best = dict.fromkeys(steps, base)
    best_value = (base_seconds, base * base_seconds)
    for price in _prices():
        sizes = {
            phase: min(found, key=lambda size: ((size + price) * found[size], size)) for phase, found in choices.items()
        }
        for candidate in (sizes, *_fewer_changes(sizes, parts, choices)):
            value = _value(candidate, parts, times, change)
            if value[0] <= limit and value[1] < best_value[1]:
                best, best_value = candidate, value
    return SizePlan(best, best_value[0], best_value[1] / 3600, base, base_seconds, base * base_seconds / 3600)


def _prices() -> list[float]:
    return [0.0, *(10 ** (exponent / 8) for exponent in range(-16, 49))]


def _fewer_changes(
    sizes: Mapping[str, int], parts: Sequence[Part], choices: Mapping[str, Mapping[int, float]]
) -> list[dict[str, int]]:
    """Return variants in which one phase takes the size of another, so that a change falls away."""
    found = []
    for phase in sizes:
        for other in {sizes[each] for each in sizes if sizes[each] != sizes[phase]}:
            if other in choices[phase]:
                found.append({**sizes, phase: other})
    return found


def _value(
    sizes: Mapping[str, int], parts: Sequence[Part], times: Mapping[str, Mapping[int, float]], change: float
) -> tuple[float, float]:
    """Return seconds and node-seconds, the changes included (both sizes held by half)."""
    seconds = sum(found[sizes[phase]] for phase, found in times.items())
    node_seconds = sum(sizes[phase] * found[sizes[phase]] for phase, found in times.items())
    for before, after in zip(parts, parts[1:], strict=False):
        one, other = sizes[before.phase], sizes[after.phase]
        if one != other:
            seconds += change
            node_seconds += change * (one + other) / 2
    return seconds, node_seconds
