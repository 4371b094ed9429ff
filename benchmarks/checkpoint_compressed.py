"""Compressed saves and loads beside those of the same array as it is, for ``checkpoint_worker.py``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from mpi4py import MPI

from dmr.ckpt import ArrayItem, Block, Store

WORLD = MPI.COMM_WORLD
Way = Callable[[], float | None]
CODECS = ("none", "zstd", "zstd:3", "zlib")
COLUMNS = 1024


def field(kind: str, shape: tuple[int, int]) -> np.ndarray:
    """Return this rank's rows.

    ``random``: floats between 0 and 1, of which but the exponents can be compressed. ``smooth``: a wave with a part in
    a million of noise. ``sparse``: the same in a tenth of the domain, with nothing in the rest. ``counts``: integers
    up to 1000.
    """
    (box,) = Block().boxes(shape, WORLD.size)[WORLD.rank]
    dice = np.random.default_rng(WORLD.rank)
    if kind == "random":
        return dice.random(box.shape)
    if kind == "counts":
        return dice.integers(0, 1000, box.shape)
    rows = np.arange(box.lo[0], box.hi[0])[:, None] / shape[0]
    wave = np.sin(9 * rows) * np.cos(np.linspace(0, 7, shape[1]))[None, :]
    wave *= 1 + 1e-6 * dice.standard_normal(box.shape)
    if kind == "sparse":
        wave[:, shape[1] // 10 :] = 0
    return wave


def forget(store: Store) -> None:
    """Drop the files from the page cache."""
    for each in store.list():
        handle = os.open(each.path, os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)
    WORLD.Barrier()


def compressed(fresh: Callable[[str], Path], mib: int, settling: int) -> tuple[dict[str, Way], dict[str, list[float]]]:
    """Return the ways, and where they leave how much smaller each file was.

    Each store has saved ``settling`` times by then, after which it knows the faster way to write.
    """
    shape = (mib * 128 // WORLD.size * WORLD.size, COLUMNS)
    found: dict[str, Way] = {}
    smaller: dict[str, list[float]] = {}
    for kind in ("random", "smooth", "sparse", "counts"):
        item = ArrayItem(field(kind, shape), Block(), shape)
        for codec in CODECS:
            name = f"compressed {kind} {codec}"
            store = Store(fresh(name.replace(":", "-")), WORLD, keep=1, compress=codec)

            def save(store: Store = store, item: ArrayItem = item, name: str = name) -> None:
                saved = store.save(1, {"u": item})
                smaller[f"ratio {name}"] = [saved.raw_bytes / saved.bytes]

            def load(store: Store = store) -> None:
                loaded = store.load_newest()
                assert loaded is not None
                loaded.array("u")

            def cold(store: Store = store, load: Callable[[], None] = load) -> float:
                forget(store)
                begin = time.perf_counter()
                load()
                return time.perf_counter() - begin

            for _ in range(settling):
                save()
            found[f"save {name}"] = save
            found[f"load {name}"] = load
            found[f"cold {name}"] = cold
    return found, smaller
