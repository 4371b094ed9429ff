"""Whether this process is one of several ranks, and the group of them."""

from __future__ import annotations

import os

from ..errors import Unsupported
from .group import Group

_COUNTS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE", "SLURM_STEP_NUM_TASKS", "MPI_LOCALNRANKS")


def started() -> str | None:
    """Return the setting that says that several ranks were started, as ``NAME=COUNT``; None for one process."""
    for name in _COUNTS:
        if os.environ.get(name, "1") not in ("", "0", "1"):
            return f"{name}={os.environ[name]}"
    return None


def group_of_all() -> Group:
    """Return the group of all ranks that were started together; of this process alone where it is the only one.

    Collective. MPI is not imported by a single process.

    Raises
    ------
    Unsupported
        When several ranks were started and mpi4py can't be imported, or has the MPI of another launcher: each would
        take itself for the only one.
    """
    setting = started()
    if setting is None:
        return Group()
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise Unsupported(
            f"{setting}, but mpi4py can't be imported ({error}): install mpi4py into this Python, or start one process"
        ) from None
    if MPI.COMM_WORLD.size == 1:
        raise Unsupported(
            f"{setting}, but mpi4py's MPI finds one rank: start the ranks by the mpirun of that MPI, or by srun with "
            f"the --mpi that it needs; or one process, without {setting.partition('=')[0]} in the environment"
        )
    return Group(MPI.COMM_WORLD)
