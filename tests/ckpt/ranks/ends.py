"""Begins a save in the background and ends: without waiting for it, and without close()."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from dmr.ckpt import ArrayItem, Block, Store, commit

folder, ranks, kind = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
comm, rank = None, 0
if ranks > 1:
    from mpi4py import MPI

    comm, rank = MPI.COMM_WORLD, MPI.COMM_WORLD.rank
    assert comm.size == ranks
rows = 40 // ranks
whole = np.arange(40 * (1 << 18), dtype=float).reshape(40, -1)
local = whole[rank * rows : (rank + 1) * rows]
items = {"u": ArrayItem(local, Block(), whole.shape), "t": ArrayItem(local[:, :3000] // 7, Block(), (40, 3000))}
if kind == "fast":
    (folder / "node").mkdir(mode=0o700, exist_ok=True)
    store = Store(folder / "shared", comm, fast_dir=folder / "node", compress="zlib:1")
    store.save_later(1, {"t": items["t"]})
else:
    store = Store(folder / "shared", comm, compress="zlib:1" if kind == "packed" else None)
    store.save_later(1, {"t": items["t"]} if kind == "packed" else items)
if kind == "fails":

    def refuse(path: Path) -> None:
        raise OSError(28, "No space left on device", str(path))

    commit.sync_folder = refuse
