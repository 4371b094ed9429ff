"""The disk gets full at every stage of a save; run on ranks.

Arguments: folder in a small file system, cases, seed, compression.

Prints a JSON line with counts.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path

import common
from mpi4py import MPI

import dmr.ckpt.save
from dmr.ckpt import CheckpointError, StorageError, Store

comm = MPI.COMM_WORLD
common.small_pieces()
place, cases = Path(sys.argv[1]), int(sys.argv[2])
dice = random.Random(int(sys.argv[3]))
filler = place / "filler"
counts = {"cases": 0, "refused": 0, "refused_before_writing": 0, "saved": 0}
asked = dmr.ckpt.save.describe_space


def leave(free: int) -> None:
    """Fill the file system but for so many bytes."""
    if comm.rank == 0:
        filler.unlink(missing_ok=True)
        stat = os.statvfs(place)
        left = stat.f_bavail * stat.f_frsize - free
        with open(filler, "wb") as stream:
            for begin in range(0, max(left, 0), 1 << 20):
                stream.write(bytes(min(1 << 20, left - begin)))
    comm.Barrier()


with Store(place / "checkpoints", comm, deadline=20, compress=sys.argv[4]) as store:
    size = store.save(1, common.state(1, comm.size, comm.rank)).bytes
    step = 1
    for number in range(cases):
        # A save over a file that is not kept any more needs little: so it is only at times.
        store.recycle = number % 5 == 0
        # Now and then there is room for certain, so that a save follows those that were refused.
        leave(4 * size if number % 8 == 3 else dice.randrange(0, int(size * 1.2)))
        # With the look at the free space taken away, the error comes from wherever the space ends.
        dmr.ckpt.save.describe_space = asked if number % 4 == 0 else lambda folder, needed, spare: None
        try:
            store.save(step + 1, common.state(step + 1, comm.size, comm.rank))
            step += 1
            outcome = "saved"
        except StorageError as error:
            outcome = "refused_before_writing" if "MiB free" in str(error) else "refused"
        except CheckpointError as error:
            assert "No space" in str(error) or "space" in str(error).lower() or "HDF5" in str(error), error
            outcome = "refused"
        assert len(set(comm.allgather(outcome))) == 1
        counts["cases"] += 1
        counts[outcome] += 1
        comm.Barrier()
        if comm.rank == 0:
            assert common.judge(place / "checkpoints", step) == step
            assert not list((place / "checkpoints").glob(".staging-*/step-*"))
        comm.Barrier()
    leave(4 * size)
    store.save(step + 1, common.state(step + 1, comm.size, comm.rank))
    if comm.rank == 0:
        common.judge(place / "checkpoints", step + 1)
        print(json.dumps(counts))
