"""Where the pieces of compressed arrays stand in a file, and getting them out of what is stored there."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import Damaged
from .manifest import ArrayEntry, Manifest

Bytes = npt.NDArray[np.uint8]
Table = npt.NDArray[np.uint64]
"""A row for each piece of each compressed array: offset in the file, bytes there, HDF5's filter mask, and the digest of
these bytes. Shape ``(pieces, 4)``."""
COLUMNS = 4


class Chunk(NamedTuple):
    """What is stored of a piece."""

    offset: int
    bytes: int
    mask: int
    digest: int


def empty_table(count: int = 0) -> Table:
    return np.zeros((count, COLUMNS), np.uint64)


def chunk_of(table: Table, entry: ArrayEntry, piece: int) -> Chunk:
    """Return where a piece of a compressed array stands."""
    assert entry.filter is not None
    return Chunk(*table[entry.filter.first + piece].tolist())


def rows_of(table: Table, entry: ArrayEntry) -> Table:
    """Return the rows of a compressed array."""
    assert entry.filter is not None
    return table[entry.filter.first : entry.filter.first + entry.pieces]


def check_table(path: Path, manifest: Manifest, table: Table, size: int) -> None:
    """Make sure that no row asks a reader for more than a piece, or for what is beyond the end of the file.

    Raises
    ------
    Damaged
    """
    if table.shape != (manifest.chunks, COLUMNS):
        raise Damaged(f"{path}: a table of shape {table.shape} for {manifest.chunks} compressed pieces")
    for entry in manifest.arrays:
        if entry.filter is None:
            continue
        offset, count, mask, _ = rows_of(table, entry).T
        whole = entry.whole
        stored = np.where(mask == 0, (count > 0) & (count < whole), (mask == entry.filter.skipped) & (count == whole))
        inside = (count <= size) & (offset <= np.uint64(size) - np.minimum(count, np.uint64(size)))
        if not (stored & inside).all():
            piece = int(np.flatnonzero(~(stored & inside))[0])
            raise Damaged(f"{path}: array {entry.name!r}: the place of piece {piece} can't be right")


def unpack(path: Path, entry: ArrayEntry, piece: int, chunk: Chunk, stored: Bytes, found: int, into: Bytes) -> None:
    """Decompress a piece.

    Parameters
    ----------
    found
        Digest of ``stored``; nothing is decompressed when it is not the one that was written.
    into
        Of the size of the piece.

    Raises
    ------
    Damaged
    """
    assert entry.filter is not None
    lo, hi = entry.cut.span(piece)
    where = (
        f"{path}: array {entry.name!r} is damaged: elements {lo} to {hi - 1} in C order, compressed at bytes "
        f"{chunk.offset} to {chunk.offset + chunk.bytes - 1} of the file,"
    )
    if found != chunk.digest:
        raise Damaged(f"{where} don't have the digest that was written")
    try:
        entry.filter.unpack(stored, chunk.mask, entry.whole, into)
    except ValueError as error:
        raise Damaged(f"{where} can't be decompressed ({error})") from None


def stored_ranges(manifest: Manifest, table: Table) -> list[tuple[int, int]]:
    """Return the ranges of the file in which arrays stand."""
    found = [(each.offset, each.offset + each.bytes) for each in manifest.arrays if each.bytes and each.filter is None]
    found += [(offset, offset + count) for offset, count in table[:, :2].tolist()]
    return found


def stored_bytes(manifest: Manifest, table: Table) -> int:
    """Return how many bytes the arrays take in the file."""
    return sum(each.bytes for each in manifest.arrays if each.filter is None) + int(table[:, 1].sum())


def raw_bytes(manifest: Manifest, table: Table, size: int) -> int:
    """Return how many bytes a file of ``size`` bytes would have if nothing in it were compressed."""
    return size + sum(each.bytes for each in manifest.arrays) - stored_bytes(manifest, table)
