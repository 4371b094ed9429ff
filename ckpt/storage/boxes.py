"""Reading boxes of arrays out of an open file, piece by piece and verified, by one process."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import Damaged
from ..layouts.box import Box
from ..layouts.parts import Part, cut, get
from ..transfer.held import carrier
from ..transfer.plan import window
from .chunks import chunk_of, unpack
from .h5file import Content
from .manifest import ArrayEntry, digest


class BoxReader:
    """Reads pieces, runs and boxes of arrays. Threads may do so together.

    Parameters
    ----------
    path, content
        The file and what it says of itself.
    file
        A descriptor by which it is open; closed by `close`, or with this object.

    Raises
    ------
    Damaged
        By all that reads: when a piece is not what was written.
    OSError
        When the file system says no.
    ValueError
        When it is closed.
    """

    def __init__(self, path: Path, content: Content, file: int) -> None:
        self._path, self._content = path, content
        self._file: int | None = file
        self._end = weakref.finalize(self, os.close, file)
        self._last: tuple[str, int, npt.NDArray[np.uint8]] | None = None

    @property
    def file(self) -> int:
        if self._file is None:
            raise ValueError(f"{self._path} is closed")
        return self._file

    def close(self) -> None:
        self._file = None
        self._end()

    def duplicate(self) -> BoxReader:
        """Return one with a descriptor of its own, under the same lock."""
        return BoxReader(self._path, self._content, os.dup(self.file))

    def forget(self) -> None:
        """Let the next look at a piece read the file."""
        self._last = None

    def elements(self, entry: ArrayEntry, lo: int, hi: int) -> npt.NDArray[Any]:
        """Return elements ``lo`` to ``hi`` of an array in C order, one-dimensional."""
        found = np.empty(hi - lo, entry.dtype)
        raw = found.view(carrier(entry.dtype.itemsize)) if entry.dtype.itemsize else found
        for piece in entry.cut.within(lo, hi):
            begin = entry.cut.span(piece)[0]
            part = self.piece(entry, piece).view(raw.dtype)
            first, last = max(lo, begin), min(hi, begin + len(part))
            raw[first - lo : last - lo] = part[first - begin : last - begin]
        return found

    def box(self, entry: ArrayEntry, box: Box) -> npt.NDArray[Any]:
        """Return a box of an array."""
        found = np.empty(box.shape, entry.dtype)
        if not found.nbytes:
            return found
        raw = found.view(carrier(entry.dtype.itemsize))
        first, last = Part.of(box).flat_range(entry.shape)
        for piece in entry.cut.within(first, last):
            lo, hi = entry.cut.span(piece)
            elements: npt.NDArray[Any] | None = None
            at = 0
            for part in window(entry.shape, lo, hi):
                overlap = cut(Part.of(box), part)
                if overlap is not None:
                    if elements is None:
                        elements = self.piece(entry, piece).view(raw.dtype)
                    target: tuple[Any, ...] = (*overlap.local, ...)
                    get(elements[at : at + part.size].reshape(part.shape), overlap.inside, raw[target])
                at += part.size
        return found

    def piece(self, entry: ArrayEntry, piece: int) -> npt.NDArray[np.uint8]:
        """Return the bytes of a piece."""
        last = self._last
        if last is not None and last[:2] == (entry.name, piece):
            return last[2]
        lo, hi = entry.cut.span(piece)
        into = np.empty((hi - lo) * entry.dtype.itemsize, np.uint8)
        if entry.filter is None:
            self._fill(entry, entry.offset + lo * entry.dtype.itemsize, into)
        else:
            chunk = chunk_of(self._content.chunks, entry, piece)
            stored = np.empty(chunk.bytes, np.uint8)
            self._fill(entry, chunk.offset, stored)
            unpack(self._path, entry, piece, chunk, stored, digest(stored), into)
        if digest(into) != int(self._content.digests[entry.first + piece]):
            raise Damaged(describe_damage(self._path, entry, piece))
        if entry.filter is not None:
            # Rows that are looked at one after the other are often of the same piece.
            self._last = entry.name, piece, into
        return into

    def _fill(self, entry: ArrayEntry, begin: int, into: npt.NDArray[np.uint8]) -> None:
        file = self.file
        done = 0
        while done < len(into):
            try:
                count = os.preadv(file, [into.data[done:]], begin + done)
            except OSError as error:
                error.filename = str(self._path)
                raise
            if not count:
                raise Damaged(f"{self._path}: array {entry.name!r} is cut short at byte {begin + done}")
            done += count


def describe_damage(path: Path, entry: ArrayEntry, piece: int) -> str:
    """Return where a piece is that has not the digest that was written."""
    lo, hi = entry.cut.span(piece)
    begin, end = (entry.offset + each * entry.dtype.itemsize for each in (lo, hi))
    where = f"at bytes {begin} to {end - 1} of the file" if entry.filter is None else "when decompressed"
    return (
        f"{path}: array {entry.name!r} is damaged: elements {lo} to {hi - 1} in C order, {where}, "
        "don't have the digest that was written"
    )
