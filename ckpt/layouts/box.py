"""Boxes of a global index space."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Box:
    """The half-open box ``lo <= index < hi`` of a global index space.

    Parameters
    ----------
    lo, hi
        First index, and one past the last, along each axis. ``hi[i] >= lo[i]``.
    """

    lo: tuple[int, ...]
    hi: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent along each axis."""
        return tuple([high - low for low, high in zip(self.lo, self.hi, strict=True)])

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Slices that cut this box out of the global array."""
        return tuple([slice(low, high) for low, high in zip(self.lo, self.hi, strict=True)])

    def overlap(self, other: Box) -> Box | None:
        """Return the common box, None when it is empty."""
        lo = tuple(map(max, self.lo, other.lo))
        hi = tuple(map(min, self.hi, other.hi))
        return Box(lo, hi) if all(map(int.__lt__, lo, hi)) else None

    def within(self, outer: Box) -> tuple[slice, ...]:
        """Return the slices that cut this box out of an array that holds ``outer``."""
        return tuple([slice(low - at, high - at) for low, high, at in zip(self.lo, self.hi, outer.lo, strict=True)])
