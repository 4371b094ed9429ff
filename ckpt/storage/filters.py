"""How an array is stored compressed: in chunks of HDF5, each of which is a piece."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import Unsupported
from ..state import dtypes
from ..transfer import plan
from .codec import NAMES, Codec, decompress, shuffle, unshuffle

Bytes = npt.NDArray[np.uint8]

SMALLEST = plan.BLOCK
"""Arrays of less bytes are not compressed: they would share a block of the file with nothing."""
LARGEST = 64 << 20
"""Bytes of the largest piece that is compressed, and that a reader makes room for."""


@dataclass(frozen=True)
class Filter:
    """How an array is compressed.

    Parameters
    ----------
    codec
        What its pieces are compressed with.
    unit
        Bytes of an element of the dataset, by which they are shuffled.
    chunk
        Shape of a piece: ``(1, …, 1, k, whole, …, whole)``, which is a run in C order. At the end of an axis the rest
        of it is zeros.
    first
        Number of its first piece among those of all arrays that are compressed.
    """

    codec: Codec
    unit: int
    chunk: tuple[int, ...]
    first: int = 0

    @property
    def elements(self) -> int:
        """Elements of a piece."""
        return math.prod(self.chunk)

    @property
    def skipped(self) -> int:
        """HDF5's filter mask of a piece that is stored as it is: a bit for each filter."""
        return 0b1 if self.unit == 1 else 0b11

    def row(self, shape: tuple[int, ...]) -> int:
        """Return the elements after which a piece ends in any case; see `.pieces.Pieces`."""
        return math.prod(shape[self._axis(shape) :])

    def _axis(self, shape: tuple[int, ...]) -> int:
        """Return the axis along which the pieces are cut."""
        axis = len(shape) - 1
        while axis > 0 and self.chunk[axis] == shape[axis]:
            axis -= 1
        return axis

    def fits(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
        """Whether it can be the filter of an array."""
        if not shape or len(shape) != len(self.chunk) or self.unit != dtypes.storage(dtype)[0].itemsize:
            return False
        axis = self._axis(shape)
        return (
            set(self.chunk[:axis]) <= {1}
            and all(1 <= one <= n for one, n in zip(self.chunk, shape, strict=True))
            and 0 < self.elements * dtype.itemsize <= LARGEST
        )

    def pack(self, data: Bytes, whole: int) -> tuple[Bytes, int]:
        """Return what is stored of a piece, and its filter mask.

        Parameters
        ----------
        data
            Its bytes; nothing of them is kept.
        whole
            Bytes of a piece that is not cut short by the end of an axis.
        """
        if len(data) < whole:
            data = np.concatenate([data, np.zeros(whole - len(data), np.uint8)])
        found = self.codec.compress(shuffle(data, self.unit))
        if len(found) < whole:
            return np.frombuffer(found, np.uint8), 0
        return data.copy(), self.skipped

    def unpack(self, stored: Bytes, mask: int, whole: int, into: Bytes) -> None:
        """Put back what `pack` returned.

        Raises
        ------
        ValueError
            When it returned something else.
        """
        data, unit = (stored, 1) if mask else (decompress(self.codec.name, stored, whole), self.unit)
        if len(data) != whole:
            raise ValueError(f"it has {len(data)} bytes, not {whole}")
        unshuffle(data, unit, into)
        if len(into) < whole and data.reshape(unit, -1)[:, len(into) // unit :].any():
            raise ValueError("there is something beyond the end of the array")

    def to_json(self) -> dict[str, Any]:
        return {
            "codec": self.codec.name,
            "level": self.codec.level,
            "shuffle": self.unit,
            "chunk": list(self.chunk),
            "first": self.first,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Filter:
        """Read one.

        Raises
        ------
        Unsupported
            When its codec is unknown.
        """
        name = next((each for each in NAMES if each == data["codec"]), None)
        if name is None:
            raise Unsupported(f"the compression {data['codec']!r} is unknown to this version of dmr: update dmr")
        chunk = tuple(int(each) for each in data["chunk"])
        return cls(Codec(name, int(data["level"])), int(data["shuffle"]), chunk, int(data["first"]))


def choose(codec: Codec | None, shape: tuple[int, ...], dtype: np.dtype[Any], first: int) -> Filter | None:
    """Return how an array is to be compressed; None where it is not: tiny ones, and such of huge elements.

    Pieces are as large as `plan.PIECE` lets them be, and about equal.
    """
    size = math.prod(shape) * dtype.itemsize
    if codec is None or not shape or size < SMALLEST or dtype.itemsize > LARGEST:
        return None
    axis = len(shape) - 1
    stride = dtype.itemsize
    while axis > 0 and stride * shape[axis] <= plan.PIECE:
        stride *= shape[axis]
        axis -= 1
    count = -(-shape[axis] // max(1, plan.PIECE // stride))
    chunk = (*[1] * axis, -(-shape[axis] // count), *shape[axis + 1 :])
    return Filter(codec, dtypes.storage(dtype)[0].itemsize, chunk, first)
