"""Which rank holds what of an array: layouts as plain data."""

from __future__ import annotations

import abc
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from ..errors import Unsupported
from .box import Box
from .parts import Part

Shape = tuple[int, ...]


@runtime_checkable
class Layout(Protocol):
    """A rule that says which boxes of a global array each rank holds.

    Layouts are frozen dataclasses, equal when they say the same, and pure: every rank computes the
    boxes of all ranks from shape and number of ranks alone.
    """

    kind: ClassVar[str]
    flat: ClassVar[bool]
    """Whether a rank's data is always one-dimensional, one part after the other, rather than of its part's shape."""

    def boxes(self, shape: Shape, ranks: int) -> tuple[tuple[Box, ...], ...]:
        """Return the boxes of each rank, in the order of ranks."""

    def parts(self, shape: Shape, ranks: int, rank: int) -> tuple[Part, ...]:
        """Return what a rank holds, in the order in which its memory holds it."""

    def at(self, ranks: int) -> Layout:
        """Return the layout in which to load on ``ranks`` ranks what was saved in this one; itself where it can be."""

    def to_json(self) -> dict[str, Any]:
        """Return this layout as JSON data with its ``kind``."""


def layout_problem(layout: object) -> str | None:
    """Return what is wrong with something that is no layout, None for a layout."""
    if isinstance(layout, Layout) and not isinstance(layout, type):
        return None
    what = layout.__name__ if isinstance(layout, type) else repr(layout)
    return (
        f"{what} is no layout, which says what each rank holds: write layout=Block(axis=0) for rows, "
        "Block(axes=(0, 1)) for tiles, Replicated() for all of it on each rank, or BlockCyclic, Counts, Boxes, Indices"
    )


class BoxLayout(abc.ABC):
    """What layouts have in common that give each rank one box and are good for any number of ranks."""

    flat: ClassVar[bool] = False

    @abc.abstractmethod
    def boxes(self, shape: Shape, ranks: int) -> tuple[tuple[Box, ...], ...]:
        """Return the boxes of each rank, in the order of ranks."""

    def parts(self, shape: Shape, ranks: int, rank: int) -> tuple[Part, ...]:
        """Return what a rank holds, in the order in which its memory holds it."""
        return tuple(Part.of(box) for box in self.boxes(shape, ranks)[rank])

    def at(self, ranks: int) -> Layout:
        """Return this layout."""
        assert isinstance(self, Layout)
        return self


@dataclass(frozen=True)
class Block(BoxLayout):
    """Blocks of consecutive indices along one axis, or along several over a grid of processes.

    Along a split axis of ``n`` indices over ``g`` processes the first ``n % g`` hold ``n // g + 1``
    indices and the others ``n // g``: sizes differ by at most one, and with more processes than indices the
    last ones are empty. Ranks are placed in the grid in C order, the last axis of ``axes`` fastest.

    Parameters
    ----------
    axis
        The one axis to split; short for ``axes=(axis,)``. Axis 0 when neither is given.
    axes
        The axes to split. Negative ones count from the last.
    grid
        Number of processes along each of ``axes``; valid for one number of ranks only (at any other the
        default is taken). Chosen by `grid_for` when None.
    """

    axis: int | None = None
    axes: tuple[int, ...] | None = None
    grid: tuple[int, ...] | None = None

    kind: ClassVar[str] = "block"

    def __post_init__(self) -> None:
        if self.axis is not None and self.axes is not None and tuple(self.axes) != (self.axis,):
            raise ValueError("Block takes axis or axes, not both")
        axes = (self.axis or 0,) if self.axes is None else tuple(int(axis) for axis in self.axes)
        if not axes or len(set(axes)) != len(axes):
            raise ValueError(f"Block(axes={axes!r}): name each axis to split once, and at least one")
        object.__setattr__(self, "axes", axes)
        object.__setattr__(self, "axis", axes[0] if len(axes) == 1 else None)
        if self.grid is not None:
            grid = tuple(int(count) for count in self.grid)
            if len(grid) != len(axes) or min(grid) < 1:
                raise ValueError(f"Block(axes={axes!r}, grid={grid!r}): one positive count for each axis")
            object.__setattr__(self, "grid", grid)

    def split_axes(self, shape: Shape) -> tuple[int, ...]:
        """Return the axes that are split, counted from 0.

        Raises
        ------
        Unsupported
            When the array has no such axis.
        """
        assert self.axes is not None
        return axes_of(repr(self), self.axes, shape)

    def grid_for(self, shape: Shape, ranks: int) -> tuple[int, ...]:
        """Return the number of processes along each of ``axes``; their product is ``ranks``.

        Of all grids the one with the fewest empty ranks, then with the smallest surface between blocks,
        then the one with more processes along the earlier axes.
        """
        axes = self.split_axes(shape)
        if self.grid is not None and math.prod(self.grid) == ranks:
            return self.grid
        return dims_create(tuple(shape[axis] for axis in axes), ranks)

    def coords(self, shape: Shape, ranks: int, rank: int) -> tuple[int, ...]:
        """Return the place of a rank in the grid of `grid_for`."""
        place = []
        for count in reversed(self.grid_for(shape, ranks)):
            rank, index = divmod(rank, count)
            place.append(index)
        return tuple(reversed(place))

    def rank_at(self, shape: Shape, ranks: int, coords: tuple[int, ...]) -> int | None:
        """Return the rank at a place of the grid, None outside of it."""
        rank = 0
        for index, count in zip(coords, self.grid_for(shape, ranks), strict=True):
            if not 0 <= index < count:
                return None
            rank = rank * count + index
        return rank

    def boxes(self, shape: Shape, ranks: int) -> tuple[tuple[Box, ...], ...]:
        """Return the one box of each rank, in the order of ranks."""
        return _block_boxes(self, tuple(shape), ranks)

    def to_json(self) -> dict[str, Any]:
        assert self.axes is not None
        found: dict[str, Any] = {"kind": self.kind, "axes": list(self.axes)}
        if self.grid is not None:
            found["grid"] = list(self.grid)
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Block:
        grid = data.get("grid")
        return cls(axes=tuple(data["axes"]), grid=None if grid is None else tuple(grid))


@dataclass(frozen=True)
class Replicated(BoxLayout):
    """Every rank holds the whole array, with the same content; that is checked when it is saved."""

    kind: ClassVar[str] = "replicated"

    def boxes(self, shape: Shape, ranks: int) -> tuple[tuple[Box, ...], ...]:
        """Return the whole array for each rank."""
        return ((Box((0,) * len(shape), tuple(shape)),),) * ranks

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Replicated:
        return cls()


def axes_of(layout: str, axes: Sequence[int], shape: Shape) -> tuple[int, ...]:
    """Return the axes that a layout names, counted from 0.

    Raises
    ------
    Unsupported
        When an array of this shape has no such axis, or two of them are the same one.
    """
    found = tuple(axis + len(shape) if axis < 0 else axis for axis in axes)
    if any(not 0 <= axis < len(shape) for axis in found) or len(set(found)) != len(found):
        raise Unsupported(f"{layout} can't split an array of shape {shape}: it has {len(shape)} axes")
    return found


def split(count: int, parts: int) -> list[int]:
    """Return the ``parts + 1`` bounds of a block partition of ``count`` indices."""
    size, more = divmod(count, parts)
    return [part * size + min(part, more) for part in range(parts + 1)]


@functools.lru_cache(maxsize=256)
def _block_boxes(layout: Block, shape: Shape, ranks: int) -> tuple[tuple[Box, ...], ...]:
    axes = layout.split_axes(shape)
    bounds = [split(shape[axis], count) for axis, count in zip(axes, layout.grid_for(shape, ranks), strict=True)]
    found = []
    for place in itertools.product(*(range(len(bound) - 1) for bound in bounds)):
        lo, hi = [0] * len(shape), list(shape)
        for axis, bound, index in zip(axes, bounds, place, strict=True):
            lo[axis], hi[axis] = bound[index], bound[index + 1]
        found.append((Box(tuple(lo), tuple(hi)),))
    return tuple(found)


@functools.lru_cache(maxsize=1024)
def dims_create(shape: Shape, ranks: int) -> tuple[int, ...]:
    volume = math.prod(shape)

    def cost(grid: tuple[int, ...]) -> tuple[float, ...]:
        used = math.prod(map(min, grid, shape))
        surface = sum((count - 1) * volume // max(extent, 1) for count, extent in zip(grid, shape, strict=True))
        return (-used, surface, *(-count for count in grid))

    return min(_factorizations(ranks, len(shape)), key=cost)


def _factorizations(number: int, parts: int) -> list[tuple[int, ...]]:
    if parts == 1:
        return [(number,)]
    divisors = [each for each in range(1, number + 1) if number % each == 0]
    return [(first, *rest) for first in divisors for rest in _factorizations(number // first, parts - 1)]
