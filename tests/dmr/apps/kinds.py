"""Every kind of state; each turn checks that what it holds is right, whatever the process count."""

import sys
import time

import numpy as np

import dmr

N = 41


def row(index: int, step: int) -> np.ndarray:
    return np.full(index % 4, index * 100 + step, "i4")


@dmr.malleable
def main(run: dmr.Run) -> None:
    cyclic = run.array("cyclic", (N, 7), "i8", dmr.BlockCyclic((3, 2)))
    mine = np.arange(run.rank, N, run.ranks)[::-1]
    indexed = run.array("indexed", (N,), "f4", dmr.Indices(mine))
    ragged = run.ragged("rows", "i4")
    particles = run.particles("dust", {"x": ("f8", (2,)), "m": "f4"}, by=lambda ids, columns: ids % run.ranks)
    weight = run.per_rank("weight", np.array([float(run.rank == 0)]), rule="sum")
    stream = run.rng("stream", seed=3, per_rank=True)
    if run.fresh:
        rows = range(run.rank * N // run.ranks, (run.rank + 1) * N // run.ranks)
        ragged.counts = np.array([i % 4 for i in rows])
        ragged.values = np.concatenate([row(i, 0) for i in rows]).astype("i4")
        ragged.first_row = rows.start
        particles.ids = np.arange(run.rank, N, run.ranks)
        particles.columns["x"] = np.stack([particles.ids * 1.0, particles.ids * -1.0], 1)
        particles.columns["m"] = particles.ids.astype("f4")
    for step in run.steps(60):
        assert (cyclic.local == step).all() and (indexed.local == mine * step).all()
        rows = range(ragged.first_row, ragged.first_row + len(ragged.counts))
        assert (ragged.counts == [i % 4 for i in rows]).all()
        assert (ragged.values == np.concatenate([np.zeros(0, "i4"), *(row(i, step) for i in rows)])).all()
        assert (particles.ids % run.ranks == run.rank).all()
        assert (particles.columns["x"] == np.stack([particles.ids + step, -particles.ids], 1)).all()
        assert run.comm.allreduce(float(weight.local.sum())) == 1.0 + step
        assert run.comm.allreduce(len(particles.ids)) == N
        cyclic.local += 1
        indexed.local = (mine * (step + 1)).astype("f4")
        ragged.values = ragged.values + np.int32(1)
        particles.columns["x"][:, 0] += 1
        weight.local = weight.local + float(run.rank == 0)
        drawn = run.comm.gather(stream.random())
        if run.rank == 0:
            assert len(set(drawn)) == run.ranks
        time.sleep(float(sys.argv[1]))
    if run.rank == 0:
        print("all right", flush=True)


main()
