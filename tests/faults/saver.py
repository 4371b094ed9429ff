"""A job that saves without end. Arguments: folder, log, file for the ranks' pids, and maybe a fast folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import common
from mpi4py import MPI

from dmr.ckpt import Store

comm = MPI.COMM_WORLD
common.small_pieces()
folder, log = Path(sys.argv[1]), Path(sys.argv[2])
pids = comm.allgather(os.getpid())
first = common.reported(log) + 1
first = comm.bcast(first)
with Store(folder, comm, deadline=5, fast_dir=sys.argv[4] if len(sys.argv) > 4 else None) as store:
    if comm.rank == 0:
        ready = Path(sys.argv[3])
        ready.with_suffix(".new").write_text(" ".join(map(str, pids)))
        ready.with_suffix(".new").rename(ready)
    for step in range(first, first + 100_000):
        store.save(step, common.state(step, comm.size, comm.rank))
        if comm.rank == 0:
            common.report(log, step)
