"""Who writes and who reads which bytes: pure, from shapes and numbers of ranks alone.

The data of an array stands in the file in C order. It is cut into *pieces* of consecutive elements, the same
whatever the layout and the number of ranks. On a save, each piece is put together, digested and written by one
rank, its owner; on a load it is read and verified by one rank. Where a layout puts the elements of
a piece on several ranks, these exchange them with the owner.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..layouts.box import Box
from .pieces import Pieces

PIECE = 4 << 20
"""Size of a piece, in bytes; elements are never cut, so that pieces of huge elements are larger."""
BLOCK = 4096
"""Arrays of at least this size begin at a multiple of it in the file, so that pieces can be written unbuffered."""
ROUND = 4 << 20
"""How much a rank puts together in one round of exchange, in bytes."""
SMALL = 256 << 10
"""Pieces of less bytes are written from where they are, and need not stand at a multiple of `BLOCK` in memory."""
_LINE = 64

Ints = npt.NDArray[np.int64]


def elements_per_piece(itemsize: int) -> int:
    """Return how many elements a piece has: whole blocks of the file where that makes pieces near `PIECE`."""
    if not itemsize:
        return 1
    unit = math.lcm(itemsize, BLOCK)
    return PIECE // unit * unit // itemsize if unit <= PIECE else max(1, PIECE // itemsize)


def window(shape: tuple[int, ...], lo: int, hi: int) -> list[Box]:
    """Return the boxes that make up elements ``lo`` to ``hi`` in C order, in this order; at most ``2 ndim - 1``."""
    if lo >= hi:
        return []
    if len(shape) <= 1:
        return [Box((lo,), (hi,)) if shape else Box((), ())]
    inner = shape[1:]
    stride = math.prod(inner)
    (first, skip), (last, more) = divmod(lo, stride), divmod(hi, stride)

    def rows(row: int, begin: int, end: int) -> list[Box]:
        return [Box((row, *box.lo), (row + 1, *box.hi)) for box in window(inner, begin, end)]

    if first == last:
        return rows(first, skip, more)
    found = []
    if skip:
        found += rows(first, skip, stride)
        first += 1
    if last > first:
        found.append(Box((first, *[0] * len(inner)), (last, *inner)))
    return found + rows(last, 0, more)


def bounds_of(shape: tuple[int, ...], boxes: Sequence[Sequence[Box]]) -> list[int] | None:
    """Return the C-order bounds between ranks when each holds one run of elements and they are in order.

    That is so for blocks along the first axis. ``len(boxes) + 1`` bounds, None for any other layout.
    """
    bounds = [0]
    for each in boxes:
        held = [box for box in each if box.size]
        if len(held) > 1:
            return None
        for box in held:
            partial = [axis for axis, n in enumerate(shape) if box.lo[axis] != 0 or box.hi[axis] != n]
            if partial and any(box.hi[axis] - box.lo[axis] != 1 for axis in range(partial[-1])):
                return None
            first = 0
            for lo, n in zip(box.lo, shape, strict=True):
                first = first * n + lo
            if first != bounds[-1]:
                return None
        bounds.append(bounds[-1] + sum(box.size for box in held))
    return bounds if bounds[-1] == math.prod(shape) else None


@dataclass(frozen=True, eq=False)
class ArrayPlan:
    """How one array is moved.

    Parameters
    ----------
    shape, itemsize, per_piece
        Global shape; bytes an element; elements a piece.
    owners
        Rank that puts together, or reads, each piece.
    mixed
        Whether a piece takes elements from, or has elements for, ranks beside its owner.
    listed
        Whether each rank knows of its own rows alone.
    row
        Elements after which a piece ends in any case; see `Pieces`.
    """

    shape: tuple[int, ...]
    itemsize: int
    per_piece: int
    owners: Ints
    mixed: npt.NDArray[np.bool_]
    listed: bool = False
    row: int = 0

    @cached_property
    def size(self) -> int:
        return math.prod(self.shape)

    @cached_property
    def pieces(self) -> Pieces:
        return Pieces(self.size if self.itemsize else 0, self.per_piece, self.row)

    def span(self, piece: int) -> tuple[int, int]:
        """Return the range of elements of a piece, in C order."""
        return self.pieces.span(piece)

    def begin(self, piece: int) -> int:
        """Return the byte of the array at which a piece begins."""
        return self.span(piece)[0] * self.itemsize

    def rows(self, piece: int) -> tuple[int, int]:
        """Return the range of indices along the first axis that a piece has elements of."""
        lo, hi = self.span(piece)
        stride = math.prod(self.shape[1:])
        return lo // stride, -(-hi // stride)

    def own(self, rank: int) -> list[int]:
        """Return the pieces that a rank owns and that need no exchange."""
        if len(self.owners) == 1:
            return [0] if self.owners[0] == rank and not self.mixed[0] else []
        found: list[int] = np.flatnonzero((self.owners == rank) & ~self.mixed).tolist()
        return found

    def boxes(self, piece: int) -> list[Box]:
        return window(self.shape, *self.span(piece))


@dataclass(frozen=True)
class Moved:
    """One array as the planner sees it.

    ``bounds`` are those of `bounds_of`; ``everywhere`` says that every rank holds the whole array, ``listed`` that each
    knows of its own rows alone; ``row`` is that of `Pieces`.
    """

    shape: tuple[int, ...]
    itemsize: int
    per_piece: int
    bounds: list[int] | None
    everywhere: bool = False
    listed: bool = False
    row: int = 0

    @cached_property
    def pieces(self) -> Pieces:
        return Pieces(math.prod(self.shape) if self.itemsize else 0, self.per_piece, self.row)


def plan(arrays: Sequence[Moved], ranks: int) -> list[ArrayPlan]:
    """Choose an owner for each piece.

    Where ranks hold runs of the file's order, the owner is the one that holds the middle of the piece, so
    that only pieces at a boundary are exchanged. Elsewhere pieces are dealt out evenly in the order of the
    file; arrays of fewer pieces than ranks are dealt out together, so that many small ones are shared evenly.
    """
    counts = [len(each.pieces) for each in arrays]
    small = [count < ranks for count in counts]
    total = sum(math.prod(each.shape) * each.itemsize for each, is_small in zip(arrays, small, strict=True) if is_small)
    before = 0
    found = []
    for each, count, is_small in zip(arrays, counts, small, strict=True):
        size = math.prod(each.shape)
        if is_small and count <= 1:
            # The same as below, without NumPy's cost a call: there may be thousands of these.
            owner = (before + size * each.itemsize // 2) * ranks // max(total, 1)
            mixed = not each.everywhere and ranks > 1
            if mixed and count and each.bounds is not None:
                mixed = each.bounds[owner] > 0 or each.bounds[owner + 1] < size
            owners, mixes = np.full(count, owner, np.int64), np.full(count, mixed)
        else:
            owners, mixes = _owners(each, count, before if is_small else None, total, ranks)
        if is_small:
            before += size * each.itemsize
        found.append(ArrayPlan(each.shape, each.itemsize, each.per_piece, owners, mixes, each.listed, each.row))
    return found


def _owners(each: Moved, count: int, before: int | None, total: int, ranks: int) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return the owner of each piece of an array, and whether it is mixed.

    ``before`` is the place of a small array among the ``total`` bytes of all small ones, None for a large one.
    """
    size = math.prod(each.shape)
    lo, hi = each.pieces.spans(np.arange(count, dtype=np.int64))
    if before is not None:
        owners = (before + (lo + hi) * each.itemsize // 2) * ranks // max(total, 1)
    elif each.bounds is not None and not each.everywhere:
        owners = np.searchsorted(np.asarray(each.bounds), (lo + hi) // 2, side="right").astype(np.int64) - 1
    else:
        owners = (lo + hi) // 2 * ranks // max(size, 1)
    if each.everywhere or ranks == 1:
        return owners, np.zeros(count, bool)
    if each.bounds is None:
        return owners, np.ones(count, bool)
    bounds = np.asarray(each.bounds)
    return owners, (lo < bounds[owners]) | (hi > bounds[owners + 1])


class Entry(NamedTuple):
    """A piece in a round: of which array, whose, and where its owner puts it together, in bytes of its slot."""

    array: int
    piece: int
    owner: int
    place: int


@dataclass(frozen=True, eq=False)
class Rounds:
    """The mixed pieces of all arrays, sorted by round; number ``i`` is piece ``piece[i]`` of array ``array[i]``.

    ``slot`` is how many bytes an owner needs for its pieces of a round.
    """

    array: Ints
    piece: Ints
    owner: Ints
    lo: Ints
    hi: Ints
    place: Ints
    starts: Ints
    slot: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    def entries(self, number: int, chosen: Callable[[Ints, Ints, Ints, Ints], npt.NDArray[np.bool_]]) -> list[Entry]:
        """Return the pieces of a round that are chosen by arrays, owners and ranges of elements."""
        here = slice(self.starts[number], self.starts[number + 1])
        which = chosen(self.array[here], self.owner[here], self.lo[here], self.hi[here])
        columns = (each[here][which].tolist() for each in (self.array, self.piece, self.owner, self.place))
        return [Entry(*each) for each in zip(*columns, strict=True)]


def rounds(plans: Sequence[ArrayPlan], ranks: int) -> Rounds:
    """Arrange the mixed pieces so that no rank owns more than `ROUND` bytes (or one piece) of them in a round."""
    chosen = [np.flatnonzero(each.mixed) for each in plans]
    array = np.repeat(np.arange(len(plans), dtype=np.int64), [len(each) for each in chosen])
    piece = np.concatenate([np.zeros(0, np.int64), *chosen])
    here = [(each, which) for each, which in zip(plans, chosen, strict=True) if len(which)]
    none = np.zeros(0, np.int64)
    owner = np.concatenate([none, *(each.owners[which] for each, which in here)])
    spans = [each.pieces.spans(which) for each, which in here]
    lo = np.concatenate([none, *(each[0] for each in spans)])
    hi = np.concatenate([none, *(each[1] for each in spans)])
    itemsize = np.array([each.itemsize for each in plans], np.int64)
    size = (hi - lo) * itemsize[array]
    stride = np.array([math.prod(each.shape[1:]) if each.listed else 0 for each in plans], np.int64)[array]
    whole = np.maximum(stride, 1)
    marks = np.where(stride > 0, (-(-hi // whole) - lo // whole) * mark_type(ranks).itemsize, 0)
    number, place = np.zeros((2, len(piece)), np.int64)
    slot = 0
    for rank in range(ranks):
        mine = np.flatnonzero(owner == rank)
        number[mine], place[mine], needed = _arrange(size[mine], marks[mine])
        slot = max(slot, needed)
    order = np.lexsort((np.arange(len(piece)), owner, number))
    count = int(number.max()) + 1 if len(piece) else 0
    starts = np.searchsorted(number[order], np.arange(count + 1)).astype(np.int64)
    slot = -(-slot // BLOCK) * BLOCK
    return Rounds(array[order], piece[order], owner[order], lo[order], hi[order], place[order], starts, slot)


def mark_type(ranks: int) -> np.dtype[Any]:
    """Return the type of a mark that says which rank has named a row."""
    return np.dtype(np.int16 if ranks < 1 << 15 else np.int32)


def marks_place(place: int, size: int) -> int:
    """Return where the marks of a piece's rows stand in the owner's slot: behind the piece."""
    return -(-(place + size) // _LINE) * _LINE


def _arrange(sizes: Ints, marks: Ints) -> tuple[Ints, Ints, int]:
    """Return the round of each piece, its place in the owner's slot, and the size of the slot."""
    number, place = np.zeros((2, len(sizes)), np.int64)
    current = filled = end = needed = 0
    for index, (size, more) in enumerate(zip(sizes.tolist(), marks.tolist(), strict=True)):
        if filled and (filled + size > ROUND or end + size + more > ROUND + ROUND // 8):
            current, filled, end = current + 1, 0, 0
        unit = BLOCK if size >= SMALL else _LINE
        begin = -(-end // unit) * unit
        number[index], place[index] = current, begin
        filled, end = filled + size, marks_place(begin, size) + more
        needed = max(needed, end)
    return number, place, needed
