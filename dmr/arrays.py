"""Distributed arrays as a program sees them: this rank's part, and its place in the whole."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from .ckpt import ArrayItem, Block, BlockCyclic, Box, Replicated
from .ckpt.layouts.layout import layout_problem
from .ckpt.transfer.held import local_shape
from .errors import Error


class Array:
    """This rank's part of a distributed array. Made by `Run.array`.

    Attributes
    ----------
    name : str
    shape : tuple of int
        Shape of the whole array.
    dtype : numpy.dtype
    layout : layout
        How the whole array is spread over the ranks.
    padded : numpy.ndarray
        This rank's part with ``halo`` cells more on both sides of each split axis. The halo is the
        program's own to fill; it is not saved. Without a halo the same array as `local`.
    """

    kind: ClassVar[str] = "array"

    def __init__(
        self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], layout: Any, rank: int, ranks: int, halo: int = 0
    ) -> None:
        if halo < 0:
            raise Error(f"array {name!r}: halo is {halo}, it can't be negative")
        if problem := layout_problem(layout):
            raise Error(f"array {name!r}: {problem}")
        self.name, self.shape, self.dtype, self.layout, self.halo = name, shape, dtype, layout, halo
        self._rank, self._ranks = rank, ranks
        extents = local_shape(layout, shape, ranks, rank)
        split = _split_axes(layout, shape) if halo else ()
        widths = tuple(halo if axis in split else 0 for axis in range(len(extents)))
        self._inner = tuple(slice(w, w + extent) for w, extent in zip(widths, extents, strict=True))
        self._extents = extents
        self.padded: np.ndarray[Any, Any] = np.zeros(
            tuple(extent + 2 * w for w, extent in zip(widths, extents, strict=True)), dtype
        )

    @property
    def box(self) -> Box:
        """Where this rank's part lies in the whole; ``box.slices`` indexes it there.

        Raises
        ------
        Error
            When the layout gives a rank something else than one box.
        """
        if not isinstance(self.layout, Block | Replicated):
            raise Error(f"array {self.name!r}: a rank's part in {self.layout} is no single box; ask the layout")
        boxes = self.layout.boxes(self.shape, self._ranks)[self._rank]
        return boxes[0] if boxes else Box((0,) * len(self.shape), (0,) * len(self.shape))

    def item(self) -> ArrayItem:
        """Return what a checkpoint is to hold of it."""
        return ArrayItem(self.local, self.layout, self.shape)

    @property
    def local(self) -> np.ndarray[Any, Any]:
        """This rank's part, as its layout has it; may be assigned an array of the same shape and dtype."""
        return self.padded[self._inner] if self.halo else self.padded

    @local.setter
    def local(self, new: np.ndarray[Any, Any]) -> None:
        if not isinstance(new, np.ndarray) or new.shape != self._extents or new.dtype != self.dtype:
            what = f"{new.dtype} {new.shape}" if isinstance(new, np.ndarray) else type(new).__name__
            raise Error(
                f"array {self.name!r}: its part on rank {self._rank} is {self.dtype} {self._extents}, "
                f"but {what} was assigned to it"
            )
        if self.halo:
            self.padded[self._inner] = new
        else:
            self.padded = new

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of ranks along each split axis; for `Block` and `BlockCyclic` layouts."""
        if isinstance(self.layout, Block | BlockCyclic):
            return self.layout.grid_for(self.shape, self._ranks)
        raise Error(f"array {self.name!r}: {self.layout} has no process grid")

    @property
    def coords(self) -> tuple[int, ...]:
        """This rank's place in `grid`: row-major."""
        return tuple(int(index) for index in np.unravel_index(self._rank, self.grid))

    def neighbour(self, axis: int, direction: int) -> int | None:
        """Return the rank beside this one along an axis that holds data, None at the array's edge.

        For `Block` layouts; along an axis that is not split there is none.

        Parameters
        ----------
        axis
            Axis of the array.
        direction
            -1 for lower indices, +1 for higher.
        """
        axes = _split_axes(self.layout, self.shape)
        if axis not in axes or self.box.size == 0:
            return None
        edge = self.box.lo[axis] - 1 if direction < 0 else self.box.hi[axis]
        if not 0 <= edge < self.shape[axis]:
            return None
        # Blocks are empty only behind the last index, so the next place in the grid holds the next index.
        place = list(self.coords)
        place[axes.index(axis)] += direction
        return int(np.ravel_multi_index(place, self.grid))

    def gather(self, comm: Any, root: int = 0) -> np.ndarray[Any, Any] | None:
        """Return the whole array on the root, None elsewhere. Collective on ``comm``.

        The root needs memory for the whole; meant for results and pictures, not for large states. For `Block` and
        `Replicated` layouts.
        """
        parts = comm.gather((self.box, np.ascontiguousarray(self.local)), root=root)
        if parts is None:
            return None
        whole = np.zeros(self.shape, self.dtype)
        for box, part in parts:
            whole[box.slices] = part
        return whole

    def __repr__(self) -> str:
        return f"Array({self.name!r}, shape={self.shape}, dtype={self.dtype}, layout={self.layout})"


def _split_axes(layout: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    if not isinstance(layout, Block):
        raise Error(f"a halo and neighbours go with a Block layout, not with {layout}")
    return layout.split_axes(shape)
