"""Memory that the ranks of one node have in common, so that what they exchange is copied once."""

from __future__ import annotations

import mmap
import os
import secrets
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..comm.group import Group

Bytes = npt.NDArray[np.uint8]
FOLDER = Path("/dev/shm")
_TOKEN = 16
_SHARE = 4
"""At most one part in so many of what is free is taken."""
SEEN = 256 << 20
"""How much a rank sees at most, in bytes: some systems count it as memory of each rank that sees it."""


class Shared:
    """Memory of each rank of this node that all of them see; of this rank alone where there is none to be had.

    One rank of the node makes a file in memory for all, which has no name any more when this returns: it ends with the
    last process that has it open, however that ends.

    Parameters
    ----------
    size
        Bytes for each rank; the same on every rank. Collective.

    Attributes
    ----------
    of
        The memory of each rank that is seen, this one included.
    anywhere, everywhere
        Whether some rank sees another's, and whether all see those of all; the same on every rank.
    """

    def __init__(self, group: Group, size: int) -> None:
        self.size = size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self.of: dict[int, Bytes] = {}
        if group.size > 1:
            self.of = _of_node(group, size)
        if not self.of:
            self.of = {group.rank: np.frombuffer(mmap.mmap(-1, max(size, 1)), np.uint8)}
        alone, all_seen = len(self.of) == 1, len(self.of) == group.size
        least = group.minimum(np.array([alone, all_seen], np.int64))
        self.anywhere, self.everywhere = not least[0], bool(least[1])


_kept: weakref.WeakKeyDictionary[Group, Shared] = weakref.WeakKeyDictionary()


def shared(group: Group, size: int) -> Shared:
    """Return memory of at least ``size`` bytes a rank; it is kept for the next time while the group lives. Collective.

    Parameters
    ----------
    size
        The same on every rank.
    """
    found = _kept.get(group)
    if found is None or found.size < size:
        _kept.pop(group, None)
        del found
        found = _kept[group] = Shared(group, size)
    return found


def _of_node(group: Group, size: int) -> dict[int, Bytes]:
    """Return the memory of each rank of this node, by rank; nothing when not all of them can have it. Collective."""
    from mpi4py import MPI

    node = _node(group.comm)
    try:
        together = max(1, SEEN // size)
        if node.size > together:
            everybody, node = node, node.Split(node.rank // together)
            everybody.Free()
        ranks = np.empty(node.size, np.int64)
        node.Allgather(np.array([group.rank], np.int64), ranks)
        if node.size == 1:
            return {}
        token = np.zeros(_TOKEN, np.uint8)
        file: int | None = None
        if node.rank == 0:
            file = _make(token, size * node.size)
        node.Bcast(token, 0)
        path = _path(token)
        whole: Bytes | None = None
        try:
            if node.rank and token.any():
                file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            if file is not None and os.fstat(file).st_size == size * node.size:
                whole = np.frombuffer(mmap.mmap(file, size * node.size), np.uint8)
        except (OSError, ValueError):
            whole = None
        finally:
            if file is not None:
                os.close(file)
        agreed = np.zeros(1, np.int64)
        node.Allreduce(np.array([whole is not None], np.int64), agreed, MPI.MIN)
        if node.rank == 0 and token.any():
            path.unlink(missing_ok=True)
        if whole is None or not agreed[0]:
            return {}
        return {rank: whole[place * size : (place + 1) * size] for place, rank in enumerate(ranks.tolist())}
    finally:
        node.Free()


def _node(comm: Any) -> Any:
    """Return a communicator of the ranks of this node. Collective."""
    from mpi4py import MPI

    return comm.Split_type(MPI.COMM_TYPE_SHARED)


def _make(token: npt.NDArray[Any], size: int) -> int | None:
    """Make the file that ``token`` is set to name, with all its memory, so that no use of it can fail later on."""
    name = np.frombuffer(secrets.token_bytes(_TOKEN), np.uint8)
    file: int | None = None
    try:
        free = os.statvfs(FOLDER)
        if size > free.f_bavail * free.f_frsize // _SHARE:
            return None
        file = os.open(_path(name), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.posix_fallocate(file, 0, size)
    except OSError:
        if file is not None:
            os.close(file)
            _path(name).unlink(missing_ok=True)
        return None
    token[:] = name
    return file


def _path(token: npt.NDArray[Any]) -> Path:
    return FOLDER / f"dmr-{token.tobytes().hex()}"
