"""Datasets of compressed arrays: made without their data, whose places HDF5 tells by where it wants to write.

Chunks are made of zeros that are never written: a dataset has its final structure when the sizes of its chunks are
known, and ranks put them there afterwards.
"""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import CheckpointError
from .chunks import Table, rows_of
from .codec import FILTERS
from .manifest import ArrayEntry

_LOOKED_UP = 1024
"""HDF5 before 1.12.3 looks for each chunk from the first one on."""


class Image(io.FileIO):
    """A file in memory that HDF5 writes, all but the bytes of chunks.

    Parameters
    ----------
    handle
        Descriptor of a sparse file; stays open.
    """

    def __init__(self, handle: int) -> None:
        super().__init__(handle, "r+b", closefd=False)
        self._zeros = np.zeros(0, np.uint8)
        self._expected = -1
        self._places: list[int] = []

    def write(self, data: Any) -> int:
        """Write, or take note of where the expected zeros were to be written."""
        part = np.frombuffer(data, np.uint8)
        if len(part) != self._expected or part.ctypes.data != self._zeros.ctypes.data:
            return super().write(data)
        begin = self.tell()
        self._places.append(begin)
        if begin + len(part) > os.fstat(self.fileno()).st_size:
            os.ftruncate(self.fileno(), begin + len(part))
        self.seek(begin + len(part))
        return len(part)

    def place(self, dataset: Any, at: tuple[int, ...], count: int, mask: int) -> int:
        """Make a chunk of ``count`` bytes; return its offset in the file.

        Parameters
        ----------
        dataset
            h5py's low-level one.
        at
            Indices of its first element.
        mask
            Which filters are not applied to it, a bit for each.
        """
        if count > len(self._zeros):
            self._zeros = np.zeros(count, np.uint8)
        self._expected, self._places = count, []
        try:
            dataset.write_direct_chunk(at, self._zeros[:count], mask)
        finally:
            self._expected = -1
        if len(self._places) != 1:
            raise CheckpointError(f"HDF5 gave {len(self._places)} places to a compressed piece, not one")
        return self._places[0]


def first_elements(entry: ArrayEntry) -> Iterator[tuple[int, ...]]:
    """Yield the indices of the first element of each piece of a compressed array, in order."""
    assert entry.filter is not None
    return itertools.product(*(range(0, n, each) for n, each in zip(entry.shape, entry.filter.chunk, strict=True)))


def set_filters(creation: Any, entry: ArrayEntry, more: tuple[int, ...]) -> None:
    """Put layout and filters of a compressed array into a property list; zstd's need not be there for that."""
    import h5py

    assert entry.filter is not None
    creation.set_chunk((*entry.filter.chunk, *more))
    if entry.filter.unit > 1:
        creation.set_shuffle()
    codec = entry.filter.codec
    if codec.name == "zlib":
        creation.set_deflate(codec.level)
    else:
        creation.set_filter(FILTERS[codec.name], h5py.h5z.FLAG_OPTIONAL, (codec.level,))


def check_chunks(dataset: Any, entry: ArrayEntry, more: tuple[int, ...], table: Table) -> str | None:
    """Return what of a compressed array's dataset does not agree with the manifest, None when all does."""
    assert entry.filter is not None
    creation = dataset.get_create_plist()
    if creation.get_layout() != _chunked() or creation.get_chunk() != (*entry.filter.chunk, *more):
        return "is not in the pieces that it is said to be in"
    found = [creation.get_filter(number)[0] for number in range(creation.get_nfilters())]
    expected = [_shuffle()] * (entry.filter.unit > 1) + [FILTERS[entry.filter.codec.name]]
    if found != expected:
        return f"has the filters {found}, not {expected}"
    if dataset.get_num_chunks() != entry.pieces:
        return f"has {dataset.get_num_chunks()} pieces, not {entry.pieces}"
    rows = rows_of(table, entry).tolist()
    places = {at + (0,) * len(more): row for at, row in zip(first_elements(entry), rows, strict=True)}
    for info in _chunks(dataset, entry.pieces):
        row = places.get(tuple(info.chunk_offset))
        if row is None or [info.byte_offset, info.size, info.filter_mask] != row[:3]:
            return f"has {info.size} bytes at {info.byte_offset} for the piece at {tuple(info.chunk_offset)}, not {row}"
    return None


def _chunks(dataset: Any, count: int) -> Iterator[Any]:
    if hasattr(dataset, "chunk_iter"):
        found: list[Any] = []
        dataset.chunk_iter(found.append)
        return iter(found)
    return (dataset.get_chunk_info(number) for number in range(min(count, _LOOKED_UP)))


def _chunked() -> int:
    import h5py

    return int(h5py.h5d.CHUNKED)


def _shuffle() -> int:
    import h5py

    return int(h5py.h5z.FILTER_SHUFFLE)
