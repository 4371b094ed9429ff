"""How many threads of a rank are of use: none that would run on the cores of another rank."""

from __future__ import annotations

import os

import numpy as np

from .group import Group

MOST = 8
"""More threads than this don't make reading faster, and each holds a piece."""


def threads_of(group: Group) -> int:
    """Return how many threads of this rank are of use, at least 1: its share of its cores. Collective.

    The cores that it may run on are shared by the ranks of its node that may run on one of them.
    """
    mine = os.sched_getaffinity(0)
    return max(1, min(len(mine) // _sharers(group, mine), MOST))


def _sharers(group: Group, mine: set[int]) -> int:
    """Return how many ranks of this node, this one included, may run on one of these cores. Collective."""
    if group.size == 1:
        return 1
    from mpi4py import MPI

    node = group.comm.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        extent = np.zeros(1, np.int64)
        node.Allreduce(np.array([max(mine) + 1], np.int64), extent, MPI.MAX)
        mask = np.zeros(int(extent[0]), np.uint8)
        mask[list(mine)] = 1
        masks = np.empty((node.size, len(mask)), np.uint8)
        node.Allgather(mask, masks)
    finally:
        node.Free()
    return int((masks & mask).any(axis=1).sum())
