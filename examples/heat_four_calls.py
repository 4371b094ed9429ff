"""The rod of heat.py by the four calls of BSC's DMR, for a program that keeps a loop of its own.

dmr-launch --nodes 1:4 -- python examples/heat_four_calls.py 1e-9
"""

import sys

import dmr
import numpy as np
from mpi4py import MPI


def main(tolerance):
    dmr.init()
    run = dmr.current()
    u = run.array("u", shape=1_000, dtype="f8", layout=dmr.Block(axis=0), halo=1)
    turns = run.value("turns", 0)
    if run.fresh:
        u.local[:] = np.sin(0.1 * np.arange(u.box.lo[0], u.box.hi[0])) ** 2

    left, right = (MPI.PROC_NULL if rank is None else rank for rank in (u.neighbour(0, -1), u.neighbour(0, +1)))
    change = np.inf
    while change > tolerance:
        if dmr.check(dmr.USE_POLICY) is dmr.Action.RECONFIGURE and dmr.reconfigure() is dmr.Action.REDIST_FINALIZE:
            dmr.finalize()  # ends this process; the next generation goes on from here
        run.comm.Sendrecv(u.padded[1:2], left, recvbuf=u.padded[-1:], source=right)
        run.comm.Sendrecv(u.padded[-2:-1], right, recvbuf=u.padded[:1], source=left)
        moved = 0.25 * (u.padded[:-2] - 2 * u.padded[1:-1] + u.padded[2:])
        u.local += moved
        turns.value += 1
        change = run.comm.allreduce(abs(moved).max(initial=0.0), MPI.MAX)

    whole = u.gather(run.comm)
    if whole is not None:
        print(f"at rest after {turns.value} turns, warmest: {whole.max():.12f}")
    dmr.finalize()


if __name__ == "__main__":
    main(float(sys.argv[1]) if sys.argv[1:] else 1e-5)
