"""Layouts whose parts are named one by one, for one number of ranks."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..errors import Mismatch
from .box import Box
from .layout import Block, BoxLayout, Layout, Shape, axes_of
from .parts import Part


@dataclass(frozen=True)
class Counts(BoxLayout):
    """Consecutive indices along one axis, so many for each rank: what a load balancer makes.

    Loaded on another number of ranks it becomes ``Block(axis)``.

    Parameters
    ----------
    counts
        Number of indices of each rank; their sum is the extent of the axis.
    axis
        The axis that is split.
    """

    counts: tuple[int, ...]
    axis: int = 0

    kind: ClassVar[str] = "counts"

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", tuple(int(each) for each in self.counts))
        if not self.counts or min(self.counts) < 0:
            raise ValueError("Counts: one number that is not negative for each rank")

    def boxes(self, shape: Shape, ranks: int) -> tuple[tuple[Box, ...], ...]:
        """Return the one box of each rank, in the order of ranks."""
        return _counts_boxes(self, tuple(shape), ranks)

    def at(self, ranks: int) -> Layout:
        """Return this layout at its own number of ranks, blocks at any other."""
        return self if ranks == len(self.counts) else Block(axis=self.axis)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "counts": list(self.counts), "axis": self.axis}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Counts:
        return cls(tuple(data["counts"]), int(data["axis"]))


@functools.lru_cache(maxsize=64)
def _counts_boxes(layout: Counts, shape: Shape, ranks: int) -> tuple[tuple[Box, ...], ...]:
    (axis,) = axes_of(f"Counts(axis={layout.axis})", (layout.axis,), shape)
    if len(layout.counts) != ranks or sum(layout.counts) != shape[axis]:
        raise Mismatch(
            f"Counts has {len(layout.counts)} numbers with sum {sum(layout.counts)}; for {shape} on {ranks} ranks "
            f"it takes {ranks} numbers with sum {shape[axis]}"
        )
    found = []
    begin = 0
    for count in layout.counts:
        lo, hi = [0] * len(shape), list(shape)
        lo[axis], hi[axis] = begin, begin + count
        begin += count
        found.append((Box(tuple(lo), tuple(hi)),))
    return tuple(found)


@dataclass(frozen=True)
class Boxes:
    """Any set of boxes for each rank, such as the patches of an adaptive mesh.

    A rank's data is one-dimensional: its boxes one after the other, each in C order; `views` gives them their shapes.
    No two boxes may overlap. Loaded on another number of ranks, the boxes are dealt out whole, in their order, so that
    ranks get about the same number of elements.

    Parameters
    ----------
    of
        The boxes of each rank, in the order of ranks; known to every rank.
    partial
        Whether elements may be in no box; these are zero in the file. Refused otherwise.
    """

    of: tuple[tuple[Box, ...], ...]
    partial: bool = False

    kind: ClassVar[str] = "boxes"
    flat: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "of", tuple(tuple(each) for each in self.of))

    def boxes(self, shape: Shape, ranks: int) -> tuple[tuple[Box, ...], ...]:
        """Return the boxes of each rank.

        Raises
        ------
        Mismatch
            When they are of another number of ranks, reach beyond the array, overlap, or leave elements out.
        """
        if len(self.of) != ranks:
            raise Mismatch(f"Boxes names the boxes of {len(self.of)} ranks, and there are {ranks}")
        _check_boxes(self, tuple(shape))
        return self.of

    def parts(self, shape: Shape, ranks: int, rank: int) -> tuple[Part, ...]:
        """Return what a rank holds, in the order in which its memory holds it."""
        return tuple(Part.of(box) for box in self.boxes(shape, ranks)[rank])

    def views(self, local: npt.NDArray[Any], rank: int) -> list[npt.NDArray[Any]]:
        """Return this rank's boxes as arrays of their shapes; views of ``local``."""
        found = []
        begin = 0
        for box in self.of[rank]:
            found.append(local[begin : begin + box.size].reshape(box.shape))
            begin += box.size
        return found

    def at(self, ranks: int) -> Layout:
        """Return this layout at its own number of ranks; at another one the boxes dealt out anew, whole."""
        return (
            self
            if ranks == len(self.of)
            else Boxes(deal([box for each in self.of for box in each], ranks), self.partial)
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "boxes": [[[list(box.lo), list(box.hi)] for box in each] for each in self.of],
            "partial": self.partial,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Boxes:
        return cls(
            tuple(tuple(Box(tuple(lo), tuple(hi)) for lo, hi in each) for each in data["boxes"]), bool(data["partial"])
        )


def deal(boxes: Sequence[Box], ranks: int) -> tuple[tuple[Box, ...], ...]:
    """Deal boxes out in their order, so that each rank gets about the same number of elements."""
    sizes = np.array([box.size for box in boxes], np.int64)
    middles = np.cumsum(sizes) - sizes / 2
    owners = np.minimum((middles * ranks / max(int(sizes.sum()), 1)).astype(np.int64), ranks - 1).tolist()
    found: list[list[Box]] = [[] for _ in range(ranks)]
    for box, owner in zip(boxes, owners, strict=True):
        found[owner].append(box)
    return tuple(map(tuple, found))


@functools.lru_cache(maxsize=64)
def _check_boxes(layout: Boxes, shape: Shape) -> None:
    named = [(rank, box) for rank, each in enumerate(layout.of) for box in each]
    for rank, box in named:
        if len(box.lo) != len(shape) or any(
            not 0 <= lo <= hi <= n for lo, hi, n in zip(box.lo, box.hi, shape, strict=False)
        ):
            raise Mismatch(f"rank {rank} has {box}, which is no box of an array of shape {shape}")
    named = [each for each in named if each[1].size]
    if shape:
        named.sort(key=lambda each: each[1].lo)
        lows, highs = (
            np.array([getattr(box, end) for _, box in named]).reshape(-1, len(shape)) for end in ("lo", "hi")
        )
        for place, (rank, box) in enumerate(named):
            end = int(np.searchsorted(lows[:, 0], box.hi[0]))
            later = slice(place + 1, end)
            both = (lows[later] < np.array(box.hi)) & (highs[later] > np.array(box.lo))
            if (hits := np.flatnonzero(both.all(axis=1))).size:
                other, that = named[place + 1 + int(hits[0])]
                raise Mismatch(f"{box} of rank {rank} and {that} of rank {other} overlap")
    held = sum(box.size for _, box in named)
    if held != math.prod(shape) and not layout.partial:
        raise Mismatch(
            f"the boxes hold {held} of the {math.prod(shape)} elements of an array of shape {shape}: "
            f"give Boxes(..., partial=True) when the others are to be zero"
        )
