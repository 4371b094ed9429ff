"""Saved on N ranks, loaded on M, for all pairs up to the number of ranks and both drivers; in one start of MPI.

Arguments: folder, drivers (comma-separated). Prints a JSON line with what was covered.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
from mpi4py import MPI

from dmr.ckpt import ArrayItem, Block, Layout, Replicated, RngItem, Store, ValueItem
from dmr.ckpt.transfer import plan

# Small pieces, so that small arrays have many, and boundaries between ranks fall inside of them.
plan.PIECE = 4096
plan.ROUND = 3 * 4096

WORLD = MPI.COMM_WORLD
STRUCT = np.dtype([("a", "<i2"), ("b", ">f8", (3,)), ("c", "S3")], align=True)
DTYPES = ["?", "i1", "<u2", ">i4", "<f2", "<f4", "<f8", ">f8", "<c16", "g", "S5", "U3", "<M8[ns]", STRUCT]
DTYPES += [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
SHAPES = [(5000,), (3,), (0,), (61, 47), (2, 900), (900, 2), (0, 4), (13, 11, 7), (2, 1, 1700), (1, 33, 40)]


def content(shape: tuple[int, ...], dtype: np.dtype, seed: int) -> np.ndarray:
    """Random bits, so that NaN payloads and padding count too."""
    size = int(np.prod(shape, dtype=int))
    raw = np.random.default_rng(seed).integers(0, 256, size * dtype.itemsize, np.uint8)
    if dtype.kind == "b":
        raw &= 1
    return raw.view(dtype).reshape(shape)


def opaque(array: np.ndarray) -> np.ndarray:
    """Return a view as opaque bytes, since NumPy's own copy of a struct leaves its padding behind."""
    return array.view(f"V{array.itemsize}")


def bits(array: np.ndarray) -> bytes:
    return opaque(array).tobytes()


def cases() -> list[tuple[str, np.ndarray, Layout, Layout]]:
    """Return name, global array, layout to save in, layout to load in."""
    found = []
    for number, shape in enumerate(SHAPES):
        layouts: list[Layout] = [Block(axis=axis) for axis in range(len(shape))]
        layouts += [Replicated()]
        if len(shape) > 1:
            layouts += [Block(axes=(0, 1)), Block(axes=tuple(range(len(shape))))]
        for place, layout in enumerate(layouts):
            dtype = np.dtype(DTYPES[(number * 5 + place * 3) % len(DTYPES)])
            other = layouts[(place + 1) % len(layouts)] if number % 2 else layout
            found.append((f"{shape}/{place}", content(shape, dtype, len(found)), layout, other))
    for dtype in map(np.dtype, DTYPES):
        found.append(
            (f"dtype {dtype.str} {dtype.name} ü", content((53, 19), dtype, len(found)), Block(axes=(0, 1)), Block())
        )
    found.append(("0-d", content((), np.dtype("f8"), 5), Replicated(), Replicated()))
    return found


def main() -> None:
    folder, drivers = Path(sys.argv[1]), sys.argv[2].split(",")
    everything = cases()
    pairs = 0
    for writers in range(1, WORLD.size + 1):
        writing = WORLD.Split(0 if WORLD.rank < writers else MPI.UNDEFINED, WORLD.rank)
        if writing != MPI.COMM_NULL:
            save(folder, drivers, everything, writing)
            writing.Free()
        WORLD.Barrier()
        sums = {hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob(f"{writers}-*/step-*.h5")}
        assert len(sums) == 1, "the drivers write different bytes"
        for readers in range(1, WORLD.size + 1):
            reading = WORLD.Split(0 if WORLD.rank < readers else MPI.UNDEFINED, WORLD.rank)
            if reading != MPI.COMM_NULL:
                for driver in drivers:
                    load(folder / f"{writers}-{driver}", driver, everything, reading)
                reading.Free()
            WORLD.Barrier()
            pairs += 1
    if WORLD.rank == 0:
        print(json.dumps({"pairs": pairs, "drivers": drivers, "arrays": len(everything)}))


def save(folder: Path, drivers: list[str], everything: list, comm: MPI.Comm) -> None:
    items = {}
    for number, (name, whole, layout, _) in enumerate(everything):
        (box,) = layout.boxes(whole.shape, comm.size)[comm.rank]
        local = whole[(..., *box.slices)]
        if number % 2:
            local = np.array(opaque(local), order="F").view(whole.dtype)
        items[name] = ArrayItem(local, layout, whole.shape)
    items["value"] = ValueItem({"a": [1, 2**70, float("nan")], "b": (b"\xff", "ü\0")})
    items["noise"] = RngItem(np.random.Generator(np.random.MT19937(5)))
    for driver in drivers:
        with Store(folder / f"{comm.size}-{driver}", comm, driver=driver) as store:
            saved = store.save(7, items, info={"writers": comm.size})
            assert saved.path.stat().st_size == saved.bytes


def load(folder: Path, driver: str, everything: list, comm: MPI.Comm) -> None:
    with Store(folder, comm, driver=driver) as store:
        loaded = store.load_newest({name: other for name, _, _, other in everything})
        assert loaded is not None and loaded.step == 7
        total = comm.allreduce(loaded.read_bytes)
        assert total == sum(whole.nbytes for _, whole, _, _ in everything), "every byte is to be read once"
        for name, whole, layout, other in everything:
            spec = loaded.specs[name]
            assert (spec.shape, spec.dtype, spec.layout) == (whole.shape, whole.dtype, layout)
            local = loaded.array(name, other)
            (box,) = other.boxes(whole.shape, comm.size)[comm.rank]
            assert local.dtype == whole.dtype and local.shape == box.shape and local.flags.writeable
            assert bits(local) == bits(whole[box.slices]), (name, comm.size)
        assert loaded.read_bytes <= total, "what was read ahead is handed over"
        again = loaded.array(everything[0][0], Replicated())
        assert again.tobytes() == everything[0][1].tobytes()
        value = loaded.value("value")
        assert value["a"][1] == 2**70 and value["a"][2] != value["a"][2] and value["b"] == (b"\xff", "ü\0")
        assert loaded.rng("noise").random() == np.random.Generator(np.random.MT19937(5)).random()


main()
