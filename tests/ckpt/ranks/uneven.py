"""Ranks that differ: what one alone can't decompress, and time for the one that has the most to do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from dmr.ckpt import ArrayItem, Counts, Store, Unsupported
from dmr.ckpt.comm.group import Group
from dmr.ckpt.comm.watchdog import Watchdog
from dmr.ckpt.reader import open_together
from dmr.ckpt.storage import filters
from dmr.ckpt.transfer import plan

comm = MPI.COMM_WORLD
folder = Path(sys.argv[1])
plan.PIECE = 4096
extended: list[float] = []
extend = Watchdog.extend


def note(self: Watchdog, seconds: float) -> None:
    extended.append(seconds)
    extend(self, seconds)


Watchdog.extend = note  # type: ignore[method-assign]
rows = 3000 if comm.rank == 1 else 0
items = {"u": ArrayItem(np.ones((rows, 100)), Counts((0, 3000)), (3000, 100))}
with Store(folder, comm, compress="zlib:9") as store:
    path = store.save(1, items).path
    store.load(path, layouts={"u": Counts((0, 3000))})
    assert len(extended) == 2 and extended[0] > 4 and extended[1] > 0.2, extended
    assert comm.allgather(extended) == [extended] * comm.size, "all wait as long"


def refuse(*of: Any) -> None:
    raise Unsupported("the compression needs a package that is not installed here")


if comm.rank == 1:
    filters.decompress = refuse  # type: ignore[assignment]
group = Group(comm)
with open_together(path, group) as file:
    try:
        file.verify(group=group)
        raise AssertionError
    except Unsupported as error:
        assert error.rank == 1 and "rank 1: the compression needs" in str(error), error
group.free()
