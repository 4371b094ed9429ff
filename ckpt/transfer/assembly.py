"""Pieces that are put together from what ranks hold of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import Mismatch
from ..layouts.parts import Part, put
from .held import Held, carrier, cuts
from .plan import ArrayPlan

Bytes = npt.NDArray[np.uint8]
Marks = npt.NDArray[Any]
"""Who has named each row of a piece: its rank and one more, 0 nobody, `TWICE` several. Shape ``(rows,)``."""
TWICE = -1


def put_own(each: Held, its: ArrayPlan, piece: int, data: Bytes) -> None:
    """Put into a piece what this rank holds of it."""
    elements = data.view(carrier(its.itemsize))
    for first, shape, index, overlap in cuts(its, piece, each.parts(each.rank)):
        put(elements[first : first + math.prod(shape)].reshape(shape), overlap.inside, each.take(index, overlap))


def put_sent(its: ArrayPlan, piece: int, data: Bytes, parts: Sequence[Part], source: Bytes, begin: int) -> int:
    """Put into a piece what another rank has sent of its parts; return where its message goes on."""
    elements = data.view(carrier(its.itemsize))
    for first, shape, _, overlap in cuts(its, piece, parts):
        end = begin + overlap.size * its.itemsize
        part = source[begin:end].view(elements.dtype).reshape(overlap.shape)
        put(elements[first : first + math.prod(shape)].reshape(shape), overlap.inside, part)
        begin = end
    return begin


def own_rows(each: Held, its: ArrayPlan, piece: int) -> npt.NDArray[np.int64]:
    """Return the rows of a piece that this rank's index list names."""
    first, last = its.rows(piece)
    (part,) = each.parts(each.rank)
    rows = part.axes[0]
    assert isinstance(rows, np.ndarray)
    begin, end = np.searchsorted(rows, (first, last))
    return rows[begin:end]


def mark(marks: Marks, rows: npt.NDArray[np.int64], rank: int) -> None:
    """Name rows, counted from the first one of the piece. Several ranks may do so at the same time."""
    marks[rows] = rank + 1


def verify_marks(marks: Marks, rows: npt.NDArray[np.int64], rank: int) -> None:
    """Note the rows that another rank has named as well, once all have: one of them misses its name there."""
    lost = rows[marks[rows] != rank + 1]
    marks[lost] = TWICE


def check_marks(each: Held, its: ArrayPlan, piece: int, marks: Marks) -> None:
    """Raise when a row is not named by one rank, once all have verified theirs.

    Raises
    ------
    Mismatch
    """
    for value, who in ((TWICE, "two ranks: name one owner"), (0, "no rank")):
        found = np.flatnonzero(marks == value)
        if len(found):
            raise Mismatch(f"array {each.name!r}: row {its.rows(piece)[0] + found[0]} is owned by {who}")
