"""Opening a checkpoint so that nobody writes over it meanwhile, and reading it through that one descriptor."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import StorageError

_TRIES = 20
_PAUSE = 0.01


def open_locked(path: Path) -> int:
    """Open a file for reading and lock it, which keeps a running program from writing its next checkpoint over it.

    What is locked is under the name: a writer takes a file away under its own lock, before it writes over it.

    Raises
    ------
    OSError
        When it is not there, or the file system says no.
    StorageError
        When it is replaced each time that it is opened.
    """
    for attempt in range(_TRIES):
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            locked = _lock(file) or attempt == _TRIES - 1
            opened, named = os.fstat(file), os.stat(path)
            if locked and (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino):
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)
        time.sleep(_PAUSE)
    raise StorageError(f"{path} is replaced each time that it is opened: try again")


def _lock(file: int) -> bool:
    """Lock a file together with other readers; False when a writer has it. Where there are no locks, there is none."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


class Stream(io.RawIOBase):
    """An open file for HDF5, with a place of its own; closing it leaves the file open.

    Attributes
    ----------
    error
        What the file system has said; HDF5 is given zeros then.
    """

    def __init__(self, file: int) -> None:
        self._file, self._at = file, 0
        self.error: OSError | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: os.fstat(self._file).st_size}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, into: Any) -> int:
        try:
            count = os.preadv(self._file, [into], self._at)
        except OSError as error:
            # Another one, since this has the frames of those who called, and so objects of HDF5: such as are left when
            # MPI is finalised crash the program.
            self.error = OSError(error.errno, error.strerror)
            count = len(memoryview(into).cast("B"))
            into[:] = bytes(count)
        self._at += count
        return count

    def check(self, path: Path) -> None:
        """Raise what the file system has said."""
        if self.error is not None:
            self.error.filename = str(path)
            raise self.error


@contextlib.contextmanager
def lent(path: Path, file: int | None) -> Iterator[int]:
    """Yield a descriptor: that which is given, or one of its own."""
    if file is not None:
        yield file
        return
    own = open_locked(path)
    try:
        yield own
    finally:
        os.close(own)
