"""How long this rank waits for others: in safe points, and in the collective calls of ``run.comm``. Off by default.

The seconds are kept in a file of eight bytes in memory, one a process, that the sampler of the node reads: nothing is
sent for it.
"""

from __future__ import annotations

import atexit
import contextlib
import mmap
import os
import stat
import struct
import time
from typing import Any

from .launcher.run.rundir import Generation, waits_folder

ENV_TIME_COMM = "DMR_TIME_COMM"
COLLECTIVES = (
    "Barrier", "Bcast", "Gather", "Gatherv", "Scatter", "Scatterv", "Allgather", "Allgatherv", "Alltoall", "Alltoallv",
    "Alltoallw", "Reduce", "Allreduce", "Reduce_scatter", "Reduce_scatter_block", "Scan", "Exscan",
    "barrier", "bcast", "gather", "scatter", "allgather", "alltoall", "reduce", "allreduce", "scan", "exscan",
)  # fmt: skip


class Waiting:
    """Adds up the seconds in which this rank waited; use it as a context.

    Raises
    ------
    OSError
        When the file can't be made, or its folder is somebody else's.
    """

    def __init__(self, token: str) -> None:
        folder = waits_folder(token)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise OSError(f"{folder} is not this user's folder")
        self._path = folder / str(os.getpid())
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            os.ftruncate(handle, 8)
            self._memory = mmap.mmap(handle, 8)
        finally:
            os.close(handle)
        self.seconds = 0.0
        self._depth = 0
        self._since = 0.0
        atexit.register(self._remove)

    def __enter__(self) -> None:
        if self._depth == 0:
            self._since = time.monotonic()
        self._depth += 1

    def __exit__(self, *exc: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.monotonic() - self._since
            struct.pack_into("<d", self._memory, 0, self.seconds)

    def _remove(self) -> None:
        # The sampler of the node reads once more when the ranks have gone, if it is there; it takes away what is left.
        with contextlib.suppress(OSError):
            self._path.unlink()
            self._path.parent.rmdir()


def waiting(generation: Generation | None) -> Waiting | None:
    """Return this process's counter, None where waiting is not to be measured or can't be."""
    if generation is None or os.environ.get(ENV_TIME_COMM, "") in ("", "0"):
        return None
    try:
        return Waiting(generation.token)
    except OSError:
        return None


def timed(comm: Any, counter: Waiting) -> Any:
    """Return a communicator of the same group and context that counts the time in its collective calls.

    It is an ``MPI.Intracomm`` like any other, so that it can be handed on to libraries.
    """
    from mpi4py import MPI

    def counted(name: str) -> Any:
        inner = getattr(MPI.Intracomm, name)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            with counter:
                return inner(self, *args, **kwargs)

        call.__name__, call.__doc__ = name, inner.__doc__
        return call

    methods = {name: counted(name) for name in COLLECTIVES if hasattr(MPI.Intracomm, name)}
    kind = type("TimedComm", (MPI.Intracomm,), methods)
    return kind(comm)
