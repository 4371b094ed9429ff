"""Reading a checkpoint without MPI: for notebooks, tools and other programs."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .comm.cores import threads_of
from .comm.group import Group
from .comm.trouble import Trouble
from .errors import CheckpointError, Damaged, Mismatch
from .layouts.box import Box
from .state import rng, values
from .state.items import ArraySpec
from .state.specs import specs_of
from .storage.boxes import BoxReader
from .storage.chunks import rows_of
from .storage.compressed import CompressedArray
from .storage.h5file import check_structure, read_content
from .storage.manifest import ArrayEntry, Manifest
from .storage.opening import open_locked
from .tools.ahead import ahead


@dataclass(frozen=True)
class Problem:
    """Something that is not as it was written; ``array`` is None where it concerns the file."""

    array: str | None
    text: str


Looked = npt.NDArray[Any] | CompressedArray


class CheckpointFile(Mapping[str, Looked]):
    """An open checkpoint; maps the name of each array to the whole array, read only and not yet in memory.

    What is looked at comes from the file at that moment, unverified; `read` and `verify` check the digests. Of a
    compressed array, which is a `CompressedArray`, each piece that is looked at is decompressed and verified.

    Parameters
    ----------
    path
        A checkpoint file.

    Raises
    ------
    Damaged, UnknownVersion
        When it is no good checkpoint of this or an earlier version.

    Examples
    --------
    >>> with dmr.ckpt.open("step-000000000400-g0002.h5") as file:
    ...     file["u"][100:200].mean()
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        # Locked as long as it, or an array that was looked at, which holds a duplicate, is open.
        file = open_locked(self.path)
        try:
            self._content = read_content(self.path, file)
        except BaseException:
            os.close(file)
            raise
        self._reader = BoxReader(self.path, self._content, file)
        self._entries = {each.name: each for each in self.manifest.arrays}

    def close(self) -> None:
        """Close the file; arrays that were looked at stay valid."""
        self._reader.close()

    def __enter__(self) -> CheckpointFile:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    @property
    def manifest(self) -> Manifest:
        """What the file says of itself."""
        return self._content.manifest

    @property
    def step(self) -> int:
        """The step at which it was saved."""
        return self.manifest.step

    @property
    def info(self) -> Any:
        """The JSON value that the program gave along."""
        return values.decode(self.manifest.info)

    @property
    def bytes(self) -> int:
        """Size of the file."""
        return self._content.size

    @property
    def raw_bytes(self) -> int:
        """Size that the file would have if nothing in it were compressed."""
        return self._content.raw_bytes

    def stored_bytes(self, name: str) -> int:
        """Return the bytes that an array takes in the file."""
        entry = self._entry(name)
        return entry.bytes if entry.filter is None else int(rows_of(self._content.chunks, entry)[:, 1].sum())

    @property
    def specs(self) -> dict[str, ArraySpec]:
        """What the file holds, by name."""
        return specs_of(self.manifest)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, name: str) -> Looked:
        entry = self._entry(name)
        if not entry.bytes:
            return np.empty(entry.shape, entry.dtype)
        if entry.filter is not None:
            return CompressedArray(entry, self._reader.duplicate())
        begin = entry.offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        end = entry.offset + entry.bytes
        memory = mmap.mmap(self._reader.file, end - begin, mmap.MAP_SHARED, mmap.PROT_READ, offset=begin)
        raw = np.frombuffer(memory, np.uint8, entry.bytes, entry.offset - begin)
        return raw.view(entry.dtype).reshape(entry.shape)

    def value(self, name: str) -> Any:
        """Return a value."""
        if name not in self.manifest.values:
            raise Mismatch(f"{self.path} holds no value {name!r}; it holds {_names(self.manifest.values)}")
        return values.decode(self.manifest.values[name])

    def rng(self, name: str) -> np.random.Generator:
        """Return a generator that goes on where the saved one stood."""
        if name not in self.manifest.rngs:
            raise Mismatch(f"{self.path} holds no generator {name!r}; it holds {_names(self.manifest.rngs)}")
        return rng.generator_from(self.manifest.rngs[name])

    def digests(self, name: str) -> npt.NDArray[np.uint64]:
        """Return the digests of an array's pieces."""
        entry = self._entry(name)
        return self._content.digests[entry.first : entry.first + entry.pieces]

    def elements(self, name: str, lo: int, hi: int) -> npt.NDArray[Any]:
        """Return elements ``lo`` to ``hi`` of an array in C order, one-dimensional and verified.

        Raises
        ------
        Damaged
            When a piece of them is not what was written.
        """
        return self._reader.elements(self._entry(name), lo, hi)

    def read(self, name: str, box: Box | None = None) -> npt.NDArray[Any]:
        """Return an array, or a box of it, in memory and verified.

        Parameters
        ----------
        box
            ``Box(lo, hi)``: from the indices ``lo`` up to, and without, ``hi``; all of it when None.

        Raises
        ------
        TypeError
            When the box is something else.
        Mismatch
            When it does not lie in the array.
        Damaged
            When a piece that holds a part of it is not what was written.
        """
        entry = self._entry(name)
        whole = Box((0,) * len(entry.shape), entry.shape)
        if box is None:
            return self._reader.box(entry, whole)
        if not isinstance(box, Box):
            raise TypeError(
                f"{box!r} is no box: write Box((0, 0), (2, 2)), with Box from dmr.ckpt, for the first two rows and "
                f"columns, or cut by slices, as file[{name!r}][0:2]"
            )
        inside = len(box.lo) == len(box.hi) == len(entry.shape) and all(
            0 <= lo <= hi <= extent for lo, hi, extent in zip(box.lo, box.hi, entry.shape, strict=True)
        )
        if not inside:
            raise Mismatch(f"{box} does not lie in the array {name!r} of shape {entry.shape}")
        return self._reader.box(entry, box)

    def verify(
        self,
        progress: Callable[[int], None] | None = None,
        group: Group | None = None,
        *,
        threads: int | None = None,
    ) -> list[Problem]:
        """Read everything; return what is not as it was written, the same on every rank. Collective over the group.

        Parameters
        ----------
        progress
            Called on each rank with a number of bytes each time that it has read that many more.
        group
            The ranks that have it open and share the work; this process alone when None.
        threads
            How many read in this process, the same on every rank or None for as many as are of use.

        Raises
        ------
        CheckpointError
            When it can't be told, since a package is missing or the file system says no; the same on every rank.
        """
        group = Group() if group is None else group
        self._reader.forget()
        threads = threads_of(group) if threads is None else threads
        mine: list[tuple[str | None, str]] = []
        trouble = Trouble()
        with trouble:
            if group.rank == 0:
                structure = check_structure(self.path, self._content, self._reader.file)
                mine = [(None, f"{self.path}: {text}") for text in structure]
            for entry in self.manifest.arrays:
                work = [(entry, piece) for piece in group.share(entry.pieces)]
                for problem, count in ahead(self._check, work, threads):
                    if problem is not None:
                        mine.append((entry.name, problem))
                    if progress is not None:
                        progress(count)
        group.agree(trouble.error, f"verifying {self.path}")
        everyone = group.allgather(json.dumps(mine).encode())
        return [Problem(*each) for found in everyone for each in json.loads(found)]

    def _check(self, which: tuple[ArrayEntry, int]) -> tuple[str | None, int]:
        try:
            return None, len(self._reader.piece(*which))
        except Damaged as error:
            said = str(error)
        lo, hi = which[0].cut.span(which[1])
        return said, (hi - lo) * which[0].dtype.itemsize

    def _entry(self, name: str) -> ArrayEntry:
        if name not in self._entries:
            raise Mismatch(f"{self.path} holds no array {name!r}; it holds {_names(self._entries)}")
        return self._entries[name]


def open(path: str | os.PathLike[str]) -> CheckpointFile:
    """Open a checkpoint for reading, without MPI. See `CheckpointFile`."""
    return CheckpointFile(path)


def open_together(path: str | os.PathLike[str], group: Group) -> CheckpointFile:
    """Open a checkpoint on the ranks of a group. Collective.

    Raises
    ------
    CheckpointError
        As `CheckpointFile`, and where the file can't be read; the same on every rank.
    """
    trouble = Trouble()
    file: CheckpointFile | None = None
    with trouble:
        file = CheckpointFile(path)
    try:
        group.agree(trouble.error, f"opening {path}")
    except CheckpointError:
        if file is not None:
            file.close()
        raise
    assert file is not None
    return file


def _names(found: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, found)) or "none"
