"""Compressed arrays of random shapes, dtypes and layouts: saved on N ranks, loaded on M; and one rank in trouble.

Arguments: folder, number of rounds, codecs (comma-separated), drivers (comma-separated). Prints a JSON line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from dmr import ckpt
from dmr.ckpt import (
    ArrayItem,
    Block,
    BlockCyclic,
    Box,
    Boxes,
    CheckpointError,
    Counts,
    Indices,
    Mismatch,
    Replicated,
    StorageError,
    Store,
)
from dmr.ckpt.storage import filters
from dmr.ckpt.storage.chunks import stored_bytes
from dmr.ckpt.transfer import plan
from dmr.ckpt.transfer.packing import Packing

WORLD = MPI.COMM_WORLD
LAST = WORLD.size - 1
DTYPES = ["?", "u1", "<i2", ">f4", "<f8", "<c16", "S5", "U3", "<M8[ns]", "V7", [("a", "<i2"), ("b", ">f8", (3,))]]


def content(shape: tuple[int, ...], dtype: Any, rolls: np.random.Generator) -> np.ndarray:
    """Return bits that compress well, a little, or not at all."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    top = int(rolls.choice([1, 3, 256]))
    raw = rolls.integers(0, top, size, np.uint8)
    if dtype.kind == "U":
        raw = np.zeros(size, np.uint8)
        raw[::4] = rolls.integers(32, 120, len(raw[::4]))
    if dtype.kind == "b":
        raw &= 1
    return raw.view(dtype).reshape(shape)


def some_layout(shape: tuple[int, ...], ranks: int, rank: int, rolls: np.random.Generator) -> Any:
    if not shape:
        return Replicated()
    axes = rolls.permutation(len(shape))[: int(rolls.integers(1, len(shape) + 1))].tolist()
    axis = axes[0]
    cuts = np.sort(rolls.integers(0, shape[axis] + 1, ranks - 1))
    owners = rolls.integers(0, ranks, shape[0])
    boxes = []
    for lo, hi in zip([0, *cuts], [*cuts, shape[axis]], strict=True):
        low, high = [0] * len(shape), list(shape)
        low[axis], high[axis] = int(lo), int(hi)
        boxes.append((Box(tuple(low), tuple(high)),))
    return [
        Block(axes=tuple(axes)),
        BlockCyclic(tuple(int(rolls.integers(1, 9)) for _ in axes), axes=tuple(axes)),
        Counts(tuple(np.diff([0, *cuts, shape[axis]]).tolist()), axis=axis),
        Boxes(tuple(boxes)),
        Indices(np.random.default_rng(rank).permutation(np.flatnonzero(owners == rank))),
        Replicated(),
    ][int(rolls.integers(6))]


def local(whole: np.ndarray, layout: Any, ranks: int, rank: int) -> np.ndarray:
    """Return what a rank holds, by plain indexing, and by bytes: NumPy's copy of a struct leaves its padding behind."""
    bits = whole.view(f"V{whole.itemsize}")
    if isinstance(layout, Indices):
        return bits[layout.indices].view(whole.dtype)
    parts = layout.parts(whole.shape, ranks, rank)
    held = []
    for part in parts:
        axes = [np.arange(*axis) if isinstance(axis, tuple) else axis.positions(0, len(axis)) for axis in part.axes]
        held.append(bits[np.ix_(*axes)] if axes else bits)
    if layout.flat:
        return np.concatenate([np.zeros(0, bits.dtype), *(each.ravel() for each in held)]).view(whole.dtype)
    return held[0].view(whole.dtype)


def one_round(folder: Path, number: int, codecs: list[str], drivers: list[str]) -> int:
    rolls = np.random.default_rng(number)
    plan.PIECE = int(rolls.choice([64, 500, 4096, 20000]))
    plan.ROUND = 3 * plan.PIECE
    filters.SMALLEST = 1
    codec = codecs[number % len(codecs)]
    arrays = {}
    for place in range(7):
        shape = tuple(rolls.integers(1, (4000, 70, 17, 9)[n := int(rolls.integers(4))], n + 1).tolist())
        shape = {0: (), 1: (0, 3)}.get(place if number == 0 else -1, shape)
        arrays[f"{place} é"] = content(shape, DTYPES[int(rolls.integers(len(DTYPES)))], rolls)
    writers, readers = (int(each) for each in rolls.integers(1, WORLD.size + 1, 2))
    seed = int(rolls.integers(1 << 30))
    writing = WORLD.Split(0 if WORLD.rank < writers else MPI.UNDEFINED, WORLD.rank)
    if writing != MPI.COMM_NULL:
        rolls = np.random.default_rng(seed)
        items = {}
        for name, whole in arrays.items():
            layout = some_layout(whole.shape, writers, writing.rank, rolls)
            items[name] = ArrayItem(local(whole, layout, writers, writing.rank), layout, whole.shape)
        files = []
        for driver in drivers:
            with Store(folder / f"{number}-{driver}", writing, driver=driver, compress=codec) as store:
                saved = store.save(1, items)
                assert saved.bytes == saved.path.stat().st_size and saved.compress_seconds > 0
                files.append(saved.path.read_bytes())
        assert all(each == files[0] for each in files), "the drivers write different bytes"
        writing.Free()
    WORLD.Barrier()
    reading = WORLD.Split(0 if WORLD.rank < readers else MPI.UNDEFINED, WORLD.rank)
    if reading != MPI.COMM_NULL:
        for driver in drivers:
            load(folder / f"{number}-{driver}", driver, arrays, reading, seed)
        reading.Free()
    WORLD.Barrier()
    if WORLD.rank == 0:
        look(next((folder / f"{number}-{drivers[0]}").glob("*.h5")), arrays)
    return len(arrays)


def load(folder: Path, driver: str, arrays: dict[str, np.ndarray], comm: MPI.Comm, seed: int) -> None:
    rolls = np.random.default_rng(seed + 1)
    layouts = {name: some_layout(whole.shape, comm.size, comm.rank, rolls) for name, whole in arrays.items()}
    with Store(folder, comm, driver=driver) as store:
        loaded = store.load_newest(layouts)
        assert loaded.manifest.version == 2
        stored = stored_bytes(loaded.manifest, loaded._content.chunks)
        assert comm.allreduce(loaded.read_bytes) == stored, "every byte is to be read once"
        for name, layout in layouts.items():
            found = loaded.array(name, layout)
            assert found.tobytes() == local(arrays[name], layout, comm.size, comm.rank).tobytes(), name


def look(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Verify, and compare with what HDF5 itself decompresses."""
    import h5py

    with ckpt.open(path) as file:
        assert file.verify() == []
        names = {each.name: each.dataset for each in file.manifest.arrays}
        filtered = {each.filter.codec.name for each in file.manifest.arrays if each.filter is not None}
    if filtered == {"zstd"}:
        try:
            import hdf5plugin  # type: ignore[import-not-found, unused-ignore] # noqa: F401
        except ImportError:
            return
    with h5py.File(path, "r") as file:
        for name, whole in arrays.items():
            if whole.size:
                assert file["arrays"][names[name]][()].tobytes() == whole.tobytes(), name


@contextmanager
def broken(owner: Any, name: str, error: BaseException) -> Iterator[None]:
    """Let a method fail on the last rank."""
    original = getattr(owner, name)

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise error

    if WORLD.rank == LAST:
        setattr(owner, name, fail)
    try:
        yield
    finally:
        setattr(owner, name, original)


def refused(call: Callable[[], object], kind: type[CheckpointError], text: str) -> None:
    try:
        call()
    except CheckpointError as error:
        told = type(error).__name__, str(error)
    else:
        told = "nothing", ""
    assert len(set(WORLD.allgather(told))) == 1, told
    assert told[0] == kind.__name__ and text in told[1], told


def trouble(folder: Path) -> None:
    whole = np.arange(40000.0).reshape(200, 200)
    (box,) = Block().boxes(whole.shape, WORLD.size)[WORLD.rank]
    items = {"u": ArrayItem(whole[box.slices], Block(), whole.shape)}
    with Store(folder, WORLD, deadline=20, compress="zlib") as store:
        store.save(1, items)
        with broken(filters.Filter, "pack", MemoryError("no more")):
            refused(lambda: store.save(2, items), CheckpointError, f"rank {LAST}: saving")
        with broken(Packing, "put", OSError(28, "No space left on device")):
            refused(lambda: store.save(2, items), StorageError, "No space left on device")
        assert [each.step for each in store.list()] == [1] and not list(folder.glob(".staging-*/step-*"))
        store.save(2, items)
        path = store.list()[0].path
        WORLD.Barrier()
        if WORLD.rank == 0:
            with ckpt.open(path) as file:
                at = int(file._content.chunks[0, 0])
            raw = bytearray(path.read_bytes())
            raw[at + 20] ^= 1
            path.write_bytes(raw)
        WORLD.Barrier()
        loaded = store.load_newest()
        assert loaded.step == 1 and loaded.array("u").tobytes() == whole[box.slices].tobytes()
    with Store(folder, WORLD, deadline=20, compress="zlib" if WORLD.rank == LAST else None) as store:
        refused(lambda: store.save(3, items), Mismatch, "array 'u'")


def main() -> None:
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    codecs, drivers = sys.argv[3].split(","), sys.argv[4].split(",")
    checked = sum(one_round(folder, number, codecs, drivers) for number in range(count))
    plan.PIECE = 4096
    trouble(folder / "trouble")
    if WORLD.rank == 0:
        print(json.dumps({"arrays": checked, "rounds": count}))


main()
