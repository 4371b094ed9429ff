"""How long a step takes at each size: measured where measured, bounded elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .view import Rate

ASSUMED_PARALLEL = 0.99
"""Amdahl's parallel fraction assumed beyond what was measured: optimistic, yet growth is bounded by it."""


@dataclass(frozen=True)
class Estimate:
    """Seconds a step: the likely value, and the least and the most that it may be."""

    value: float
    low: float
    high: float
    measured: bool


class Speed:
    """Seconds a step over size from the measurements of one run.

    At a measured size it is the mean over the steps measured there. Elsewhere Amdahl's law with
    `ASSUMED_PARALLEL` goes through the nearest measured size; the bounds are no change at all and change
    in proportion.
    """

    def __init__(self, rates: Iterable[Rate], phase: str | None = None) -> None:
        found = [each for each in rates if each.seconds_per_step > 0 and each.steps > 0]
        of_phase = [each for each in found if each.phase == phase]
        sums: dict[int, tuple[float, int]] = {}
        for each in of_phase or found:
            seconds, steps = sums.get(each.nodes, (0.0, 0))
            sums[each.nodes] = (seconds + each.seconds_per_step * each.steps, steps + each.steps)
        self.measured = {nodes: seconds / steps for nodes, (seconds, steps) in sums.items()}

    @property
    def basis(self) -> str:
        """What the estimates rest on, in words."""
        if not self.measured:
            return "no speed measured yet"
        sizes = ", ".join(map(str, sorted(self.measured)))
        return f"measured at {sizes} nodes; elsewhere assumed {ASSUMED_PARALLEL:g} parallel (optimistic, bounded)"

    def at(self, nodes: int) -> Estimate | None:
        """Return seconds a step at this size, None when nothing was measured yet."""
        if not self.measured:
            return None
        if nodes in self.measured:
            value = self.measured[nodes]
            return Estimate(value, value, value, True)
        near = min(self.measured, key=lambda size: abs(size - nodes) / max(size, nodes))
        base = self.measured[near]
        value = base * _amdahl(nodes) / _amdahl(near)
        linear = base * near / nodes
        return Estimate(value, min(base, linear), max(base, linear), False)


def _amdahl(nodes: int) -> float:
    return 1 - ASSUMED_PARALLEL + ASSUMED_PARALLEL / nodes
