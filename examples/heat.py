"""Heat in a rod with cold ends: a first malleable program.

dmr-launch --nodes 1:4 --local-nodes 4 --start 2 -- python examples/heat.py 1000000
"""

import sys

import dmr
import numpy as np
from mpi4py import MPI


@dmr.malleable
def main(run, steps):
    u = run.array("u", shape=10_000, dtype="f8", layout=dmr.Block(axis=0), halo=1)
    if run.fresh:
        u.local[:] = np.sin(0.01 * np.arange(u.box.lo[0], u.box.hi[0])) ** 2

    left, right = (MPI.PROC_NULL if rank is None else rank for rank in (u.neighbour(0, -1), u.neighbour(0, +1)))
    for _ in run.steps(steps):
        run.comm.Sendrecv(u.padded[1:2], left, recvbuf=u.padded[-1:], source=right)
        run.comm.Sendrecv(u.padded[-2:-1], right, recvbuf=u.padded[:1], source=left)
        u.local += 0.25 * (u.padded[:-2] - 2 * u.padded[1:-1] + u.padded[2:])

    whole = u.gather(run.comm)
    if whole is not None:
        print(f"warmest: {whole.max():.12f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 20_000)
