"""The communicator that a program runs on: MPI's world, or one process without MPI."""

from __future__ import annotations

import os
from typing import Any

from .ckpt.comm.ranks import started
from .errors import Error


class SingleProcess:
    """The few collective calls that dmr makes, for one process without MPI."""

    rank = 0
    size = 1

    def Get_rank(self) -> int:
        return 0

    def Get_size(self) -> int:
        return 1

    def Dup(self) -> SingleProcess:
        return self

    def Free(self) -> None:
        return None

    def Barrier(self) -> None:
        return None

    def Abort(self, status: int = 1) -> None:
        os._exit(status)

    def bcast(self, value: Any, root: int = 0) -> Any:
        return value

    def gather(self, value: Any, root: int = 0) -> list[Any]:
        return [value]

    def allgather(self, value: Any) -> list[Any]:
        return [value]


def world() -> Any:
    """Return ``MPI.COMM_WORLD``, or a `SingleProcess` where mpi4py is not installed.

    Raises
    ------
    Error
        When several ranks were started and mpi4py can't be imported: each would take itself for the only one.
    """
    try:
        from mpi4py import MPI
    except ImportError as error:
        if setting := started():
            raise Error(
                f"{setting}, but mpi4py can't be imported ({error}): "
                "install mpi4py into the python that runs the program"
            ) from None
        return SingleProcess()
    return MPI.COMM_WORLD
