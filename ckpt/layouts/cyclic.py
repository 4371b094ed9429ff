"""Block-cyclic arrays, as ScaLAPACK has them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .box import Box
from .layout import Layout, Shape, axes_of, dims_create
from .parts import Axis, CyclicAxis, Part


@dataclass(frozen=True)
class BlockCyclic:
    """Blocks dealt out in turn over a grid of processes: ScaLAPACK's layout, with its first block on process 0.

    A rank's data is the array of its blocks side by side in their order, as ScaLAPACK keeps it locally. Ranks are
    placed in the grid in C order (BLACS' ``Row``).

    Parameters
    ----------
    block
        Extent of a block along each of ``axes`` (ScaLAPACK's ``MB, NB``).
    axes
        The axes that are dealt out; the first ones, as many as ``block`` has numbers, when None.
    grid
        Number of processes along each of ``axes``, valid for one number of ranks only; chosen as for `Block` when None
        or at another number of ranks.
    """

    block: tuple[int, ...]
    axes: tuple[int, ...] | None = None
    grid: tuple[int, ...] | None = None

    kind: ClassVar[str] = "block-cyclic"
    flat: ClassVar[bool] = False

    def __post_init__(self) -> None:
        block = tuple(int(each) for each in self.block)
        axes = tuple(range(len(block))) if self.axes is None else tuple(int(axis) for axis in self.axes)
        grid = None if self.grid is None else tuple(int(each) for each in self.grid)
        for sizes in (block, grid):
            if sizes is not None and (len(sizes) != len(axes) or not sizes or min(sizes) < 1):
                raise ValueError(
                    f"BlockCyclic(block={block}, axes={axes}, grid={grid}): one positive number for each axis"
                )
        if len(set(axes)) != len(axes):
            raise ValueError(f"BlockCyclic(axes={axes}): name each axis once")
        object.__setattr__(self, "block", block)
        object.__setattr__(self, "axes", axes)
        object.__setattr__(self, "grid", grid)

    def dealt_axes(self, shape: Shape) -> tuple[int, ...]:
        """Return the axes that are dealt out, counted from 0.

        Raises
        ------
        Unsupported
            When the array has no such axis.
        """
        assert self.axes is not None
        return axes_of(repr(self), self.axes, shape)

    def grid_for(self, shape: Shape, ranks: int) -> tuple[int, ...]:
        """Return the number of processes along each of ``axes``; their product is ``ranks``."""
        axes = self.dealt_axes(shape)
        if self.grid is not None and math.prod(self.grid) == ranks:
            return self.grid
        return dims_create(tuple(-(-shape[axis] // size) for axis, size in zip(axes, self.block, strict=True)), ranks)

    def parts(self, shape: Shape, ranks: int, rank: int) -> tuple[Part, ...]:
        """Return what a rank holds: one part, the product of its turns along each axis."""
        axes: list[Axis] = [(0, extent) for extent in shape]
        dealt, grid = self.dealt_axes(shape), self.grid_for(shape, ranks)
        for axis, size, count in reversed(list(zip(dealt, self.block, grid, strict=True))):
            rank, place = divmod(rank, count)
            axes[axis] = CyclicAxis(shape[axis], size, count, place)
        return (Part(tuple(axes)),)

    def boxes(self, shape: Shape, ranks: int) -> tuple[tuple[Box, ...], ...]:
        """Return the blocks of each rank."""
        found = []
        for rank in range(ranks):
            (part,) = self.parts(shape, ranks, rank)
            runs = [_runs(axis) for axis in part.axes]
            boxes = [tuple(zip(*each, strict=True)) for each in itertools.product(*runs)]
            found.append(tuple(Box(*each) for each in boxes if each))
        return tuple(found)

    def at(self, ranks: int) -> Layout:
        """Return this layout: it is good for any number of ranks."""
        return self

    def to_json(self) -> dict[str, Any]:
        assert self.axes is not None
        found: dict[str, Any] = {"kind": self.kind, "block": list(self.block), "axes": list(self.axes)}
        if self.grid is not None:
            found["grid"] = list(self.grid)
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BlockCyclic:
        grid = data.get("grid")
        return cls(tuple(data["block"]), tuple(data["axes"]), None if grid is None else tuple(grid))


def _runs(axis: Axis) -> list[tuple[int, int]]:
    if isinstance(axis, tuple):
        return [axis]
    assert isinstance(axis, CyclicAxis)
    step = axis.block * axis.count
    return [
        (begin, min(begin + axis.block, axis.extent)) for begin in range(axis.place * axis.block, axis.extent, step)
    ]
