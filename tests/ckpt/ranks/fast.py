"""Two levels on ranks. Arguments: shared folder, folder of the node, what to do, and its argument."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import dmr.ckpt.twolevel.drain
import dmr.ckpt.twolevel.levels
from dmr.ckpt import ArrayItem, Block, Store

COMM = MPI.COMM_WORLD
SHAPE = (1200, 50)
LAYOUT = Block(axes=(0, 1))
shared, node, what = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]


def part(step: int) -> Any:
    (box,) = LAYOUT.boxes(SHAPE, COMM.size)[COMM.rank]
    return np.random.default_rng(step).random(SHAPE)[box.slices].copy()


def items(step: int) -> dict[str, Any]:
    return {"u": ArrayItem(part(step), LAYOUT, SHAPE)}


def is_step(loaded: Any, step: int) -> bool:
    return bool(loaded.step == step and loaded.array("u").tobytes() == part(step).tobytes())


class TwoNodes(MPI.Intracomm):
    """Ranks that MPI says are on two nodes."""

    def Split_type(self, *args: Any, **kwargs: Any) -> Any:
        return self.Split(self.Get_rank() % 2)


def die() -> None:
    """A rank is killed while the copy is under way."""
    store = Store(shared, COMM, fast_dir=node, deadline=20)
    store.save(1, items(1))
    store.wait()
    dmr.ckpt.twolevel.drain.copy_bytes = lambda *_: time.sleep(600)
    store.save(2, items(2))
    assert store.saving == (COMM.rank == 0)
    COMM.Barrier()
    if COMM.rank == int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)
    store.wait()


def load() -> None:
    """At another number of ranks, what was on the node alone is loaded, and copied."""
    with Store(shared, COMM, fast_dir=node, deadline=20) as store:
        loaded = store.load_newest()
        assert loaded.path.parent == store.fast and is_step(loaded, int(sys.argv[4]))
        store.wait()
        assert store.drained is not None and store.drained.step == loaded.step
    with Store(shared, COMM) as store:
        assert is_step(store.load_newest(), int(sys.argv[4]))


def nodes() -> None:
    """On two nodes, or where a rank sees another folder, only the shared one is used."""
    with Store(shared, TwoNodes(COMM), fast_dir=node, deadline=20) as store:
        assert store.fast is None and store.save(1, items(1)).path.parent == shared
        assert is_step(store.load_newest(), 1)
    if COMM.rank == 1:
        dmr.ckpt.twolevel.levels.visible = lambda *_: False
    with Store(shared, COMM, fast_dir=node, deadline=20) as store:
        assert store.fast is None and store.save(2, items(2)).path.parent == shared
    COMM.Barrier()
    assert not list(node.iterdir())


def fill() -> None:
    """The file system of the node gets full at any stage of a save, and has room again."""
    counts = {"fast": 0, "shared": 0}
    ballast = node / "ballast"
    ask = dmr.ckpt.save.describe_space
    with Store(shared, COMM, fast_dir=node, deadline=20) as store:
        for step in range(1, 15):
            if COMM.rank == 0:
                ballast.unlink(missing_ok=True)
                free = os.statvfs(node)
                room = free.f_bavail * free.f_frsize
                if step % 3:
                    ballast.write_bytes(bytes(max(0, room - step * 40_000)))
            # With the look at the free space taken away, the error comes from wherever the space ends.
            dmr.ckpt.save.describe_space = ask if step % 2 else lambda *_: None
            COMM.Barrier()
            saved = store.save(step, items(step))
            counts["fast" if saved.path.parent == store.fast else "shared"] += 1
            assert is_step(store.load_newest(), step)
            COMM.Barrier()
    with Store(shared, COMM) as store:
        assert is_step(store.load_newest(), 14)
    if COMM.rank == 0:
        print(json.dumps(counts))


{"die": die, "load": load, "nodes": nodes, "fill": fill}[what]()
