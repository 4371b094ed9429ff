"""Very many arrays, and very large ones that are mostly zeros. Arguments: folder, "many" or "large"."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from dmr.ckpt import ArrayItem, Block, Counts, Replicated, Store
from dmr.ckpt.storage.direct import DirectOutput, DirectRead

WORLD = MPI.COMM_WORLD
MANY = 10_000
GIB = 1 << 30


def many(folder: Path) -> dict[str, Any]:
    """10,000 arrays of some bytes, of several layouts."""
    layouts = [Block(), Replicated(), Block(axis=1)]
    shape = (3, 4)
    found = []
    begin = time.monotonic()
    for number in range(MANY):
        layout = layouts[number % 3]
        (box,) = layout.boxes(shape, WORLD.size)[WORLD.rank]
        found.append((f"{number}", np.full(shape, number, "<u4") + np.arange(4, dtype="<u4"), layout, box))
    with Store(folder, WORLD) as store:
        store.save(1, {name: ArrayItem(whole[box.slices], layout, shape) for name, whole, layout, box in found})
        saved = time.monotonic()
        loaded = store.load_newest()
        for name, whole, _, box in found:
            assert loaded.array(name).tobytes() == whole[box.slices].tobytes(), name
        assert WORLD.allreduce(loaded.read_bytes) == MANY * 48
    return {"arrays": MANY, "save": saved - begin, "load": time.monotonic() - saved}


def large(folder: Path) -> dict[str, Any]:
    """More than 2 GiB on one rank, which are neither written nor kept in memory where they are zero.

    What is not written the file has as zeros; memory that is not touched reads as zeros.
    """
    skipped = 0
    original = DirectOutput._write_all

    def sparse(self: DirectOutput, file: int, offset: int, data: np.ndarray) -> int:
        nonlocal skipped
        if len(data) % 8 or data.view("u8").any():
            return original(self, file, offset, data)
        skipped += len(data)
        return len(data)

    def through_scratch(self: DirectRead) -> int:
        scratch = np.zeros(len(self.into), "u1")
        found = read(replace(self, into=scratch))
        os.posix_fadvise(self.file, self.offset, len(scratch), os.POSIX_FADV_DONTNEED)
        if scratch.any():
            self.into[:] = scratch
        return found

    read = DirectRead.result
    DirectOutput._write_all, DirectRead.result = sparse, through_scratch  # type: ignore[method-assign]
    np.empty = np.zeros
    counts = (1000, 2 * GIB + (64 << 20) + 5)
    shape = (sum(counts),)
    marks = {0: 1, 999: 2, 1000: 3, GIB + 7: 4, 2 * GIB - 1: 5, 2 * GIB: 6, 2 * GIB + 1001: 7, shape[0] - 1: 8}
    first = sum(counts[: WORLD.rank])
    local = np.zeros(counts[WORLD.rank], "u1")
    mine = {place - first: mark for place, mark in marks.items() if 0 <= place - first < len(local)}
    for place, mark in mine.items():
        local[place] = mark
    with Store(folder, WORLD) as store:
        saved = store.save(1, {"u": ArrayItem(local, Counts(counts), shape)})
        assert saved.bytes > shape[0]
        del local
        loaded = store.load_newest()
        back = loaded.array("u")
        assert back.shape == (counts[WORLD.rank],)
        assert {place: int(back[place]) for place in mine} == mine
        assert sum(np.count_nonzero(back[begin : begin + GIB]) for begin in range(0, len(back), GIB)) == len(mine)
        total = WORLD.allreduce(loaded.read_bytes)
        assert total == shape[0], "every byte is to be read once"
    return {"bytes": shape[0], "skipped": WORLD.allreduce(skipped)}


report = {"many": many, "large": large}[sys.argv[2]](Path(sys.argv[1]))
if WORLD.rank == 0:
    print(json.dumps(report))
