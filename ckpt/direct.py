"""The driver ``direct``: every rank writes and reads at its own offsets, with the system's calls.

The file has been laid out by HDF5 with contiguous datasets, so that plain writes at the datasets' places make it
complete. Large transfers go around the page cache where the file system lets them (``O_DIRECT``): that keeps ranks
from waiting for each other on the file's lock, and needs aligned memory, file offsets and lengths.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

from .plan import BLOCK, PIECE

Bytes = npt.NDArray[np.uint8]

_IN_FLIGHT = 24 << 20
_STEP = 512 << 10
_SMALL = 256 << 10
_IN_MEMORY = ("tmpfs", "ramfs", "hugetlbfs")


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
    if not hasattr(os, "O_DIRECT") or file_system(path) in _IN_MEMORY:
        return None
    try:
        return os.open(path, flags | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            return None
        raise


class Pool:
    """Memory for pieces, aligned for ``O_DIRECT``, used again and again; bounded while writes are under way."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._free: list[Bytes] = []
        self._busy: dict[int, Bytes] = {}
        self._used = 0
        self._writing = 0

    def take(self, size: int) -> Bytes:
        """Return memory of ``size`` bytes; waits for writes under way when much is in use."""
        if size < _SMALL:
            return np.empty(size, np.uint8)
        whole = max(PIECE, -(-size // BLOCK) * BLOCK)
        with self._change:
            while self._used + whole > _IN_FLIGHT and self._writing:
                self._change.wait()
            self._used += whole
            place = next((index for index, each in enumerate(self._free) if len(each) == whole), None)
            memory = None if place is None else self._free.pop(place)
        if memory is None:
            memory = np.frombuffer(mmap.mmap(-1, whole), np.uint8)
        with self._change:
            self._busy[memory.ctypes.data] = memory
        return memory[:size]

    def owns(self, data: Bytes) -> bool:
        return data.ctypes.data in self._busy

    def lend(self) -> None:
        """Note that memory is with a write under way."""
        with self._change:
            self._writing += 1

    def give_back(self, data: Bytes, *, lent: bool = False) -> None:
        with self._change:
            memory = self._busy.pop(data.ctypes.data)
            self._used -= len(memory)
            self._writing -= lent
            if len(memory) == PIECE:
                self._free.append(memory)
            self._change.notify_all()


class DirectOutput:
    """Writes pieces; those that come from an exchange in a thread of their own, while the next are exchanged."""

    def __init__(self, path: Path, offsets: Sequence[int]) -> None:
        self._path, self._offsets = path, offsets
        self._file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        self._unbuffered: int | None = None
        try:
            self._unbuffered = open_unbuffered(path, os.O_WRONLY)
        except OSError:
            os.close(self._file)
            raise
        self.bounces = self._unbuffered is not None
        self._pool = Pool()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="dmr.ckpt write")
        self._writes: list[Future[None]] = []

    def take(self, size: int) -> Bytes:
        return self._pool.take(size)

    def write(self, array: int, begin: int, data: Bytes, *, later: bool = False) -> None:
        offset = self._offsets[array] + begin
        if not self._pool.owns(data):
            self._put(offset, data)
            return
        if not later:
            self._put(offset, data)
            self._pool.give_back(data)
            return
        self._pool.lend()
        self._writes.append(self._thread.submit(self._put_and_give_back, offset, data))
        if len(self._writes) > 64:
            self._collect()

    def _collect(self) -> None:
        done = [each for each in self._writes if each.done()]
        self._writes = [each for each in self._writes if not each.done()]
        for each in done:
            each.result()

    def _put_and_give_back(self, offset: int, data: Bytes) -> None:
        try:
            self._put(offset, data)
        finally:
            self._pool.give_back(data, lent=True)

    def _put(self, offset: int, data: Bytes) -> None:
        whole = 0
        if self._unbuffered is not None and offset % BLOCK == 0 and data.ctypes.data % BLOCK == 0:
            whole = len(data) // BLOCK * BLOCK
            whole = self._write_all(self._unbuffered, offset, data[:whole]) if whole >= _SMALL else 0
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
        for each in self._writes:
            each.result()
        self._writes = []
        os.fsync(self._file)

    def close(self) -> None:
        self._thread.shutdown()
        for file in (self._file, self._unbuffered):
            if file is not None:
                os.close(file)


class DirectInput:
    """Reads pieces; of those that are begun, the kernel is told to fetch them meanwhile."""

    def __init__(self, path: Path, offsets: Sequence[int]) -> None:
        self._path, self._offsets = path, offsets
        self.read_bytes = 0
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        # Keeps a running program from writing its next checkpoint over this one meanwhile.
        with contextlib.suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def start(self, array: int, begin: int, into: Bytes) -> DirectRead:
        self.read_bytes += len(into)
        offset = self._offsets[array] + begin
        with contextlib.suppress(OSError):
            os.posix_fadvise(self._file, offset, len(into), os.POSIX_FADV_WILLNEED)
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
