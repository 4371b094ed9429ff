"""One distributed array as the movers see it: who holds what, and this rank's memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import Mismatch
from .layout import Layout, Replicated
from .parts import Cut, Part, cut
from .plan import ArrayPlan, Moved, bounds_of, window

Bytes = npt.NDArray[np.uint8]


def carrier(itemsize: int) -> np.dtype[Any]:
    """Return a dtype of this size that NumPy copies fast and without a look at the bits."""
    return np.dtype(f"u{itemsize}" if itemsize in (1, 2, 4, 8) else f"V{itemsize}")


class Held:
    """A global array of ``shape`` in a layout over ``ranks``; this rank's data is in ``views``, one a part.

    Parameters
    ----------
    name
        For messages.
    local
        This rank's data. For layouts that give a rank several parts, one-dimensional, one part after the other.
    piece
        Elements a piece of the file.
    """

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        layout: Layout,
        ranks: int,
        rank: int,
        local: npt.NDArray[Any],
        piece: int,
    ) -> None:
        self.piece = piece
        self.name, self.shape, self.layout, self.ranks, self.rank = name, shape, layout, ranks, rank
        self.itemsize = local.dtype.itemsize
        self._parts: dict[int, tuple[Part, ...]] = {}
        raw = local.view(carrier(self.itemsize)) if self.itemsize else np.empty(0, np.uint8)
        mine = self.parts(rank)
        expected = local_shape(mine)
        if local.shape != expected:
            raise Mismatch(
                f"array {name!r}: this rank's part has shape {local.shape}, and {layout!r} of {shape} "
                f"over {ranks} ranks gives it {expected}"
            )
        self.views: list[npt.NDArray[Any]] = []
        if len(mine) == 1 and self.itemsize:
            self.views = [raw]
        elif self.itemsize:
            ends = np.cumsum([part.size for part in mine]).tolist()
            self.views = [raw[end - part.size : end].reshape(part.shape) for part, end in zip(mine, ends, strict=True)]

    @property
    def everywhere(self) -> bool:
        return isinstance(self.layout, Replicated)

    @cached_property
    def bounds(self) -> list[int] | None:
        return None if self.everywhere else bounds_of(self.shape, self.layout.boxes(self.shape, self.ranks))

    @property
    def moved(self) -> Moved:
        return Moved(self.shape, self.itemsize, self.piece, self.bounds, self.everywhere)

    def parts(self, rank: int) -> tuple[Part, ...]:
        """Return what a rank holds."""
        found = self._parts.get(rank)
        if found is None:
            found = self._parts[rank] = parts_of(self.layout, self.shape, self.ranks, rank)
        return found

    @cached_property
    def flat_range(self) -> tuple[int, int]:
        """The range of C-order positions outside of which this rank holds nothing."""
        ranges = [part.flat_range(self.shape) for part in self.parts(self.rank) if part.size]
        return (min(each[0] for each in ranges), max(each[1] for each in ranges)) if ranges else (0, 0)

    @cached_property
    def flat(self) -> tuple[int, Bytes] | None:
        """First position and bytes of this rank's data, when it is one run of the file's order and of memory."""
        if not (self.everywhere or self.bounds is not None) or len(self.views) != 1 or not self.views[0].size:
            return None
        view = self.views[0]
        if not view.flags.c_contiguous:
            return None
        return (0 if self.everywhere else self.flat_range[0]), view.reshape(-1).view(np.uint8)

    def direct(self, lo: int, hi: int) -> Bytes | None:
        """Return the memory of elements ``lo`` to ``hi`` of the file's order, None when it is not one run here."""
        if self.flat is None:
            return None
        first, memory = self.flat
        begin, end = (lo - first) * self.itemsize, (hi - first) * self.itemsize
        return memory[begin:end] if begin >= 0 and end <= len(memory) else None


def parts_of(layout: Layout, shape: tuple[int, ...], ranks: int, rank: int) -> tuple[Part, ...]:
    """Return what a rank holds of an array."""
    return tuple(Part.of(box) for box in layout.boxes(shape, ranks)[rank])


def local_shape(parts: Sequence[Part]) -> tuple[int, ...]:
    """Return the shape of the array that holds these parts: that of the one part, or flat for any other number."""
    return parts[0].shape if len(parts) == 1 else (sum(part.size for part in parts),)


def cuts(plan: ArrayPlan, piece: int, parts: Sequence[Part]) -> list[tuple[int, tuple[int, ...], int, Cut]]:
    """Return where a piece and some parts overlap, in the order in which the elements are sent.

    Each as: first element of the box in the piece, shape of the box, index of the part, overlap.
    """
    found = []
    first = 0
    for box in window(plan.shape, *plan.span(piece)):
        for index, part in enumerate(parts):
            overlap = cut(part, box)
            if overlap is not None:
                found.append((first, box.shape, index, overlap))
        first += box.size
    return found
