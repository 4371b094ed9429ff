"""Saving in the background on ranks, while the program changes its arrays and communicates. Argument: folder."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import dmr.ckpt.save
from dmr.ckpt import (
    ArrayItem,
    Block,
    Mismatch,
    ParticlesItem,
    PerRankItem,
    RaggedItem,
    RngItem,
    StorageError,
    Store,
    StreamItem,
    Unsupported,
    ValueItem,
)

COMM = MPI.COMM_WORLD
SHAPE = (COMM.size * 300, 500)


def main() -> None:
    folder = Path(sys.argv[1])
    local = np.zeros((300, 500))
    value: dict[str, Any] = {"list": [0]}
    rng = np.random.default_rng(1)
    own = np.zeros(3)
    stream = np.random.default_rng(COMM.rank)
    items = {
        "u": ArrayItem(local, Block(), SHAPE),
        "v": ValueItem(value),
        "r": RngItem(rng),
        "own": PerRankItem(own, "concat"),
        "s": StreamItem(stream, 3),
        "p": ParticlesItem(np.arange(4) + 4 * COMM.rank, {"x": np.zeros(4)}),
        "m": RaggedItem(np.array([2, 1]), np.zeros(3)),
    }
    threads_before = threading.active_count()
    store = Store(folder, COMM, deadline=30)
    original = dmr.ckpt.save.SaveJob.run
    overlapped = 0

    def slow(*args: Any) -> Any:
        time.sleep(0.05)
        return original(*args)

    dmr.ckpt.save.SaveJob.run = slow  # type: ignore[method-assign]
    drawn = []
    for step in range(1, 9):
        local[:] = step + COMM.rank / 10
        own[:] = step
        value["list"].append(step)
        drawn.append((float(rng.random()), float(stream.random())))
        store.save_later(step, items, info={"step": step})
        # What follows must not be seen in the checkpoint.
        local[:] = -1
        own[:] = -1
        value["list"].append("later")
        assert store.saving
        total = COMM.allreduce(COMM.rank)
        assert total == COMM.size * (COMM.size - 1) // 2
        overlapped += store.saving
        value["list"].pop()
        if step == 8:
            expected = (rng.random(), stream.random())
    assert overlapped
    saved = store.wait()
    assert saved is not None and saved.step == 8 and not store.saving and store.wait() is None
    loaded = store.load_newest()
    assert loaded.step == 8 and loaded.info == {"step": 8} and [each.step for each in store.list()] == [8, 7]
    assert (loaded.array("u") == 8 + COMM.rank / 10).all() and (loaded.per_rank("own") == 8).all()
    assert loaded.value("v") == {"list": list(range(9))}
    assert loaded.rng("r").random() == expected[0] and loaded.stream("s").random() == expected[1]

    # An error surfaces at the next call, on every rank; the one after works.
    dmr.ckpt.save.SaveJob.run = original  # type: ignore[method-assign]
    sync = os.fsync
    if COMM.rank == 1:
        os.fsync = lambda handle: (_ for _ in ()).throw(OSError(28, "No space left on device"))  # type: ignore[assignment]
    store.save_later(9, items)
    try:
        store.save_later(10, items)
    except StorageError as error:
        assert error.rank == 1 and "No space left" in str(error)
    else:
        raise AssertionError("the error was lost")
    os.fsync = sync
    assert store.load_newest().step == 8
    store.save_later(11, {"v": ValueItem(COMM.rank)})
    try:
        store.wait()
    except Mismatch as error:
        assert "'v' differs between ranks" in str(error)
    else:
        raise AssertionError("the error was lost")
    try:
        store.save_later(12, {"v": ValueItem({COMM.rank} if COMM.rank == 1 else 5)})
    except Unsupported as error:
        assert error.rank == 1
    store.save_later(13, items)
    store.close()
    assert threading.active_count() == threads_before
    with Store(folder, COMM) as other:
        assert other.load_newest().step == 13
    if COMM.rank == 0:
        print(json.dumps({"overlapped": overlapped}))


main()
