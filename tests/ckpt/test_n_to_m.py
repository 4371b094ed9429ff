"""Any number of ranks to any other, bitwise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def test_all_pairs_both_drivers(on_ranks, tmp_path: Path) -> None:
    import h5py

    parallel = h5py.get_config().mpi
    found = on_ranks(1, "has_mpio.py")
    drivers = "direct,mpio" if parallel or "yes" in found.stdout else "direct"
    out = json.loads(on_ranks(6, "n_to_m.py", tmp_path, drivers, timeout=120).stdout)
    assert out["pairs"] == 36
    if drivers == "direct":
        pytest.skip("h5py has no MPI here: the driver direct was tested alone")


@pytest.mark.parametrize("seen", ["all", "some", "few", "none"])
def test_irregular_layouts(on_ranks, tmp_path: Path, seen: str) -> None:
    """Block-cyclic, boxes, counts and index lists, each into each of the others; in shared memory and by messages."""
    out = json.loads(on_ranks(4, "layouts.py", tmp_path, "direct", seen, timeout=120).stdout)
    assert out["arrays"] > 500
    assert out["leftovers"] == []


def test_ragged_rows_particles_and_per_rank_state(on_ranks, tmp_path: Path) -> None:
    out = json.loads(on_ranks(4, "groups.py", tmp_path, timeout=120).stdout)
    assert out["pairs"] == 16
