"""The driver ``mpio``: parallel HDF5 through h5py's low-level interface.

Transfers are independent, since pieces are large and in the file's order already: nothing is left for collective
buffering to gather, and no rank can keep the others waiting. Opening and closing are collective.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..comm.group import Group
from ..state import dtypes
from ..transfer.plan import window
from .direct import DirectInput, DirectRead
from .manifest import Manifest, digest

Bytes = npt.NDArray[np.uint8]
_TRANSFER = 512 << 20


def _nothing() -> None:
    """What is left to wait for."""


class _Done:
    def __init__(self, data: Bytes) -> None:
        self._data = data

    def result(self) -> int:
        return digest(self._data)


class MpioFile:
    """A file that all ranks have open; both an `Output` and an `Input`."""

    bounces = False

    def __init__(self, path: Path, manifest: Manifest, group: Group, *, write: bool) -> None:
        import h5py

        self.read_bytes = 0
        self._path, self._manifest = path, manifest
        self._plain: DirectInput | None = None
        self._open: dict[int, tuple[Any, Any, tuple[int, ...]]] = {}
        comm = group.comm
        if comm is None:
            from mpi4py import MPI

            comm = MPI.COMM_SELF
        self._file = h5py.File(path, "r+" if write else "r", driver="mpio", comm=comm)

    def take(self, size: int) -> Bytes:
        return np.empty(size, np.uint8)

    def write(self, array: int, begin: int, data: Bytes) -> None:
        for dataset, kind, memory, place, part in self._transfers(array, begin, data):
            dataset.write(memory, place, part, mtype=kind)

    def settle(self) -> None:
        """Nothing is under way after `write`."""

    def write_later(self, array: int, begin: int, data: Bytes) -> Callable[[], None]:
        self.write(array, begin, data)
        return _nothing

    def start(self, array: int, begin: int, into: Bytes) -> _Done:
        for dataset, kind, memory, place, part in self._transfers(array, begin, into):
            dataset.read(memory, place, part, mtype=kind)
        self.read_bytes += len(into)
        return _Done(into)

    def start_at(self, offset: int, into: Bytes) -> DirectRead:
        # Compressed pieces: HDF5 would have all ranks read and decompress them together.
        if self._plain is None:
            self._plain = DirectInput(self._path, ())
        self.read_bytes += len(into)
        return self._plain.start_at(offset, into)

    def _transfers(self, array: int, begin: int, data: Bytes) -> Any:
        import h5py

        entry = self._manifest.arrays[array]
        if array not in self._open:
            dataset = self._file["arrays"][entry.dataset].id
            _, more = dtypes.storage(entry.dtype)
            self._open[array] = dataset, dataset.get_type(), entry.shape + more
        dataset, kind, shape = self._open[array]
        unit = kind.get_size()
        # HDF5 1.10 loses what is beyond 2 GiB of one transfer.
        for start in range(0, len(data), max(_TRANSFER // unit, 1) * unit):
            part = data[start : start + max(_TRANSFER // unit, 1) * unit]
            lo = (begin + start) // unit
            place = dataset.get_space()
            if shape:
                place.select_none()
                for box in window(shape, lo, lo + len(part) // unit):
                    place.select_hyperslab(box.lo, box.shape, op=h5py.h5s.SELECT_OR)
            yield dataset, kind, h5py.h5s.create_simple((len(part) // unit,)), place, part.view(f"V{unit}")

    def finish(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._open.clear()
        try:
            if self._plain is not None:
                self._plain.close()
        finally:
            # Collective: the others are there whatever went wrong here.
            self._file.close()
