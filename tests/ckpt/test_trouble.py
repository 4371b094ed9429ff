"""One rank in trouble ends well for all: the same exception everywhere, or all ranks gone in time."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from dmr.ckpt import Store


def test_every_rank_gets_the_same_exception(on_ranks, tmp_path: Path) -> None:
    out = on_ranks(4, "trouble.py", tmp_path / "checkpoints", timeout=90).stdout
    assert json.loads(out)["cases"] >= 35


@pytest.mark.parametrize("moment", ["agree", "barrier", "counts", "gather"])
def test_a_rank_that_hangs_ends_all(on_ranks, tmp_path: Path, moment: str) -> None:
    begin = time.monotonic()
    found = on_ranks(3, "lost.py", tmp_path, "sleep", 1, moment, check=False)
    assert found.returncode != 0
    assert time.monotonic() - begin < 25
    assert "saving step 2" in found.stderr and "one of them is lost, so all ranks end now" in found.stderr
    loaded = Store(tmp_path).load_newest()
    assert loaded is not None and loaded.step == 1


@pytest.mark.parametrize(("rank", "moment"), [(0, "exchange"), (2, "barrier")])
def test_a_rank_that_dies_ends_all(on_ranks, tmp_path: Path, rank: int, moment: str) -> None:
    begin = time.monotonic()
    found = on_ranks(3, "lost.py", tmp_path, "kill", rank, moment, check=False)
    assert found.returncode != 0 and "going" in found.stdout
    assert time.monotonic() - begin < 25
    loaded = Store(tmp_path).load_newest()
    assert loaded is not None and loaded.step == 1


def test_one_rank_lacks_a_package_and_one_has_all_the_data(on_ranks, tmp_path: Path) -> None:
    on_ranks(2, "uneven.py", tmp_path, timeout=40)


def test_ranks_share_their_cores(on_ranks) -> None:
    on_ranks(4, "cores.py", timeout=40)
