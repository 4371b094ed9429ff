"""Choose the engine: the Slurm allocation around this process, or this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from .engine import Engine, EngineError

CHOICES = ("auto", "slurm", "local", "held")


def find_engine(
    choice: str = "auto",
    *,
    local_nodes: int | None = None,
    tasks_per_node: int | None = None,
    mpi: str = "auto",
    relaunch: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Engine:
    """Return the engine to run in.

    Parameters
    ----------
    choice
        ``slurm``, ``local``, ``held`` (any part of a Slurm job's nodes, all of which it keeps), or ``auto``: Slurm
        inside an allocation (SLURM_JOB_ID is set), else this machine.
    local_nodes
        Nodes that this machine counts for, None for its cores.
    tasks_per_node
        Ranks a node, None for what the allocation says (1 locally).
    mpi
        How ranks are started, see `.mpi.find_flavour`.
    relaunch
        Command line that a successor runs where the job has no batch script (salloc); this process's own by default.
    environ
        Environment, this process's own by default.

    Raises
    ------
    EngineError
        When the choice is unknown or can't be had here.
    """
    environ = os.environ if environ is None else environ
    if choice not in CHOICES:
        raise EngineError(f"unknown engine {choice!r}: choose one of {', '.join(CHOICES)}")
    if choice == "held":
        from ..slurm.within import HeldEngine

        return HeldEngine(environ, mpi=mpi, tasks_per_node=tasks_per_node, relaunch=relaunch)
    if choice == "slurm" or (choice == "auto" and "SLURM_JOB_ID" in environ):
        from ..slurm.engine import SlurmEngine

        return SlurmEngine(environ, mpi=mpi, tasks_per_node=tasks_per_node, relaunch=relaunch)
    from .local import LocalEngine

    return LocalEngine(local_nodes, tasks_per_node or 1, mpi, environ=environ)
