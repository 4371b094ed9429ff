"""Writes a golden file; run once for each version of the format, on 3 ranks, and never again for an old one.

    mpirun -n 3 python tests/ckpt/golden/make.py tests/ckpt/golden/format-1.h5
    mpirun -n 3 python tests/ckpt/golden/make.py tests/ckpt/golden/format-2-zlib.h5 zlib:6
    mpirun -n 3 python tests/ckpt/golden/make.py tests/ckpt/golden/format-2-zstd.h5 zstd:3

What it holds is computed by `content`, which the test imports.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

SHAPE = (12, 10)
STRUCT = np.dtype([("id", "<u4"), ("at", "<f4", (2,)), ("when", "<M8[s]")])


def numbers(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Return an array of known bits."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    raw = (np.arange(size, dtype=np.uint64) * np.uint64(2654435761) >> np.uint64(7)).astype(np.uint8)
    if dtype.kind == "b":
        raw &= 1
    if dtype.kind == "U":
        return (raw[: size // 4] % 90 + 33).astype("<u4").view(dtype).reshape(shape)
    return raw.view(dtype).reshape(shape)


def content(version: int = 1) -> dict[str, Any]:
    """Return the global arrays, by name, of a file of a version."""
    found = {
        f"dtype {dtype}": numbers((5, 3), dtype)
        for dtype in ("?", "|i1", ">i2", "<u4", "<i8", "<f2", "<f4", ">f8", "<c16", "|S4", "<U3", "<M8[us]", "|V5")
    }
    found["struct"] = numbers((7,), STRUCT)
    found["scalar"] = numbers((), "<f8")
    found["empty"] = numbers((0, 4), "<f8")
    found["many pieces"] = numbers((64, 36), "<f8")
    for name in ("rows", "grid", "cyclic", "boxes", "counts", "indices", "copy", "a/b . ü"):
        found[name] = numbers(SHAPE, "<f8") + len(name)
    if version > 1:
        found["smooth"] = (np.arange(40 * 30, dtype="<i8") // 7).reshape(40, 30)
        found["pieces of rows"] = (np.arange(2 * 3 * 37) % 5).astype("<f8").reshape(2, 3, 37)
        found["noise of rows"] = numbers((2, 3, 37), "<f8")
        found["wide"] = numbers((4,), "V300")
    return found


VALUE = {"n": 2**80, "x": [1.5, float("inf"), None, True], "t": (b"\x00\xff", "ü"), "d": {"$float": "1"}}
COUNTS = [3, 0, 2, 5]


def main() -> None:
    from mpi4py import MPI

    from dmr.ckpt import (
        ArrayItem,
        Block,
        BlockCyclic,
        Box,
        Boxes,
        Counts,
        Indices,
        ParticlesItem,
        PerRankItem,
        RaggedItem,
        Replicated,
        RngItem,
        Store,
        StreamItem,
        ValueItem,
    )
    from dmr.ckpt.storage import filters
    from dmr.ckpt.transfer import plan

    compress = sys.argv[2] if len(sys.argv) > 2 else None
    if compress is None:
        plan.PIECE = 4096
    else:
        # Pieces at the end of a row and of an axis that are cut short, and small arrays that are compressed, too.
        plan.PIECE, filters.SMALLEST = 180, 16
    comm = MPI.COMM_WORLD
    assert comm.size == 3
    rank = comm.rank
    rows = np.array([[7, 0, 5, 9], [1, 2, 11, 3], [8, 4, 6, 10]][rank])
    ghosts = np.concatenate([rows, [(rows[0] + 1) % 12]])
    layouts: dict[str, Any] = {
        "rows": Block(),
        "grid": Block(axes=(0, 1), grid=(1, 3)),
        "cyclic": BlockCyclic((2, 3)),
        "boxes": Boxes(
            ((Box((0, 0), (12, 4)),), (Box((0, 4), (6, 10)), Box((6, 8), (12, 10))), (Box((6, 4), (12, 8)),))
        ),
        "counts": Counts((7, 0, 5)),
        "indices": Indices(ghosts, owned=4),
    }
    items: dict[str, Any] = {}
    for name, whole in content(1 if compress is None else 2).items():
        layout = layouts.get(name, Replicated())
        if isinstance(layout, Indices):
            local = whole[layout.indices]
        elif isinstance(layout, Boxes):
            local = np.concatenate([whole[box.slices].ravel() for box in layout.of[rank]])
        elif isinstance(layout, BlockCyclic):
            (part,) = layout.parts(whole.shape, 3, rank)
            local = whole[np.ix_(*(axis.positions(0, len(axis)) for axis in part.axes))]  # type: ignore[union-attr]
        else:
            local = np.array(whole[layout.boxes(whole.shape, 3)[rank][0].slices])
        items[name] = ArrayItem(local, layout, whole.shape)
    share = [slice(0, 2), slice(2, 3), slice(3, 4)][rank]
    starts = np.concatenate([[0], np.cumsum(COUNTS)])
    items["mesh"] = RaggedItem(np.array(COUNTS[share]), np.arange(10.0)[starts[share.start] : starts[share.stop]])
    items["dust"] = ParticlesItem(np.arange(4)[::-1][share], {"x": numbers((4, 3), "<f4")[share]})
    items["own"] = PerRankItem(np.full(2, rank + 0.25), "sum")
    items["stream"] = StreamItem(np.random.default_rng(rank), seed=5)
    items["value"] = ValueItem(VALUE)
    for bits in ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"):
        items[bits] = RngItem(np.random.Generator(getattr(np.random, bits)(1)))
    folder = Path(comm.bcast(tempfile.mkdtemp()))
    with Store(folder, comm, compress=compress) as store:
        saved = store.save(77, items, info={"golden": 1})
        if rank == 0:
            Path(sys.argv[1]).write_bytes(saved.path.read_bytes())


if __name__ == "__main__":
    main()
