"""A piece that is put together from what ranks hold of it."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import numpy.typing as npt

from .box import Box
from .errors import Mismatch
from .exchange import read_rows, rows_of
from .held import Held, carrier, cuts
from .parts import cut, put
from .plan import ArrayPlan

Bytes = npt.NDArray[np.uint8]


def put_own(each: Held, its: ArrayPlan, piece: int, data: Bytes) -> None:
    """Put into a piece what this rank holds of it."""
    elements = data.view(carrier(its.itemsize))
    for first, shape, index, overlap in cuts(its, piece, each.parts(each.rank)):
        put(elements[first : first + math.prod(shape)].reshape(shape), overlap.inside, each.take(index, overlap))


def put_sent(each: Held, its: ArrayPlan, piece: int, data: Bytes, rank: int, source: Bytes, begin: int) -> int:
    """Put into a piece what another rank has sent; return where its message goes on."""
    elements = data.view(carrier(its.itemsize))
    for first, shape, _, overlap in cuts(its, piece, each.parts(rank)):
        end = begin + overlap.size * its.itemsize
        part = source[begin:end].view(elements.dtype).reshape(overlap.shape)
        put(elements[first : first + math.prod(shape)].reshape(shape), overlap.inside, part)
        begin = end
    return begin


class Listed:
    """A piece whose rows ranks name by index lists: each row has to come from one of them."""

    def __init__(self, each: Held, its: ArrayPlan, piece: int, data: Bytes) -> None:
        self._each, self._its, self._piece = each, its, piece
        self._elements = data.view(carrier(its.itemsize))

    @cached_property
    def _boxes(self) -> list[tuple[int, Box, npt.NDArray[np.bool_]]]:
        found = []
        first = 0
        for box in self._its.boxes(self._piece):
            found.append((first, box, np.zeros(box.shape[0], bool)))
            first += box.size
        return found

    def note_own(self) -> None:
        """Note the rows that this rank holds."""
        (part,) = self._each.parts(self._each.rank)
        for _, box, seen in self._boxes:
            overlap = cut(part, box)
            if overlap is not None:
                self._note(box, seen, rows_of(overlap))

    def note(self, source: Bytes, begin: int, *, data: bool) -> int:
        """Note the rows that another rank tells, and put in their data when it has sent that; return as `put_sent`."""
        for first, box, seen in self._boxes:
            rows, begin = read_rows(source, begin)
            self._note(box, seen, rows)
            if data and len(rows):
                shape = (len(rows), *box.shape[1:])
                end = begin + math.prod(shape) * self._its.itemsize
                here = self._elements[first : first + box.size].reshape(box.shape)
                here[rows] = source[begin:end].view(here.dtype).reshape(shape)
                begin = end
        return begin

    def _note(self, box: Box, seen: npt.NDArray[np.bool_], rows: npt.NDArray[np.int64]) -> None:
        before = seen[rows]
        if before.any():
            self._refuse(box, int(rows[before][0]), "two ranks, or twice by one: name one owner")
        seen[rows] = True

    def check(self) -> None:
        """Raise when a row was not named.

        Raises
        ------
        Mismatch
        """
        for _, box, seen in self._boxes:
            if not seen.all():
                self._refuse(box, int(np.flatnonzero(~seen)[0]), "no rank")

    def _refuse(self, box: Box, row: int, who: str) -> None:
        raise Mismatch(f"array {self._each.name!r}: row {box.lo[0] + row} is owned by {who}")
