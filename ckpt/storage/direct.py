"""The driver ``direct``: every rank writes and reads at its own offsets, with the system's calls.

The file has been laid out by HDF5 with contiguous datasets, so that plain writes at the datasets' places make it
complete. Large transfers may go around the page cache (``O_DIRECT``), where the file system lets them and that is the
faster way (`pace`): it needs aligned memory, file offsets and lengths.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

from ..comm.threads import Pool as Threads
from ..transfer.plan import BLOCK, PIECE, SMALL
from .opening import open_locked

Bytes = npt.NDArray[np.uint8]

_STEP = 512 << 10
_UNDER_WAY = 2
IN_MEMORY = ("tmpfs", "ramfs", "hugetlbfs")


def file_system(path: Path) -> str:
    """Return the kind of the file system of a file, empty when the kernel does not say."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo") as stream:
            for line in stream:
                fields = line.split()
                if fields[2] == wanted:
                    return fields[fields.index("-") + 1]
    except (OSError, ValueError, IndexError):
        pass
    return ""


def open_unbuffered(path: Path, flags: int) -> int | None:
    """Open a file with ``O_DIRECT``, None where that is not to be had or no gain."""
    if not hasattr(os, "O_DIRECT") or file_system(path) in IN_MEMORY:
        return None
    try:
        return os.open(path, flags | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            return None
        raise


class Pool:
    """Memory for pieces, aligned for ``O_DIRECT``, used again and again."""

    def __init__(self) -> None:
        self._free: list[Bytes] = []
        self._busy: dict[int, Bytes] = {}

    def take(self, size: int) -> Bytes:
        """Return memory of ``size`` bytes."""
        if size < SMALL:
            return np.empty(size, np.uint8)
        whole = max(PIECE, -(-size // BLOCK) * BLOCK)
        place = next((index for index, each in enumerate(self._free) if len(each) == whole), None)
        memory = np.frombuffer(mmap.mmap(-1, whole), np.uint8) if place is None else self._free.pop(place)
        self._busy[memory.ctypes.data] = memory
        return memory[:size]

    def has(self, data: Bytes) -> bool:
        """Return whether memory is from here, and not given back yet."""
        return data.ctypes.data in self._busy

    def give_back(self, data: Bytes) -> None:
        """Take memory back; nothing happens when it is not from here."""
        memory = self._busy.pop(data.ctypes.data, None)
        if memory is not None and len(memory) == PIECE:
            self._free.append(memory)


class DirectOutput:
    """Writes pieces; those that come from an exchange in a thread of their own, while the next are exchanged."""

    def __init__(self, path: Path, offsets: Sequence[int], *, unbuffered: bool) -> None:
        self._path, self._offsets = path, offsets
        self._file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        self._unbuffered: int | None = None
        try:
            if unbuffered:
                self._unbuffered = open_unbuffered(path, os.O_WRONLY)
        except OSError:
            os.close(self._file)
            raise
        self.bounces = self._unbuffered is not None
        self._pool = Pool()
        self._thread = Threads(1, "dmr.ckpt write")
        self._under_way: deque[tuple[Bytes, Future[None]]] = deque()

    def take(self, size: int) -> Bytes:
        return self._pool.take(size)

    def write(self, array: int, begin: int, data: Bytes) -> None:
        offset = self._offsets[array] + begin
        if self._pool.has(data):
            self._queue(offset, data)
        else:
            self._put(offset, data)

    def write_at(self, offset: int, data: Bytes) -> None:
        """Write bytes at an offset of the file; done when `settle` returns."""
        if not self.bounces or len(data) < SMALL:
            self._put(offset, data)
            return
        aligned = self.take(len(data))
        aligned[:] = data
        self._queue(offset, aligned)

    def _queue(self, offset: int, data: Bytes) -> None:
        # While the device takes this one, the next is copied and digested.
        while len(self._under_way) >= _UNDER_WAY:
            self._wait()
        self._under_way.append((data, self._thread.submit(self._put, offset, data)))

    def settle(self) -> None:
        while self._under_way:
            self._wait()

    def _wait(self) -> None:
        data, done = self._under_way.popleft()
        try:
            done.result()
        finally:
            self._pool.give_back(data)

    def write_later(self, array: int, begin: int, data: Bytes) -> Callable[[], None]:
        return self._thread.submit(self._put, self._offsets[array] + begin, data).result

    def _put(self, offset: int, data: Bytes) -> None:
        whole = 0
        if self._unbuffered is not None and offset % BLOCK == 0 and data.ctypes.data % BLOCK == 0:
            whole = len(data) // BLOCK * BLOCK
            whole = self._write_all(self._unbuffered, offset, data[:whole]) if whole >= SMALL else 0
        self._write_all(self._file, offset + whole, data[whole:])

    def _write_all(self, file: int, offset: int, data: Bytes) -> int:
        left = data.data
        while left:
            try:
                count = os.pwrite(file, left, offset)
            except OSError as error:
                if error.errno == errno.EINVAL and file == self._unbuffered:
                    return len(data) - len(left)
                error.filename = str(self._path)
                raise
            left, offset = left[count:], offset + count
        return len(data)

    def finish(self) -> None:
        os.fsync(self._file)

    def close(self) -> None:
        self._thread.close()
        for file in (self._file, self._unbuffered):
            if file is not None:
                os.close(file)


class DirectInput:
    """Reads pieces; of those that are begun, the kernel is told to fetch them meanwhile."""

    def __init__(self, path: Path, offsets: Sequence[int]) -> None:
        self._path, self._offsets = path, offsets
        self.read_bytes = 0
        self._next = -1
        self._file = open_locked(path)

    def start(self, array: int, begin: int, into: Bytes) -> DirectRead:
        return self.start_at(self._offsets[array] + begin, into)

    def start_at(self, offset: int, into: Bytes) -> DirectRead:
        self.read_bytes += len(into)
        if offset != self._next:
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._file, offset, len(into), os.POSIX_FADV_WILLNEED)
        self._next = offset + len(into)
        return DirectRead(self._file, self._path, offset, into)

    def close(self) -> None:
        os.close(self._file)


@dataclass(frozen=True, eq=False)
class DirectRead:
    """One piece under way; digested in steps, while it is in the processor's cache."""

    file: int
    path: Path
    offset: int
    into: Bytes

    def result(self) -> int:
        left, offset, hasher = self.into.data, self.offset, xxhash.xxh3_64()
        while left:
            try:
                count = os.preadv(self.file, [left[:_STEP]], offset)
            except OSError as error:
                error.filename = str(self.path)
                raise
            if not count:
                raise EOFError(f"{self.path} ends at {offset}")
            hasher.update(left[:count])
            left, offset = left[count:], offset + count
        return hasher.intdigest()
