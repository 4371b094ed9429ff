"""A piece that is put together from what ranks hold of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import Mismatch
from .exchange import read_rows
from .held import Held, carrier, cuts
from .parts import Selector, get, put
from .plan import ArrayPlan

Bytes = npt.NDArray[np.uint8]


class Assembly:
    """A piece that is put together from what ranks hold of it; it notes what comes where the layout does not say it."""

    def __init__(self, each: Held, its: ArrayPlan, piece: int, data: Bytes) -> None:
        self.each, self.its, self.piece = each, its, piece
        self.elements = data.view(carrier(its.itemsize))
        self._seen: npt.NDArray[np.bool_] | None = None
        if not each.known:
            self._seen = np.zeros(len(self.elements), bool)
        if not each.covers:
            data[:] = 0

    def add_own(self) -> None:
        """Put in what this rank holds."""
        for first, shape, index, overlap in cuts(self.its, self.piece, self.each.parts(self.each.rank)):
            self._add(first, shape, overlap.inside, self.each.take(index, overlap))

    def add(self, rank: int, source: Bytes, begin: int) -> int:
        """Put in what another rank has sent; return where its message goes on."""
        if not self.each.known:
            return self._add_listed(source, begin)
        itemsize = self.its.itemsize
        for first, shape, _, overlap in cuts(self.its, self.piece, self.each.parts(rank)):
            end = begin + overlap.size * itemsize
            part = source[begin:end].view(carrier(itemsize)).reshape(overlap.shape)
            self._add(first, shape, overlap.inside, part)
            begin = end
        return begin

    def _add_listed(self, source: Bytes, begin: int) -> int:
        first = 0
        for box in self.its.boxes(self.piece):
            rows, begin = read_rows(source, begin)
            if len(rows):
                shape = (len(rows), *box.shape[1:])
                end = begin + math.prod(shape) * self.its.itemsize
                inside: tuple[Selector, ...] = (rows, *(slice(0, extent) for extent in box.shape[1:]))
                part = source[begin:end].view(self.elements.dtype).reshape(shape)
                self._add(first, box.shape, inside, part)
                begin = end
            first += box.size
        return begin

    def _add(self, first: int, shape: tuple[int, ...], inside: tuple[Selector, ...], source: npt.NDArray[Any]) -> None:
        here = slice(first, first + math.prod(shape))
        put(self.elements[here].reshape(shape), inside, source)
        if self._seen is not None:
            seen = self._seen[here].reshape(shape)
            before = np.empty(source.shape, bool)
            get(seen, inside, before)
            if before.any():
                where = np.zeros(shape, bool)
                put(where, inside, before)
                self._refuse(first + int(np.flatnonzero(where)[0]), "two ranks, or twice by one: name one owner")
            put(seen, inside, np.ones(source.shape, bool))

    def check(self) -> None:
        """Raise when an element was not given.

        Raises
        ------
        Mismatch
        """
        if self._seen is not None and not self._seen.all():
            self._refuse(int(np.flatnonzero(~self._seen)[0]), "no rank")

    def _refuse(self, element: int, who: str) -> None:
        row = (self.its.span(self.piece)[0] + element) // math.prod(self.its.shape[1:])
        raise Mismatch(f"array {self.each.name!r}: row {row} is owned by {who}")
