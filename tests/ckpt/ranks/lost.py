"""One rank is lost in the middle of a save: it sleeps, or dies without a word. Arguments: folder, how, rank, moment."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from dmr.ckpt import ArrayItem, Block, Store
from dmr.ckpt.comm.group import Group
from dmr.ckpt.transfer import shared

COMM = MPI.COMM_WORLD
folder, how, rank, moment = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]


def items() -> dict[str, Any]:
    shape = (COMM.size * 10, 8)
    (box,) = Block(axis=1).boxes(shape, COMM.size)[COMM.rank]
    return {"u": ArrayItem(np.ones(box.shape), Block(axis=1), shape)}


def vanish(*args: Any) -> None:
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


if moment in ("counts", "exchange"):  # of messages, as between nodes
    shared.FOLDER = folder / "nothing"
store = Store(folder, COMM, deadline=2)
store.save(1, items())
if COMM.rank == rank:
    setattr(Group, moment, vanish)
print("going", flush=True)
store.save(2, items())
