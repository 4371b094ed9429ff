"""Phases that come again, recognised by what they do.

Within one size two stretches are the same phase when every signal's mean agrees within its tolerance. Between sizes
the means of one phase differ, so there the phases are paired by their order of likeness: nearest first, each once,
as long as no signal differs by more than `BETWEEN_SIZES` tolerances. What goes on across a change of size is the same
phase as long as the size alone can make the difference: nothing but the size is known to have changed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

Signature = Mapping[str, float]
"""Mean of each signal over a stretch."""

BETWEEN_SIZES = 4.0
"""Tolerances by which the same phase may differ between two sizes."""
BY_SIZE = frozenset({"seconds_per_step", "memory"})
"""Signals that can't be compared between sizes."""
STATE = frozenset({"memory"})
"""Signals that tell what a program has rather than what it does: they differ after a restart."""
BY_TRAFFIC = frozenset({"received", "sent"})
"""Signals that any size can make anything of: on one node nothing is sent."""
LOGARITHMS = frozenset({"seconds_per_step", "read", "write", "switches"})
"""Signals that are decades; others are shares."""
SLACK = 3.0
"""Least changes that matter beyond what a change of size explains."""
LIKENESS = 0.15
"""Share of a signal's span over all stretches within which two means are the same."""
ERRORS = 3.0
"""Means that differ by less than so many of their standard errors are the same."""


@dataclass(frozen=True)
class Stretch:
    """A piece of a run between two changes, at one size.

    ``name`` is that of the declared phase that it lies in, None without; ``label`` the phase that it was recognised as.
    """

    start: float
    end: float
    nodes: int
    signature: Signature
    name: str | None = None
    label: str = ""
    confidence: float = 1.0
    errors: Signature = field(default_factory=dict)
    """Standard error of each mean."""
    part: int = 0
    """Number of the time without a restart that it lies in."""
    goes_on: bool = True
    """Whether nothing but a restart or a change of size is known to lie between it and the stretch before."""

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass
class _Group:
    nodes: int
    name: str | None
    means: dict[str, float]
    errors: Signature
    seconds: float
    members: list[int]
    parts: set[int]

    @property
    def signature(self) -> Signature:
        return self.means


def recognise(stretches: Sequence[Stretch], floors: Mapping[str, float] | None = None) -> tuple[Stretch, ...]:
    """Return the stretches with their labels, in the same order.

    Declared ones keep their names, however they differ; where a change was found inside of one, so that it lies in
    stretches that follow one another, its different parts are ``name/1``, ``name/2``, by first appearance. Others are
    ``phase 1``, ``phase 2``.

    Parameters
    ----------
    floors
        Least change that matters, by signal.
    """
    tolerances = _tolerances(stretches, floors or {})
    split = {
        each.name
        for before, each in zip(stretches, stretches[1:], strict=False)
        if before.name == each.name and before.nodes == each.nodes and before.end == each.start
    }
    groups: list[_Group] = []
    for index in sorted(range(len(stretches)), key=lambda each: -stretches[each].seconds):
        whole = stretches[index].name is not None and stretches[index].name not in split
        _join(groups, index, stretches[index], tolerances, math.inf if whole else 1.0)
    families = _families(groups, tolerances)
    _join_across_sizes(stretches, families, floors or {})
    return _named(stretches, families)


def _tolerances(stretches: Sequence[Stretch], floors: Mapping[str, float]) -> dict[str, float]:
    found = {}
    for name in {name for each in stretches for name in each.signature}:
        values = [each.signature[name] for each in stretches if name in each.signature]
        found[name] = max(LIKENESS * (max(values) - min(values)), floors.get(name, 0.0), 1e-9)
    return found


def _distance(
    group: _Group,
    means: Signature,
    errors: Signature,
    tolerances: Mapping[str, float],
    but: frozenset[str] = frozenset(),
) -> float:
    """Return the largest difference of a signal that both have, in tolerances; inf where they share none."""
    found = -math.inf
    for name, mean in group.means.items():
        if name in means and name not in but:
            error = ERRORS * math.hypot(group.errors.get(name, 0.0), errors.get(name, 0.0))
            found = max(found, abs(mean - means[name]) / max(tolerances[name], error))
    return found if found >= 0 else math.inf


def _join(
    groups: list[_Group], index: int, stretch: Stretch, tolerances: Mapping[str, float], within: float
) -> None:
    same = [each for each in groups if (each.nodes, each.name) == (stretch.nodes, stretch.name)]
    apart = {
        place: _distance(
            each, stretch.signature, stretch.errors, tolerances, frozenset() if stretch.part in each.parts else STATE
        )
        for place, each in enumerate(same)
    }
    near = same[min(apart, key=lambda place: apart[place])] if same else None
    if near is None or min(apart.values()) > within:
        alike = next((each for each in same if not stretch.signature or not each.means), None)
        if alike is None:
            means = dict(stretch.signature)
            groups.append(
                _Group(stretch.nodes, stretch.name, means, stretch.errors, stretch.seconds, [index], {stretch.part})
            )
        else:
            alike.members.append(index)
        return
    total = near.seconds + stretch.seconds
    for name, value in stretch.signature.items():
        before = near.means.get(name, value)
        near.means[name] = before + (value - before) * (stretch.seconds / total if total > 0 else 0.5)
    near.seconds = total
    near.members.append(index)
    near.parts.add(stretch.part)


def _families(groups: Sequence[_Group], tolerances: Mapping[str, float]) -> list[list[_Group]]:
    """Pair the groups of different sizes into phases."""
    families: list[list[_Group]] = []
    sizes = sorted({each.nodes for each in groups}, key=lambda size: -sum(g.seconds for g in groups if g.nodes == size))
    for size in sizes:
        here = [each for each in groups if each.nodes == size]
        pairs = sorted(
            (
                (min(_distance(other, each.means, each.errors, tolerances, BY_SIZE) for other in family), number, place)
                for number, each in enumerate(here)
                for place, family in enumerate(families)
                if each.name == family[0].name
            ),
        )
        taken: dict[int, int] = {}
        for apart, number, place in pairs:
            if apart <= BETWEEN_SIZES and number not in taken and place not in taken.values():
                taken[number] = place
        _only_choice(here, families, taken)
        for number, each in enumerate(here):
            if number in taken:
                families[taken[number]].append(each)
            else:
                families.append([each])
    return families


def _only_choice(here: Sequence[_Group], families: Sequence[list[_Group]], taken: dict[int, int]) -> None:
    """A declared phase that was never split is the same at every size, however it differs."""
    for number, each in enumerate(here):
        if number in taken or each.name is None or sum(other.name == each.name for other in here) > 1:
            continue
        places = [place for place, family in enumerate(families) if family[0].name == each.name]
        if len(places) == 1 and places[0] not in taken.values():
            taken[number] = places[0]


def _join_across_sizes(
    stretches: Sequence[Stretch], families: list[list[_Group]], floors: Mapping[str, float]
) -> None:
    """Put together what goes on across a change of size, where the size alone can make the difference."""
    pairs = [
        (index, index + 1)
        for index, (before, after) in enumerate(zip(stretches, stretches[1:], strict=False))
        if before.part != after.part and after.goes_on and before.name is None and after.name is None
    ]
    joined = True
    while joined:
        joined = False
        for pair in pairs:
            one, other = (
                next(each for each in families if any(index in group.members for group in each)) for index in pair
            )
            if one is not other and _is_explained(stretches[pair[0]], stretches[pair[1]], floors):
                shared = [(a, b) for a in one for b in other if a.nodes == b.nodes]
                if all(not a.parts & b.parts and _is_explained(a, b, floors) for a, b in shared):
                    one.extend(other)
                    families[:] = [each for each in families if each is not other]
                    joined = True


class _Measured(Protocol):
    """Means at a size, and their standard errors."""

    @property
    def nodes(self) -> int: ...

    @property
    def signature(self) -> Signature: ...

    @property
    def errors(self) -> Signature: ...


def _is_explained(before: _Measured, after: _Measured, floors: Mapping[str, float]) -> bool:
    """Whether a change of size can make the difference between two times.

    A step then takes between as long as before, and as much more or less as there are fewer or more nodes. What
    a node does in a second changes by no more than that, either way.
    """
    ratio = math.log10(before.nodes / after.nodes)
    for name in before.signature.keys() & after.signature.keys() - STATE - BY_TRAFFIC:
        first, second = before.signature[name], after.signature[name]
        slack = ERRORS * math.hypot(before.errors.get(name, 0.0), after.errors.get(name, 0.0))
        slack = max(slack, SLACK * floors.get(name, LIKENESS * max(abs(first), abs(second)) / SLACK))
        low, high = -abs(ratio), abs(ratio)
        if name == "seconds_per_step":
            low, high = min(0.0, ratio), max(0.0, ratio)
        least, most = (first + low, first + high) if name in LOGARITHMS else (first * 10**low, first * 10**high)
        if not min(least, most) - slack <= second <= max(least, most) + slack:
            return False
    return True


def _named(stretches: Sequence[Stretch], families: Sequence[list[_Group]]) -> tuple[Stretch, ...]:
    family_of = {index: place for place, family in enumerate(families) for group in family for index in group.members}
    order: dict[int, None] = dict.fromkeys(family_of[index] for index in range(len(stretches)))
    parts: dict[str | None, list[int]] = {}
    for place in order:
        parts.setdefault(families[place][0].name, []).append(place)
    labels = {}
    for name, places in parts.items():
        for number, place in enumerate(places, start=1):
            if name is None:
                labels[place] = f"phase {number}"
            else:
                labels[place] = name if len(places) == 1 else f"{name}/{number}"
    return tuple(replace(each, label=labels[family_of[index]]) for index, each in enumerate(stretches))
