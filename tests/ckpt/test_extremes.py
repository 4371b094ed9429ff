"""Sizes and kinds of data beyond what is common."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from dmr.ckpt import ArrayItem, Block, Store
from dmr.ckpt.state.dtypes import ML_DTYPES

GIB = 1 << 30


def test_ten_thousand_arrays(on_ranks, tmp_path: Path) -> None:
    out = json.loads(on_ranks(2, "extremes.py", tmp_path, "many", timeout=90).stdout)
    assert out["arrays"] == 10_000


def test_more_than_two_gib_a_rank(on_ranks, tmp_path: Path) -> None:
    """Sparse: next to nothing is written, and next to no memory is used."""
    disk = shutil.disk_usage(tmp_path).free
    if disk < 4 * GIB:
        pytest.skip(f"the file has 2.1 GiB, and {tmp_path} has {disk / GIB:.1f} GiB free; 4 are wanted")
    out = json.loads(on_ranks(2, "extremes.py", tmp_path, "large", timeout=120).stdout)
    assert out["bytes"] > 2 * GIB
    assert out["skipped"] > 0.95 * out["bytes"], "the test is to be cheap"


@pytest.mark.parametrize("name", ML_DTYPES)
def test_every_bit_pattern_of_ml_dtypes(tmp_path: Path, name: str) -> None:
    import ml_dtypes  # of the extra dev: its absence is a failure

    dtype = np.dtype(getattr(ml_dtypes, name))
    bits = np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}").reshape(-1, 16)
    with Store(tmp_path) as store:
        store.save(1, {"weights": ArrayItem(bits.view(dtype), Block(), bits.shape)})
        loaded = store.load_newest()
        assert loaded is not None
        found = loaded.array("weights")
    assert loaded.specs["weights"].dtype == found.dtype == dtype
    assert (found.view(bits.dtype) == bits).all()
    assert float(found[0, 0]) == 0 and found.shape == bits.shape
