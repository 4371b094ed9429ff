"""One rank in trouble: every rank gets the same exception, and the next save and load work.

Argument: folder. Prints a JSON line with the number of cases.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import dmr.ckpt.load
import dmr.ckpt.save
from dmr.ckpt import (
    ArrayItem,
    Block,
    CheckpointError,
    Damaged,
    Fenced,
    Mismatch,
    Replicated,
    RngItem,
    StorageError,
    Store,
    Unsupported,
    ValueItem,
    Writer,
)
from dmr.ckpt.storage import h5file
from dmr.ckpt.transfer import plan

plan.PIECE = 4096
COMM = MPI.COMM_WORLD
RANK, LAST = COMM.rank, COMM.size - 1
SHAPE = (700, 30)
WHOLE = np.arange(700 * 30, dtype="f8").reshape(SHAPE)
LAYOUT = Block(axes=(0, 1), grid=(1, COMM.size))


def items(**more: Any) -> dict[str, Any]:
    (box,) = LAYOUT.boxes(SHAPE, COMM.size)[RANK]
    return {"u": ArrayItem(WHOLE[box.slices], LAYOUT, SHAPE), "k": ValueItem(5), **more}


def on(rank: int, mine: Any, others: Any) -> Any:
    return mine if rank == RANK else others


@contextmanager
def broken(module: Any, name: str, rank: int, error: BaseException) -> Iterator[None]:
    """Let a function fail on one rank."""
    original = getattr(module, name)

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise error

    if rank == RANK:
        setattr(module, name, fail)
    try:
        yield
    finally:
        setattr(module, name, original)


def expect(call: Callable[[], object], kind: type[CheckpointError], rank: int | None, text: str) -> None:
    """Check that all ranks raise the same."""
    try:
        call()
    except CheckpointError as error:
        told = (type(error).__name__, str(error), error.rank)
    else:
        told = ("nothing", "", None)
    everywhere = COMM.allgather(told)
    assert len(set(everywhere)) == 1, everywhere
    assert told[0] == kind.__name__ and told[2] == rank and text in told[1], (told, kind, rank, text)


def main() -> None:
    store = Store(Path(sys.argv[1]), COMM, deadline=20)
    full = OSError(28, "No space left on device")
    cases = 0

    def saving(kind: type[CheckpointError], rank: int | None, text: str, changed: Any = None, info: Any = None) -> None:
        nonlocal cases
        cases += 1
        what = items() if changed is None else changed
        expect(lambda: store.save(2, what, info), kind, rank, text)
        assert store.load_newest().step == 1, "the one before is untouched"

    store.save(1, items())

    # What is handed over
    saving(Mismatch, LAST, "this rank's part", items(u=on(LAST, ArrayItem(np.zeros(3), LAYOUT, SHAPE), items()["u"])))
    saving(Unsupported, 1, "rank 1: value 'k' is of type", items(k=ValueItem(on(1, {1, 2}, 5))))
    saving(Mismatch, LAST, "value 'k' differs between ranks", items(k=ValueItem(on(LAST, 6, 5))))
    saving(Mismatch, 1, "the info differs", info={"a": on(1, 1, 2)})
    saving(Mismatch, 2, "random generator 'r' differs", items(r=RngItem(np.random.default_rng(on(2, 1, 2)))))
    saving(Mismatch, 1, "differ in ValueItem 'w'", items(**on(1, {"w": ValueItem(1)}, {})))
    replicated = np.full(3000, 1.5)
    replicated[2999] = on(LAST, 1.25, 1.5)
    copies = ArrayItem(replicated, Replicated(), (3000,))
    saving(Mismatch, LAST, "content of the replicated array 'c' differs", items(c=copies))
    single = ArrayItem(np.zeros(9, on(1, "f4", "f8")), Replicated(), (9,))
    saving(Mismatch, 1, "array 'z' (shape, dtype, layout) differs", items(z=single))
    step = on(LAST, 3, 2)
    expect(lambda: store.save(step, items()), Mismatch, LAST, "the step differs")

    # The file system
    for rank in range(COMM.size):
        with broken(os, "pwrite", rank, full):
            saving(StorageError, rank, "No space left on device")
        with broken(os, "fsync", rank, OSError(122, "Disk quota exceeded")):
            saving(StorageError, rank, "Disk quota exceeded")
        with broken(dmr.ckpt.save, "open_output", rank, PermissionError(13, "Permission denied")):
            saving(StorageError, rank, "Permission denied")
        with broken(dmr.ckpt.save, "save_pieces", COMM.size, full):
            assert store.load_newest().step == 1
    with broken(h5file, "lay_out", 0, full):
        saving(StorageError, 0, "No space left")
    with broken(os, "rename", 0, OSError(30, "Read-only file system")):
        saving(StorageError, 0, "Read-only")
    with broken(h5file, "lay_out", 0, RuntimeError("from HDF5")):
        saving(CheckpointError, 0, "RuntimeError: from HDF5")

    # Loading
    for rank in range(COMM.size):
        with broken(os, "preadv", rank, OSError(5, "Input/output error")):
            expect(store.load_newest, StorageError, rank, "Input/output error")
        with broken(dmr.ckpt.load, "open_input", rank, OSError(5, "Input/output error")):
            expect(store.load_newest, StorageError, rank, "Input/output error")
        cases += 2
    path = store.list()[0].path
    COMM.Barrier()
    if RANK == 0:
        entry = h5file.read_content(path).manifest.arrays[0]
        with open(path, "r+b") as stream:
            stream.seek(entry.offset + entry.bytes - 9)
            stream.write(b"\1")
    COMM.Barrier()
    expect(lambda: store.load(1), Damaged, LAST, "array 'u' is damaged")
    expect(store.load_newest, Damaged, None, "no good checkpoint")
    expect(lambda: store.load(9), Mismatch, 0, "no checkpoint of step 9")
    expect(lambda: store.load("/nowhere/x.h5"), StorageError, 0, "No such file")
    cases += 4

    # Drivers and late writers
    expect(lambda: Store(sys.argv[1], COMM, driver="posix"), Unsupported, 0, "no driver")
    staging = Path(sys.argv[1]) / ".staging-0001"
    late = Store(sys.argv[1], COMM, writer=Writer("run", 1, "x", staging, on(0, _refuse, None)), deadline=20)
    expect(lambda: late.save(3, items()), Fenced, 0, "generation 2 has the lease")
    cases += 2
    store.save(4, items())
    assert store.load_newest().step == 4
    late.close()
    store.close()
    if RANK == 0:
        print(json.dumps({"cases": cases}))


def _refuse() -> None:
    raise RuntimeError("generation 2 has the lease")


main()
