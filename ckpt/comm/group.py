"""The ranks that save and load together: the few collective operations that are needed, and agreement on errors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import KINDS, CheckpointError, StorageError

Bytes = npt.NDArray[np.uint8]
_TAG = 77


class Group:
    """A communicator of its own, or one process without MPI.

    Parameters
    ----------
    comm
        mpi4py communicator, duplicated here (a plain one, since a Cartesian one is not safe everywhere); None for
        one process. Collective.
    """

    def __init__(self, comm: Any = None) -> None:
        self.comm: Any = None
        if comm is not None:
            from mpi4py import MPI

            group = comm.Get_group()
            try:
                self.comm = comm.Dup() if comm.Get_topology() == MPI.UNDEFINED else comm.Create(group)
            finally:
                group.Free()
        self.rank: int = 0 if comm is None else comm.rank
        self.size: int = 1 if comm is None else comm.size
        self._here: int | None = None

    def duplicate(self) -> Group:
        """Return a group of the same ranks with a communicator of its own. Collective."""
        return Group(self.comm)

    def free(self) -> None:
        """Free the communicator. Collective."""
        if self.comm is not None:
            self.comm.Free()
            self.comm = None

    def ranks_here(self) -> int:
        """Return how many of the ranks are on this rank's node. Collective."""
        if self._here is None and self.size > 1:
            from mpi4py import MPI

            node = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
            try:
                self._here = int(node.Get_size())
            finally:
                node.Free()
        return self._here or 1

    def on_one_node(self) -> bool:
        """Whether all ranks are on the same node. Collective."""
        alone = self.ranks_here() == self.size
        return bool(self.minimum(np.array([alone], np.int64))[0])

    def share(self, count: int) -> range:
        """Return this rank's even share of ``count`` things in a row. Not collective."""
        return range(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def barrier(self) -> None:
        if self.size > 1:
            self.comm.Barrier()

    def bcast(self, data: bytes | None, root: int = 0) -> bytes:
        """Return the root's bytes on every rank. Collective."""
        if self.size == 1:
            assert data is not None
            return data
        count = np.array([len(data) if data is not None and self.rank == root else 0], np.int64)
        self.comm.Bcast(count, root)
        found = np.frombuffer(bytearray(data or b""), np.uint8) if self.rank == root else np.empty(count[0], np.uint8)
        self.bcast_into(found, root)
        return found.tobytes()

    def bcast_into(self, array: Bytes, root: int) -> None:
        """Send the root's bytes into the array of every rank. Collective."""
        if self.size > 1:
            for begin in range(0, len(array), 1 << 30):
                self.comm.Bcast(array[begin : begin + (1 << 30)], root)

    def gather(self, data: bytes) -> list[bytes] | None:
        """Return the bytes of all ranks on rank 0, None elsewhere. Collective."""
        if self.size == 1:
            return [data]
        counts = np.empty(self.size, np.int64) if self.rank == 0 else None
        self.comm.Gather(np.array([len(data)], np.int64), counts, 0)
        mine = np.frombuffer(data, np.uint8)
        if self.rank or counts is None:
            if len(data):
                self.comm.Send(mine, 0, _TAG)
            return None
        found = [data]
        for rank in range(1, self.size):
            part = np.empty(counts[rank], np.uint8)
            if len(part):
                self.comm.Recv(part, rank, _TAG)
            found.append(part.tobytes())
        return found

    def allgather(self, data: bytes) -> list[bytes]:
        """Return the bytes of all ranks on every rank. Collective."""
        gathered = self.gather(data)
        text = None if gathered is None else json.dumps([each.hex() for each in gathered]).encode()
        return [bytes.fromhex(each) for each in json.loads(self.bcast(text))]

    def minimum(self, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the least of each number over all ranks. Collective."""
        if self.size == 1:
            return numbers
        from mpi4py import MPI

        found = np.empty_like(numbers)
        self.comm.Allreduce(numbers, found, MPI.MIN)
        return found

    def counts(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Send number ``i`` to rank ``i``; return what came from each rank. Collective."""
        if self.size == 1:
            return numbers
        found = np.empty_like(numbers)
        self.comm.Alltoall(numbers, found)
        return found

    def exchange(self, outgoing: dict[int, Bytes], incoming: dict[int, Bytes]) -> None:
        """Send to and receive from other ranks; the buffers are of matching sizes. Returns when all is done."""
        if not outgoing and not incoming:
            return
        requests = [
            self.comm.Irecv(part[begin : begin + (1 << 30)], rank, _TAG)
            for rank, part in incoming.items()
            for begin in range(0, len(part), 1 << 30)
        ]
        requests += [
            self.comm.Isend(part[begin : begin + (1 << 30)], rank, _TAG)
            for rank, part in outgoing.items()
            for begin in range(0, len(part), 1 << 30)
        ]
        type(requests[0]).Waitall(requests) if requests else None

    # -- agreement

    def agree(self, error: BaseException | None, doing: str, number: float = 0.0) -> float:
        """Raise on every rank when any of them comes with an error. Collective.

        The lowest rank's error is raised, with its kind, text and number; on the rank itself the error is its
        cause.

        Parameters
        ----------
        error
            What went wrong on this rank.
        doing
            What was being done, for errors that are not `CheckpointError`.
        number
            The greatest of all ranks is returned.
        """
        if self.size == 1:
            if error is not None:
                raise _as_checkpoint_error(error, doing) from _cause(error)
            return number
        least = self.minimum(np.array([self.rank if error is not None else self.size, -number], np.float64))
        first = int(least[0])
        if first == self.size:
            return -float(least[1])
        mine = None if error is None else _as_checkpoint_error(error, doing)
        text = json.dumps([type(mine).__name__, str(mine), mine.rank]).encode() if mine is not None else b""
        kind, said, rank = json.loads(self.bcast(text, first))
        if rank is None and not said.startswith("rank "):
            said = f"rank {first}: {said}"
        raised = KINDS.get(kind, CheckpointError)(said)
        raised.rank = first if rank is None else rank
        raise raised from (_cause(error) if error is not None else None)

    def agree_on_root(self, error: BaseException | None, doing: str) -> None:
        """As `agree`, for work that rank 0 alone has done. Collective."""
        text = b""
        if self.rank == 0 and error is not None:
            mine = _as_checkpoint_error(error, doing)
            text = json.dumps([type(mine).__name__, str(mine)]).encode()
        text = self.bcast(text)
        if text:
            kind, said = json.loads(text)
            raised = KINDS.get(kind, CheckpointError)(said)
            raised.rank = 0
            raise raised from (_cause(error) if error is not None else None)


def _as_checkpoint_error(error: BaseException, doing: str) -> CheckpointError:
    if isinstance(error, CheckpointError):
        return error
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        return StorageError(f"{doing}: {error.strerror or error}{where}")
    if isinstance(error, MemoryError):
        return CheckpointError(f"{doing}: out of memory ({error})")
    return CheckpointError(f"{doing}: {type(error).__name__}: {error}")


def _cause(error: BaseException) -> BaseException | None:
    return error.__cause__ if isinstance(error, CheckpointError) else error


def same_everywhere(group: Group, numbers: Sequence[int]) -> list[bool]:
    """Return for each 64-bit number whether all ranks have the same. Collective."""
    mine = np.array(numbers, np.uint64)
    both = group.minimum(np.concatenate([mine, ~mine]))
    half = len(mine)
    return [bool(each) for each in both[:half] == ~both[half:]]
