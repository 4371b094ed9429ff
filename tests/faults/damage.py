"""Bit flips and truncation at random places of a committed file."""

from __future__ import annotations

import logging
import os
import random
from pathlib import Path
from typing import Any

import common

from dmr.ckpt import Store
from dmr.ckpt.storage import h5file
from dmr.ckpt.storage.chunks import stored_ranges


def flips(folder: Path, count: int, dice: random.Random, compress: str | None = None) -> dict[str, Any]:
    """Flip one bit anywhere in the newest file.

    A flip in data, manifest, digests, places of pieces or seal has to be found. One elsewhere (HDF5's own structure,
    gaps between datasets) is either found or changes nothing: what is loaded is right in any case.
    """
    newest, guarded = _two(folder, compress)
    clean = newest.read_bytes()
    # What no digest guards: superblock, object headers, the group's index, gaps.
    ends = [0, *(end for _, end in sorted(guarded))]
    begins = [*(begin for begin, _ in sorted(guarded)), len(clean)]
    structure = [(end, begin) for end, begin in zip(ends, begins, strict=True) if begin > end]
    hits = found = 0
    for number in range(count):
        ranges = (guarded, structure, [(0, len(clean))])[number % 3]
        begin, end = dice.choice(ranges)
        at, bit = dice.randrange(begin, end), dice.randrange(8)
        raw = bytearray(clean)
        raw[at] ^= 1 << bit
        newest.write_bytes(raw)
        step = common.judge(folder, 1)
        touched = any(begin <= at < end for begin, end in guarded)
        assert step == 1 or not touched, f"a flip of bit {bit} of byte {at} was not found"
        hits += touched
        found += step == 1
        newest.with_name(newest.name + ".bad").unlink(missing_ok=True)
    return {"flips": count, "in_data_or_manifest": hits, "found": found, "missed": 0}


def truncations(folder: Path, count: int, dice: random.Random, compress: str | None = None) -> dict[str, Any]:
    """Cut the newest file at any length."""
    newest, _ = _two(folder, compress)
    clean = newest.read_bytes()
    for _ in range(count):
        newest.write_bytes(clean)
        os.truncate(newest, dice.randrange(len(clean)))
        assert common.judge(folder, 1) == 1, "a truncation was not found"
        newest.with_name(newest.name + ".bad").unlink(missing_ok=True)
    return {"truncations": count, "found": count, "missed": 0}


def _two(folder: Path, compress: str | None) -> tuple[Path, list[tuple[int, int]]]:
    """Save steps 1 and 2; return the newer file and the ranges of bytes that digests and seal guard."""
    import h5py

    logging.getLogger("dmr.ckpt").setLevel(logging.ERROR)
    common.small_pieces()
    with Store(folder, compress=compress) as store:
        store.save(1, common.state(1))
        newest = store.save(2, common.state(2)).path
    content = h5file.read_content(newest)
    assert len(content.chunks) > 20 or compress is None
    guarded = stored_ranges(content.manifest, content.chunks)
    with h5py.File(newest, "r") as file:
        for name in ("manifest", "digests", "seal", *(["chunks"] if compress else [])):
            data = file[name]
            begin = data.id.get_offset()
            guarded.append((begin, begin + data.size * data.dtype.itemsize))
    return newest, guarded
