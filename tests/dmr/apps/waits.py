"""Rank 0 works for a time in each step, and the others wait for it."""

from __future__ import annotations

import time

import dmr


@dmr.malleable
def main(run: dmr.Run) -> None:
    from mpi4py import MPI

    assert isinstance(run.comm, MPI.Intracomm)
    for _ in run.steps(20):
        if run.rank == 0:
            time.sleep(0.05)
        total = run.comm.allreduce(1)
        run.comm.Barrier()
        assert total == run.ranks
    counter = run._waiting
    print(f"rank {run.rank} waited {-1 if counter is None else counter.seconds:.3f}", flush=True)


main()
