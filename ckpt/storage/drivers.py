"""How bytes get into and out of the file: the two roads behind one Protocol."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from ..comm.group import Group
from ..errors import Unsupported
from .manifest import Manifest

Bytes = npt.NDArray[np.uint8]
DriverName = Literal["auto", "mpio", "direct"]


class Output(Protocol):
    """Writes pieces of a file that is laid out already. One rank's end of it."""

    bounces: bool
    """Whether pieces have to be put together in memory from `take`, rather than written from where they are."""

    def take(self, size: int) -> Bytes:
        """Return memory to put a piece together in; given back by `write`."""

    def write(self, array: int, begin: int, data: Bytes) -> None:
        """Write bytes of an array, from its byte ``begin`` on.

        Memory from `take` may still be under way when this returns, and is given back when it was written.
        """

    def settle(self) -> None:
        """Wait for what `write` has under way; raises what went wrong with it."""

    def write_later(self, array: int, begin: int, data: Bytes) -> Callable[[], None]:
        """As `write`, in the background where that can be; the call that is returned waits for it.

        ``data`` is not to be changed until then.
        """

    def finish(self) -> None:
        """Make all that was written durable."""

    def close(self) -> None:
        """Close the file; after an error too. Collective with mpio."""


class Input(Protocol):
    """Reads pieces. One rank's end of it."""

    read_bytes: int
    """How many bytes were read so far."""

    def start(self, array: int, begin: int, into: Bytes) -> Pending:
        """Begin to read bytes of an array that is not compressed."""

    def start_at(self, offset: int, into: Bytes) -> Pending:
        """Begin to read bytes of the file."""

    def close(self) -> None:
        """Close the file; after an error too. Collective with mpio."""


class Pending(Protocol):
    """A read under way."""

    def result(self) -> int:
        """Wait for it; return the digest of what was read. Raises what went wrong."""


def choose(driver: str) -> Literal["mpio", "direct"]:
    """Return the driver to use.

    ``auto`` is ``direct``: it needs no parallel HDF5, no rank can keep the others in a collective call, and it is the
    faster one.

    Raises
    ------
    Unsupported
        When there is no such driver, or h5py has no MPI for ``mpio``.
    """
    if driver in ("auto", "direct"):
        return "direct"
    if driver != "mpio":
        raise Unsupported(f"there is no driver {driver!r}: use 'auto', 'direct' or 'mpio'")
    import h5py

    if not h5py.get_config().mpi:
        raise Unsupported(
            "the driver 'mpio' needs an h5py that is built with MPI, and this one is not: use the driver 'direct', "
            "which writes the same file in parallel with any h5py; or install a parallel h5py (on Debian "
            "python3-h5py-mpi, with H5PY_ALWAYS_USE_MPI=1 in the environment)"
        )
    return "mpio"


def open_output(
    driver: Literal["mpio", "direct"], path: Path, manifest: Manifest, group: Group, *, unbuffered: bool
) -> Output:
    """Open a laid-out file for writing. Collective with mpio.

    Parameters
    ----------
    unbuffered
        Whether ``direct`` goes around the page cache, where the file system lets it; of no effect with mpio.
    """
    if driver == "mpio":
        from .mpio import MpioFile

        return MpioFile(path, manifest, group, write=True)
    from .direct import DirectOutput

    return DirectOutput(path, [each.offset for each in manifest.arrays], unbuffered=unbuffered)


def open_input(driver: Literal["mpio", "direct"], path: Path, manifest: Manifest, group: Group) -> Input:
    """Open a file for reading. Collective with mpio."""
    if driver == "mpio":
        from .mpio import MpioFile

        return MpioFile(path, manifest, group, write=False)
    from .direct import DirectInput

    return DirectInput(path, [each.offset for each in manifest.arrays])
