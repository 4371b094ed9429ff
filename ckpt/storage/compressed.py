"""A compressed array of a file, of which as much is read as is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ..layouts.box import Box
from .boxes import BoxReader
from .manifest import ArrayEntry

Array = npt.NDArray[Any]


class CompressedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """Stands for a whole array, read only and not yet in memory.

    An index of numbers and slices reads the pieces that it touches, and returns an array of NumPy's. Everything else
    that is done with it reads all of it, each time anew. It can be copied and pickled, as the array that it stands for.

    Parameters
    ----------
    entry
        What it is.
    reader
        Reads it; its own, so that the file can be closed.
    """

    __array_priority__ = 1000

    def __init__(self, entry: ArrayEntry, reader: BoxReader) -> None:
        self.shape, self.dtype = entry.shape, entry.dtype
        self._entry, self._reader = entry, reader

    def __repr__(self) -> str:
        return f"<compressed array of shape {self.shape}, {self.dtype}>"

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        return bool(self._whole())

    def __reduce__(self) -> tuple[Any, ...]:
        return np.array, (self._whole(),)

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        chosen = index if isinstance(index, tuple) else (index,)
        if any(not isinstance(each, (int, np.integer, slice, type(None), type(...))) for each in chosen) or any(
            isinstance(each, (bool, np.bool_)) for each in chosen
        ):
            return self._whole()[index]
        axes = sum(each is not None and each is not ... for each in chosen)
        if axes > len(self.shape) or sum(each is ... for each in chosen) > 1:
            return np.broadcast_to(np.zeros((), self.dtype), self.shape)[index]  # says what is wrong
        if all(each is not ... for each in chosen):
            chosen = (*chosen, ...)
        lo: list[int] = []
        hi: list[int] = []
        inside: list[Any] = []
        for each in chosen:
            if each is None:
                inside.append(None)
            elif each is ...:
                for extent in self.shape[len(lo) : len(lo) + len(self.shape) - axes]:
                    _add(range(extent), lo, hi, inside)
            elif isinstance(each, slice):
                _add(range(*each.indices(self.shape[len(lo)])), lo, hi, inside)
            else:
                extent = self.shape[len(lo)]
                if not -extent <= each < extent:
                    raise IndexError(f"index {each} is out of bounds for axis {len(lo)} with size {extent}")
                at = int(each) % extent
                lo.append(at)
                hi.append(at + 1)
                inside.append(0)
        return self._reader.box(self._entry, Box(tuple(lo), tuple(hi)))[tuple(inside)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("a compressed array can't be had without a copy")
        found = self._whole()
        if dtype is not None:
            found = found.astype(dtype, copy=False)
        # NumPy 2 asks for a copy that is its own; NumPy 1 makes one.
        found.flags.writeable = bool(copy)
        return found

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if any(isinstance(each, CompressedArray) for each in options.get("out", ())):
            raise ValueError("an array of a checkpoint is read only")
        plain = {name: _plain(value) for name, value in options.items()}
        return getattr(ufunc, method)(*(_plain(each) for each in inputs), **plain)

    def __getattr__(self, name: str) -> Any:
        # Those who ask for names of their own, as notebooks do, get no more than an answer.
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        # What does not depend on the content costs no reading.
        if name in ("ndim", "size", "itemsize", "nbytes"):
            none = np.broadcast_to(np.zeros((), self.dtype), self.shape)
            return getattr(none, name)
        return getattr(np.asarray(self), name)

    def _whole(self) -> Array:
        return self._reader.box(self._entry, Box((0,) * len(self.shape), self.shape))


def _add(chosen: range, lo: list[int], hi: list[int], inside: list[Any]) -> None:
    """Add one axis: the least box that has the chosen indices, and which of these."""
    ends = sorted((chosen[0], chosen[-1])) if len(chosen) else (0, -1)
    lo.append(ends[0])
    hi.append(ends[1] + 1)
    inside.append(slice(None, None, chosen.step))


def _plain(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, CompressedArray) else value
