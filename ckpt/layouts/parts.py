"""What a rank holds of a global array, and the part of it that falls into a box."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from .box import Box

_SHORT = 512
"""Runs of more bytes are copied no faster as one element each."""
LONG = 128
"""Runs of as many indices are worth a call of NumPy's each."""


@dataclass(frozen=True, slots=True)
class Strides:
    """Positions along one axis in groups, each of ``count`` runs of ``width`` positions that begin ``step`` apart.

    Parameters
    ----------
    groups
        First position, count, width and step of each.
    """

    groups: tuple[tuple[int, int, int, int], ...]

    def __len__(self) -> int:
        return sum(count * width for _, count, width, _ in self.groups)

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        found = [
            (first + step * np.arange(count, dtype=np.int64)[:, None] + np.arange(width)).ravel()
            for first, count, width, step in self.groups
        ]
        return np.concatenate([np.zeros(0, np.int64), *found])


Selector = slice | Strides | npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CyclicAxis:
    """The indices of one of ``count`` processes that take turns of ``block`` indices out of ``extent``."""

    extent: int
    block: int
    count: int
    place: int

    def __len__(self) -> int:
        return self.find(self.extent)

    def find(self, index: int) -> int:
        """Return how many of its indices are less than ``index``."""
        cycles, rest = divmod(index, self.block * self.count)
        return cycles * self.block + min(max(rest - self.place * self.block, 0), self.block)

    def index(self, number: int) -> int:
        """Return its index number ``number``."""
        cycle, rest = divmod(number, self.block)
        return (cycle * self.count + self.place) * self.block + rest

    def positions(self, begin: int, end: int) -> npt.NDArray[np.int64]:
        """Return the indices number ``begin`` to ``end``."""
        number = np.arange(begin, end, dtype=np.int64)
        return number // self.block * (self.block * self.count) + self.place * self.block + number % self.block

    def strides(self, begin: int, end: int, at: int) -> Strides:
        """Return its indices number ``begin`` to ``end`` as positions from ``at`` on."""
        groups = []
        step = self.block * self.count
        while begin < end:
            count = (end - begin) // self.block if begin % self.block == 0 else 0
            width = self.block if count else min(self.block - begin % self.block, end - begin)
            groups.append((self.index(begin) - at, max(count, 1), width, step))
            begin += max(count, 1) * width
        return Strides(tuple(groups))


Axis = tuple[int, int] | CyclicAxis | npt.NDArray[np.int64]
"""Global indices along one axis: a half-open range, blocks in turn, or an ascending array."""


def axis_length(axis: Axis) -> int:
    """Return the number of indices."""
    return axis[1] - axis[0] if isinstance(axis, tuple) else len(axis)


def axis_range(axis: Axis) -> tuple[int, int]:
    """Return the first index and one past the last. The axis must not be empty."""
    if isinstance(axis, tuple):
        return axis
    if isinstance(axis, CyclicAxis):
        return axis.index(0), axis.index(len(axis) - 1) + 1
    return int(axis[0]), int(axis[-1]) + 1


@dataclass(frozen=True, eq=False)
class Part:
    """The product of one set of global indices along each axis; its data is an array of `shape`."""

    axes: tuple[Axis, ...]

    @classmethod
    def of(cls, box: Box) -> Part:
        return cls(tuple(zip(box.lo, box.hi, strict=True)))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(axis_length, self.axes))

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def flat_range(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return the range of C-order positions in the global array outside of which this part has nothing."""
        if not self.size:
            return 0, 0
        first = last = 0
        for extent, axis in zip(shape, self.axes, strict=True):
            lo, hi = axis_range(axis)
            first, last = first * extent + lo, last * extent + hi - 1
        return first, last + 1


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """Where a part and a box overlap: slices of the part's data, and selectors of the box's data."""

    local: tuple[slice, ...]
    inside: tuple[Selector, ...]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def cut(part: Part, box: Box) -> Cut | None:
    """Return where the part and the box overlap, None when they don't."""
    local, inside, shape = [], [], []
    for axis, lo, hi in zip(part.axes, box.lo, box.hi, strict=True):
        selector: Selector
        if isinstance(axis, tuple):
            begin, end = max(lo, axis[0]), min(hi, axis[1])
            if begin >= end:
                return None
            local.append(slice(begin - axis[0], end - axis[0]))
            selector = slice(begin - lo, end - lo)
            shape.append(end - begin)
        elif isinstance(axis, CyclicAxis):
            begin, end = axis.find(lo), axis.find(hi)
            if begin >= end:
                return None
            local.append(slice(begin, end))
            first, last = axis.index(begin) - lo, axis.index(end - 1) - lo
            whole = last - first == end - begin - 1
            selector = slice(first, last + 1) if whole else axis.strides(begin, end, lo)
            shape.append(end - begin)
        else:
            begin, end = (int(each) for each in np.searchsorted(axis, (lo, hi)))
            if begin >= end:
                return None
            local.append(slice(begin, end))
            first, last = int(axis[begin]) - lo, int(axis[end - 1]) - lo
            selector = slice(first, last + 1) if last - first == end - begin - 1 else axis[begin:end] - lo
            shape.append(end - begin)
        inside.append(selector)
    return Cut(tuple(local), tuple(inside), tuple(shape))


def put(target: npt.NDArray[Any], inside: tuple[Selector, ...], source: npt.NDArray[Any]) -> None:
    """Assign ``source`` to the selected elements of ``target``, which has the shape of a box."""
    for one, other, index in _views(target, inside, source):
        if index is None:
            one[...] = other
        else:
            one[index] = other


def get(source: npt.NDArray[Any], inside: tuple[Selector, ...], target: npt.NDArray[Any]) -> None:
    """Copy the selected elements of ``source``, which has the shape of a box, into ``target``."""
    for one, other, index in _views(source, inside, target):
        if index is None:
            other[...] = one
        elif len(index) == 1 and other.flags.c_contiguous and one.dtype == other.dtype:
            # Straight into place; the indices are right, and only without a check NumPy does without a copy of its own.
            np.take(one, index[0], axis=0, out=other, mode="clip")
        else:
            other[...] = one[index]


View = npt.NDArray[Any]


def _views(
    box: View, inside: tuple[Selector, ...], packed: View
) -> Iterator[tuple[View, View, tuple[npt.NDArray[np.int64], ...] | None]]:
    """Return views of the box's and of the packed data that match element by element.

    The last is an index of the first where its elements lie without order.
    """
    simple = [_simplify(each) if isinstance(each, np.ndarray) else each for each in inside]
    rows, others = (simple[0], simple[1:]) if simple else (None, [])
    if isinstance(rows, np.ndarray) and all(isinstance(each, slice) for each in others):
        every: tuple[Any, ...] = (slice(None), *others)
        yield *_whole_rows(box[every], packed), (rows,)
        return
    if any(isinstance(each, np.ndarray) for each in simple):
        yield box, packed, np.ix_(*(_positions(each, extent) for extent, each in zip(box.shape, simple, strict=True)))
        return
    choices: list[list[tuple[slice | tuple[int, int, int, int], slice]]] = []
    for each in simple:
        if isinstance(each, slice):
            choices.append([(each, slice(None))])
            continue
        assert isinstance(each, Strides)
        begin = 0
        choices.append([])
        for group in each.groups:
            end = begin + group[1] * group[2]
            choices[-1].append((group, slice(begin, end)))
            begin = end
    for chosen in itertools.product(*choices):
        # With an ellipsis, a scalar is a view too.
        places: tuple[Any, ...] = (*(where for _, where in chosen), ...)
        one, other = box, packed[places]
        for axis in reversed(range(len(chosen))):
            where = chosen[axis][0]
            if not isinstance(where, slice):
                first, count, width, step = where
                one = _split(one[(slice(None),) * axis + (slice(first, None),)], axis, count, width, step)
                other = _split(other, axis, count, width, width)
            elif where != slice(0, one.shape[axis]):
                one = one[(slice(None),) * axis + (where,)]
        yield *_whole_runs(one, other), None


def _whole_rows(one: View, other: View) -> tuple[View, View]:
    """Return views whose rows are one element each, where these are consecutive in memory."""
    if one.ndim > 1 and one.size and other.size and one.dtype == other.dtype:
        size = one.itemsize * math.prod(one.shape[1:])
        if one.flags.c_contiguous and other.flags.c_contiguous:
            rows = [each.reshape(len(each), -1).view(f"V{size}")[:, 0] for each in (one, other)]
            return rows[0], rows[1]
    return one, other


def _whole_runs(one: View, other: View) -> tuple[View, View]:
    """Return views whose short runs along the last axis are one element each, for NumPy to copy at once."""
    size = one.shape[-1] * one.itemsize if one.ndim else 0
    if (
        one.itemsize < size <= _SHORT
        and one.dtype == other.dtype
        and one.strides[-1] == other.strides[-1] == one.itemsize
        and not (one.flags.c_contiguous and other.flags.c_contiguous)
    ):
        return one.view(f"V{size}"), other.view(f"V{size}")
    return one, other


def _positions(each: Selector, extent: int) -> npt.NDArray[np.int64]:
    if isinstance(each, slice):
        return np.arange(extent)[each]
    return each.positions if isinstance(each, Strides) else each


def _split(array: View, axis: int, count: int, width: int, step: int) -> View:
    """Return a view with two axes in the place of one: ``count`` runs, and ``width`` elements of each."""
    stride = array.strides[axis]
    shape = (*array.shape[:axis], count, width, *array.shape[axis + 1 :])
    return as_strided(array, shape, (*array.strides[:axis], step * stride, stride, *array.strides[axis + 1 :]))


def _simplify(indices: npt.NDArray[np.int64]) -> Strides | npt.NDArray[np.int64]:
    """Return indices as runs when those are long, since these are copied faster than single elements."""
    breaks = np.flatnonzero(np.diff(indices) != 1) + 1
    if (len(breaks) + 1) * LONG > len(indices):
        return indices
    bounds = [0, *breaks.tolist(), len(indices)]
    runs = zip(bounds, bounds[1:], strict=False)
    return Strides(tuple((int(indices[begin]), 1, end - begin, end - begin) for begin, end in runs))
