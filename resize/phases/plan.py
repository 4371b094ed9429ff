"""Which size each phase should have: few node-hours in a given time, or little time for given node-hours.

For a price λ of a second in node-seconds, each phase takes the size with the least n·T(n) + λ·T(n); over the range of λ
these are the plans that no other one beats in both. What a change of size costs is added where neighbouring phases
differ, and so plans in which a phase takes a neighbour's size to save the change are looked at as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Seconds = Callable[[str, int], float | None]
"""(phase, nodes) → seconds a step, None where unknown."""
Aim = Literal["hours", "time"]
NEGLIGIBLE = 1e-9
LENIENCE = 1.05
BALANCE = 1 / 3
"""A per cent of what is not aimed at is worth this many per cent of what is."""


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
    allowed: Sequence[int] | Mapping[str, Sequence[int]],
    seconds: Seconds,
    base: int,
    *,
    change: Callable[[int], float] | None = None,
    slower: float = 1.0,
    more: float = 1.0,
    aim: Aim = "hours",
    spare_seconds: float = 0.0,
    spare_node_seconds: float = 0.0,
    now: int | None = None,
) -> SizePlan | None:
    """Return the plan; None when a phase's speed at ``base`` is not known, or no size is allowed.

    Parameters
    ----------
    allowed
        The sizes to choose from, for all or by phase.
    base
        The size that it is measured against.
    change
        Seconds without computing that a change to a size takes; None for none.
    slower, more
        With ``aim`` ``hours``: the plan may take ``slower`` times what ``base`` takes. With ``time``: it may cost
        ``more`` times the node-hours.
    spare_seconds, spare_node_seconds
        What was gained before against ``base`` and may be spent; negative for what was lost.
    now
        The present size, from which the first part may be a change; None for none.
    """
    change = change or (lambda size: 0.0)
    steps: dict[str, int] = {}
    for part in parts:
        steps[part.phase] = steps.get(part.phase, 0) + part.steps
    times: dict[str, dict[int, float]] = {}
    choices: dict[str, dict[int, float]] = {}
    for phase in steps:
        wanted = allowed[phase] if isinstance(allowed, Mapping) else allowed
        known = {size: seconds(phase, size) for size in {*wanted, base}}
        times[phase] = {size: each * steps[phase] for size, each in known.items() if each is not None}
        choices[phase] = {size: each for size, each in times[phase].items() if size in wanted}
        if base not in times[phase] or not choices[phase]:
            return None
    if not parts:
        return None
    base_seconds = sum(found[base] for found in times.values())
    base_cost = base * base_seconds
    # To be at the base would be a change, too.
    back = change(base) if now is not None and now != base else 0.0
    limits = (
        slower * base_seconds + back + spare_seconds,
        more * base_cost + back * ((now or base) + base) / 2 + spare_node_seconds,
    )
    found: list[tuple[float, float, dict[str, int]]] = []
    for sizes in _candidates(parts, choices, base):
        complete = {phase: times[phase] for phase in sizes}
        found.append((*_value(sizes, parts, complete, change, now), sizes))
    best = _best(found, limits, aim)
    return SizePlan(best[2], best[0], best[1] / 3600, base, base_seconds, base_cost / 3600)


def _best(
    found: Sequence[tuple[float, float, dict[str, int]]], limits: tuple[float, float], aim: Aim
) -> tuple[float, float, dict[str, int]]:
    """Return the best plan within the limit; where none is, of those that exceed it little more than they must.

    To get from the limit's far side a little nearer to it is not worth everything of the other.
    """

    def bounded(each: tuple[float, float, dict[str, int]]) -> float:
        return each[0] if aim == "hours" else each[1]

    limit = limits[0] if aim == "hours" else limits[1]
    within = [each for each in found if bounded(each) <= limit * (1 + NEGLIGIBLE)]
    if not within:
        limit = LENIENCE * min(bounded(each) for each in found)
        within = [each for each in found if bounded(each) <= limit]
    return min(within, key=lambda each: (merit(each[0], each[1], aim), each[1]))


def merit(seconds: float, node_hours: float, aim: Aim) -> float:
    """Return what a plan is judged by; less is better.

    The node-hours (or, with the aim ``time``, the seconds), and the other one by a little: of two plans that are nearly
    as good in what is aimed at, the one that is much better in the other.
    """
    aimed, other = (node_hours, seconds) if aim == "hours" else (seconds, node_hours)
    return aimed * math.pow(other, BALANCE)


def _candidates(
    parts: Sequence[Part], choices: Mapping[str, Mapping[int, float]], base: int
) -> list[dict[str, int]]:
    seen: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}

    def add(sizes: dict[str, int]) -> None:
        seen.setdefault(tuple(sorted(sizes.items())), sizes)

    if all(base in found for found in choices.values()):
        add(dict.fromkeys(choices, base))
    for price in _prices():
        best = {
            phase: min(found, key=lambda size: ((size + price) * found[size], size)) for phase, found in choices.items()
        }
        add(best)
        for variant in _fewer_changes(best, choices):
            add(variant)
    return list(seen.values())


def _prices() -> list[float]:
    return [0.0, *(10 ** (exponent / 8) for exponent in range(-16, 49))]


def _fewer_changes(sizes: Mapping[str, int], choices: Mapping[str, Mapping[int, float]]) -> list[dict[str, int]]:
    """Return variants in which one phase takes the size of another, or all take one, so that changes fall away."""
    found = []
    for phase in sizes:
        for other in {sizes[each] for each in sizes if sizes[each] != sizes[phase]}:
            if other in choices[phase]:
                found.append({**sizes, phase: other})
    for one in set(sizes.values()):
        if all(one in each for each in choices.values()):
            found.append(dict.fromkeys(sizes, one))
    return found


def _value(
    sizes: Mapping[str, int],
    parts: Sequence[Part],
    times: Mapping[str, Mapping[int, float]],
    change: Callable[[int], float],
    now: int | None,
) -> tuple[float, float]:
    """Return seconds and node-seconds, the changes included (both sizes held by half)."""
    seconds = sum(found[sizes[phase]] for phase, found in times.items())
    node_seconds = sum(sizes[phase] * found[sizes[phase]] for phase, found in times.items())
    row = [sizes[part.phase] for part in parts]
    if now is not None:
        row.insert(0, now)
    for one, other in zip(row, row[1:], strict=False):
        if one != other:
            seconds += change(other)
            node_seconds += change(other) * (one + other) / 2
    return seconds, node_seconds
