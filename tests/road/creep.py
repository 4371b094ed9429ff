"""A field whose every cell depends on its neighbours and on all steps before: any loss or repeat shows.

Usage: creep.py STEPS PACE OUT.npy; a step sleeps PACE seconds divided by the number of ranks.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from mpi4py import MPI

import dmr

SHAPE = (61, 7)


@dmr.malleable
def main(run: dmr.Run, steps: int, pace: float, out: str) -> None:
    field = run.array("field", SHAPE, "f8", dmr.Block(axis=0), halo=1)
    noise = run.rng("noise", seed=3)
    done = run.value("done", 0)
    if run.fresh:
        rows = np.arange(field.box.lo[0], field.box.hi[0], dtype="f8")[:, None]
        field.local[:] = np.sin(rows) + np.arange(SHAPE[1])
    before, behind = (
        MPI.PROC_NULL if rank is None else rank for rank in (field.neighbour(0, -1), field.neighbour(0, 1))
    )
    padded: np.ndarray[Any, Any] = field.padded
    for step in run.steps(steps):
        run.comm.Sendrecv(padded[1:2].copy(), before, recvbuf=padded[-1:], source=behind)
        run.comm.Sendrecv(padded[-2:-1].copy(), behind, recvbuf=padded[:1], source=before)
        kick = noise.random()
        field.local[:] += 0.2 * (padded[:-2] + padded[2:] - 2 * field.local) + kick / (step + 1)
        done.value += 1
        time.sleep(pace / run.ranks)
    whole = field.gather(run.comm)
    if whole is not None:
        np.save(out, np.append(whole.ravel(), done.value))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
