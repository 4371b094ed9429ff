"""Compressing the pieces that this rank owns, and writing them when all ranks know where."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import numpy as np
import numpy.typing as npt

from ..comm.cores import threads_of
from ..comm.group import Group
from ..comm.threads import Pool
from ..comm.trouble import Trouble
from ..storage.chunks import Table, empty_table
from ..storage.direct import DirectOutput
from ..storage.manifest import Manifest, digest
from .gather import save_pieces
from .held import Held

Bytes = npt.NDArray[np.uint8]


class Packing:
    """Compressed pieces, held in memory until they have a place; an `.drivers.Output` for them.

    Parameters
    ----------
    manifest
        With the arrays that are compressed.
    threads
        How many compress; 1 for none but the caller's.
    """

    bounces = False

    def __init__(self, manifest: Manifest, threads: int) -> None:
        self._arrays = manifest.arrays
        self._threads = threads
        self._pool = Pool(threads, "dmr.ckpt compress") if threads > 1 else None
        self._waiting: deque[Future[None]] = deque()
        self._held: dict[int, tuple[Bytes, int]] = {}
        self._times: list[float] = []

    @property
    def seconds(self) -> float:
        """Seconds that were spent on compression."""
        return sum(self._times) / self._threads

    def take(self, size: int) -> Bytes:
        return np.empty(size, np.uint8)

    def write(self, array: int, begin: int, data: Bytes) -> None:
        if self._pool is None:
            self._pack(array, begin, data)
            return
        while len(self._waiting) >= 2 * self._threads:
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(self._pack, array, begin, data))

    def settle(self) -> None:
        while self._waiting:
            self._waiting.popleft().result()

    def write_later(self, array: int, begin: int, data: Bytes) -> Callable[[], None]:
        if self._pool is not None:
            return self._pool.submit(self._pack, array, begin, data).result
        self._pack(array, begin, data)
        return lambda: None

    def finish(self) -> None:
        """Nothing is durable yet."""

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def _pack(self, array: int, begin: int, data: Bytes) -> None:
        entry = self._arrays[array]
        assert entry.filter is not None
        began = time.perf_counter()
        packed = entry.filter.pack(data, entry.whole)
        piece = entry.filter.first + entry.cut.at(begin // entry.dtype.itemsize)
        self._held[piece] = packed
        self._times.append(time.perf_counter() - began)

    def table(self) -> Table:
        """Return the rows of the pieces that are held, in order, with the number of the piece as the offset."""
        rows = [[piece, len(data), mask, digest(data)] for piece, (data, mask) in sorted(self._held.items())]
        return np.array(rows, np.uint64) if rows else empty_table()

    def put(self, output: DirectOutput, offsets: npt.NDArray[np.int64]) -> None:
        """Write the pieces to their places in the file, and let go of them; done when this returns, but not durable.

        Parameters
        ----------
        offsets
            Of the compressed pieces of all ranks, by number.
        """
        for piece in sorted(self._held):
            output.write_at(int(offsets[piece]), self._held.pop(piece)[0])
        output.settle()


def pack(
    group: Group, held: Sequence[Held], manifest: Manifest, digests: npt.NDArray[np.uint64], doing: str
) -> tuple[Packing, npt.NDArray[np.int64], Table]:
    """Compress the arrays that are to be. Collective.

    Returns
    -------
    Packing
        This rank's pieces.
    ndarray
        Their numbers among all pieces of the file; ``digests`` are set.
    ndarray
        On rank 0 the table of all compressed pieces, without their offsets.
    """
    which = [array for array, entry in enumerate(manifest.arrays) if entry.filter is not None]
    packing = Packing(manifest, threads_of(group))
    trouble = Trouble()
    rows = empty_table()
    try:
        mine = save_pieces(group, which, [held[array] for array in which], packing, manifest, digests, trouble)
        with trouble:
            rows = packing.table()
        group.agree(trouble.error, doing)
    finally:
        packing.close()
    gathered = group.gather(rows.tobytes())
    table = empty_table(manifest.chunks)
    for each in gathered or ():
        found = np.frombuffer(each, np.uint64).reshape(-1, table.shape[1])
        table[found[:, 0].astype(np.int64), 1:] = found[:, 1:]
    return packing, mine, table
