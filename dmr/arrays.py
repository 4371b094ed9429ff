"""Distributed arrays as a program sees them: this rank's part, and its place in the whole."""

from __future__ import annotations

from typing import Any

import numpy as np

from .ckpt import Block, Box
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
    box : Box
        Where this rank's part lies in the whole; ``box.slices`` indexes it there.
    padded : numpy.ndarray
        This rank's part with ``halo`` cells more on both sides of each split axis. The halo is the
        program's own to fill; it is not saved. Without a halo the same array as `local`.
    grid, coords : tuple of int
        The process grid of a `Block` layout, and this rank's place in it (row-major).
    """

    def __init__(
        self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], layout: Any, rank: int, ranks: int, halo: int = 0
    ) -> None:
        if halo < 0:
            raise Error(f"array {name!r}: halo is {halo}, it can't be negative")
        boxes = layout.boxes(shape, ranks)[rank]
        if len(boxes) > 1:
            raise Error(f"array {name!r}: {layout} gives a rank {len(boxes)} boxes; Run.array takes layouts of one")
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.layout = layout
        self.halo = halo
        self.box: Box = boxes[0] if boxes else Box((0,) * len(shape), (0,) * len(shape))
        self._rank, self._ranks = rank, ranks
        split = _split_axes(layout, shape) if halo else ()
        widths = tuple(halo if axis in split else 0 for axis in range(len(shape)))
        self._inner = tuple(slice(w, w + extent) for w, extent in zip(widths, self.box.shape, strict=True))
        self.padded: np.ndarray[Any, Any] = np.zeros(
            tuple(extent + 2 * w for w, extent in zip(widths, self.box.shape, strict=True)), dtype
        )

    @property
    def local(self) -> np.ndarray[Any, Any]:
        """This rank's part, of shape ``box.shape``; may be assigned an array of the same shape and dtype."""
        return self.padded[self._inner] if self.halo else self.padded

    @local.setter
    def local(self, new: np.ndarray[Any, Any]) -> None:
        if not isinstance(new, np.ndarray) or new.shape != self.box.shape or new.dtype != self.dtype:
            what = f"{new.dtype} {new.shape}" if isinstance(new, np.ndarray) else type(new).__name__
            raise Error(
                f"array {self.name!r}: its part on rank {self._rank} is {self.dtype} {self.box.shape}, "
                f"but {what} was assigned to it"
            )
        if self.halo:
            self.padded[self._inner] = new
        else:
            self.padded = new

    @property
    def grid(self) -> tuple[int, ...]:
        if isinstance(self.layout, Block):
            return self.layout.grid_for(self.shape, self._ranks)
        raise Error(f"array {self.name!r}: {self.layout} has no process grid")

    @property
    def coords(self) -> tuple[int, ...]:
        grid = self.grid
        if self._rank >= int(np.prod(grid)):
            raise Error(f"array {self.name!r}: rank {self._rank} has no place in the process grid {grid}")
        return tuple(int(index) for index in np.unravel_index(self._rank, grid))

    def neighbour(self, axis: int, direction: int) -> int | None:
        """Return the rank beside this one along an axis that holds data, None at the array's edge.

        Parameters
        ----------
        axis
            Axis of the array.
        direction
            -1 for lower indices, +1 for higher.
        """
        if self.box.size == 0:
            return None
        edge = self.box.lo[axis] - 1 if direction < 0 else self.box.hi[axis]
        if not 0 <= edge < self.shape[axis]:
            return None
        place = list(self.coords)
        boxes = self.layout.boxes(self.shape, self._ranks)
        while True:
            place[axis] += direction
            if not 0 <= place[axis] < self.grid[axis]:
                return None
            rank = int(np.ravel_multi_index(place, self.grid))
            if boxes[rank] and boxes[rank][0].size:
                return rank

    def gather(self, comm: Any, root: int = 0) -> np.ndarray[Any, Any] | None:
        """Return the whole array on the root, None elsewhere. Collective on ``comm``.

        The root needs memory for the whole; meant for results and pictures, not for large states.
        """
        parts = comm.gather((self.box, np.ascontiguousarray(self.local)), root=root)
        if parts is None:
            return None
        whole = np.zeros(self.shape, self.dtype)
        for box, part in parts:
            whole[box.slices] = part
        return whole

    def __repr__(self) -> str:
        return f"Array({self.name!r}, shape={self.shape}, dtype={self.dtype}, layout={self.layout}, box={self.box})"


def _split_axes(layout: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    if not isinstance(layout, Block):
        raise Error(f"a halo goes with a Block layout, not with {layout}")
    return layout.split_axes(shape)
