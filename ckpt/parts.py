"""What a rank holds of a global array, and the part of it that falls into a box."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from .box import Box

Selector = slice | npt.NDArray[np.int64]


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

    def positions(self, begin: int, end: int) -> npt.NDArray[np.int64]:
        """Return the indices number ``begin`` to ``end``."""
        number = np.arange(begin, end, dtype=np.int64)
        return number // self.block * (self.block * self.count) + self.place * self.block + number % self.block


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
        first, last = axis.positions(0, 1), axis.positions(len(axis) - 1, len(axis))
        return int(first[0]), int(last[0]) + 1
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
        else:
            if isinstance(axis, CyclicAxis):
                begin, end = axis.find(lo), axis.find(hi)
            else:
                begin, end = (int(each) for each in np.searchsorted(axis, (lo, hi)))
            if begin >= end:
                return None
            local.append(slice(begin, end))
            chosen = axis.positions(begin, end) if isinstance(axis, CyclicAxis) else axis[begin:end]
            first, last = int(chosen[0]) - lo, int(chosen[-1]) - lo
            selector = slice(first, last + 1) if last - first == end - begin - 1 else chosen - lo
            shape.append(end - begin)
        inside.append(selector)
    return Cut(tuple(local), tuple(inside), tuple(shape))


def put(target: npt.NDArray[Any], inside: tuple[Selector, ...], source: npt.NDArray[Any]) -> None:
    """Assign ``source`` to the selected elements of ``target``, which has the shape of a box."""
    scattered = [place for place, each in enumerate(inside) if not isinstance(each, slice)]
    if not scattered:
        target[inside] = source
        return
    axis = scattered[-1]
    for where, run in _runs(inside[axis]):
        here = inside[:axis] + (where,) + inside[axis + 1 :]
        put(target, here, source[(slice(None),) * axis + (run,)]) if isinstance(where, slice) else _scatter(
            target, here, source
        )


def get(source: npt.NDArray[Any], inside: tuple[Selector, ...], target: npt.NDArray[Any]) -> None:
    """Copy the selected elements of ``source``, which has the shape of a box, into ``target``."""
    scattered = [place for place, each in enumerate(inside) if not isinstance(each, slice)]
    if not scattered:
        target[...] = source[inside]
        return
    axis = scattered[-1]
    for where, run in _runs(inside[axis]):
        here = inside[:axis] + (where,) + inside[axis + 1 :]
        if isinstance(where, slice):
            get(source, here, target[(slice(None),) * axis + (run,)])
        else:
            target[...] = source[_index(source.shape, here)]


def _scatter(target: npt.NDArray[Any], inside: tuple[Selector, ...], source: npt.NDArray[Any]) -> None:
    target[_index(target.shape, inside)] = source


def _index(shape: tuple[int, ...], inside: tuple[Selector, ...]) -> tuple[Any, ...]:
    if sum(not isinstance(each, slice) for each in inside) == 1:
        return inside
    full = [np.arange(n)[each] if isinstance(each, slice) else each for n, each in zip(shape, inside, strict=True)]
    return np.ix_(*full)


def _runs(selector: Selector) -> list[tuple[Selector, slice]]:
    """Split indices into runs when those are long, since slices copy faster than single elements."""
    assert not isinstance(selector, slice)
    breaks = np.flatnonzero(np.diff(selector) != 1) + 1
    if (len(breaks) + 1) * 8 > len(selector):
        return [(selector, slice(None))]
    bounds = [0, *breaks.tolist(), len(selector)]
    return [
        (slice(int(selector[begin]), int(selector[end - 1]) + 1), slice(begin, end))
        for begin, end in zip(bounds, bounds[1:], strict=False)
    ]
