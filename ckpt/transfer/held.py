"""One distributed array as the movers see it: who holds what, and this rank's memory."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import Mismatch
from ..layouts.indices import Indices
from ..layouts.irregular import Boxes
from ..layouts.layout import BoxLayout, Layout, Replicated, layout_problem
from ..layouts.parts import Cut, Part, cut, get
from .plan import ArrayPlan, Moved, bounds_of, window

Bytes = npt.NDArray[np.uint8]


def carrier(itemsize: int) -> np.dtype[Any]:
    """Return a dtype of this size that NumPy copies fast and without a look at the bits."""
    return np.dtype(f"u{itemsize}" if itemsize in (1, 2, 4, 8) else f"V{itemsize}")


class Held:
    """A global array of ``shape`` in a layout over ``ranks``, and this rank's memory of it.

    Parameters
    ----------
    name
        For messages.
    local
        This rank's data. For layouts that give a rank several parts, one-dimensional, one part after the other.
    piece
        Elements a piece of the file.
    writing
        Whether it is to be saved: then only what this rank owns counts.
    row
        Elements after which a piece ends in any case; see `.pieces.Pieces`.
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
        *,
        writing: bool,
        row: int = 0,
    ) -> None:
        self.piece, self.row = piece, row
        self.name, self.shape, self.layout, self.ranks, self.rank = name, shape, layout, ranks, rank
        self.itemsize = local.dtype.itemsize
        expected = local_shape(layout, shape, ranks, rank)
        if local.shape != expected:
            what = "an index list" if isinstance(layout, Indices) else repr(layout)[:200]
            raise Mismatch(
                f"array {name!r}: this rank's part has shape {local.shape}, and {what} of {shape} "
                f"over {ranks} ranks gives it {expected}"
            )
        self._parts: dict[int, tuple[Part, ...]] = {}
        self._order: npt.NDArray[np.int64] | None = None
        if isinstance(layout, Indices):
            ascending, self._order = layout.order(shape, writing=writing)
            self._parts[rank] = (Part((ascending, *((0, extent) for extent in shape[1:]))),)
        raw = local.view(carrier(self.itemsize)) if self.itemsize else np.empty(0, np.uint8)
        if self._order is not None and self.itemsize and (np.diff(self._order) == 1).all():
            first = int(self._order[0]) if len(self._order) else 0
            raw, self._order = raw[first : first + len(self._order)], None
        self._views: list[npt.NDArray[Any]] = []
        if self.itemsize and not layout.flat:
            self._views = [raw]
        elif self.itemsize:
            mine = self.parts(rank)
            ends = np.cumsum([part.size for part in mine]).tolist()
            self._views = [raw[end - part.size : end].reshape(part.shape) for part, end in zip(mine, ends, strict=True)]

    @property
    def everywhere(self) -> bool:
        """Whether every rank holds the whole array."""
        return isinstance(self.layout, Replicated)

    @property
    def known(self) -> bool:
        """Whether every rank knows what the others hold."""
        return not isinstance(self.layout, Indices)

    @property
    def partial(self) -> bool:
        """Whether elements may be held by no rank."""
        return isinstance(self.layout, Boxes) and self.layout.partial

    @property
    def bytes(self) -> int:
        """Size of this rank's memory."""
        return sum(view.nbytes for view in self._views)

    @property
    def whole(self) -> Bytes:
        """The bytes of an array that is held everywhere."""
        if not self._views:
            return np.empty(0, np.uint8)
        return np.ascontiguousarray(self._views[0]).reshape(-1).view(np.uint8)

    @cached_property
    def bounds(self) -> list[int] | None:
        """Bounds of the runs of the file's order that ranks hold; see `bounds_of`."""
        if self.everywhere or not isinstance(self.layout, BoxLayout):
            return None
        return _bounds_of(self.layout, self.shape, self.ranks)

    @property
    def moved(self) -> Moved:
        bounds = self.bounds
        return Moved(self.shape, self.itemsize, self.piece, bounds, self.everywhere, not self.known, self.row)

    def parts(self, rank: int) -> tuple[Part, ...]:
        """Return what a rank holds; of `Indices` this rank alone."""
        found = self._parts.get(rank)
        if found is None:
            found = self._parts[rank] = self.layout.parts(self.shape, self.ranks, rank)
        return found

    @cached_property
    def flat_range(self) -> tuple[int, int]:
        """The range of C-order positions outside of which this rank holds nothing."""
        ranges = [part.flat_range(self.shape) for part in self.parts(self.rank) if part.size]
        return (min(each[0] for each in ranges), max(each[1] for each in ranges)) if ranges else (0, 0)

    @cached_property
    def _flat(self) -> tuple[int, Bytes] | None:
        """First position and bytes of this rank's data, when it is one run of the file's order and of memory."""
        if not (self.everywhere or self.bounds is not None) or len(self._views) != 1 or not self._views[0].size:
            return None
        view = self._views[0]
        if not view.flags.c_contiguous:
            return None
        return (0 if self.everywhere else self.flat_range[0]), view.reshape(-1).view(np.uint8)

    def direct(self, lo: int, hi: int) -> Bytes | None:
        """Return the memory of elements ``lo`` to ``hi`` of the file's order, None when it is not one run here."""
        if self._flat is None:
            return None
        first, memory = self._flat
        begin, end = (lo - first) * self.itemsize, (hi - first) * self.itemsize
        return memory[begin:end] if begin >= 0 and end <= len(memory) else None

    def take(self, index: int, overlap: Cut) -> npt.NDArray[Any]:
        """Return the elements of a part that lie in an overlap."""
        found: npt.NDArray[Any] = self._views[index][self._place(overlap)]
        return found

    def fill(self, index: int, overlap: Cut, source: npt.NDArray[Any]) -> None:
        """Set the elements of a part that lie in an overlap."""
        self._views[index][self._place(overlap)] = source

    def fill_from(self, index: int, overlap: Cut, box: npt.NDArray[Any]) -> None:
        """Set the elements of a part that lie in an overlap from the box's data."""
        place = self._place(overlap)
        if all(isinstance(each, slice) for each in place):
            get(box, overlap.inside, self._views[index][place])
            return
        part = np.empty(overlap.shape, box.dtype)
        get(box, overlap.inside, part)
        self._views[index][place] = part

    def _place(self, overlap: Cut) -> tuple[Any, ...]:
        return overlap.local if self._order is None else (self._order[overlap.local[0]], *overlap.local[1:])


@functools.lru_cache(maxsize=256)
def _bounds_of(layout: BoxLayout, shape: tuple[int, ...], ranks: int) -> list[int] | None:
    return bounds_of(shape, layout.boxes(shape, ranks))


def local_shape(layout: Layout, shape: tuple[int, ...], ranks: int, rank: int) -> tuple[int, ...]:
    """Return the shape of a rank's data."""
    if problem := layout_problem(layout):
        raise Mismatch(problem)
    if isinstance(layout, Indices):
        return (len(layout.indices), *shape[1:])
    parts = layout.parts(shape, ranks, rank)
    return (sum(part.size for part in parts),) if layout.flat else parts[0].shape


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
