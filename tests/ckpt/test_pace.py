"""Which way large pieces go: around the page cache or through it, whichever is the faster one here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dmr.ckpt import ArrayItem, Block, Store
from dmr.ckpt.storage import direct
from dmr.ckpt.storage.pace import AGAIN, ENOUGH, Pace


def saves(pace: Pace, count: int, around: float, through: float, over: bool = True) -> list[bool]:
    """Return the ways of saves that take so many seconds around the page cache, and through it."""
    ways = []
    for _ in range(count):
        unbuffered = pace.unbuffered(over)
        ways.append(unbuffered)
        pace.note(unbuffered, over, ENOUGH, around if unbuffered else through)
    return ways


@pytest.mark.parametrize(("around", "through", "stays"), [(1.0, 2.0, True), (2.0, 1.0, False)])
def test_both_ways_are_tried_and_the_faster_one_stays(around: float, through: float, stays: bool) -> None:
    assert saves(Pace(), 14, around, through) == [True, True, False, False] + [stays] * 10


def test_the_slower_one_is_tried_again_now_and_then_and_taken_when_it_has_become_the_faster_one() -> None:
    pace = Pace()
    before = saves(pace, 4 + 2 * AGAIN, 1.0, 2.0)
    assert 1 <= before[4:].count(False) <= 2
    after = saves(pace, 2 * AGAIN, 1.0, 0.5)
    assert not any(after[-AGAIN // 2 :])


def test_new_files_and_those_that_are_written_over_are_judged_apart() -> None:
    pace = Pace()
    saves(pace, 6, 2.0, 1.0, over=False)
    assert not pace.unbuffered(over=False)
    assert pace.unbuffered(over=True)


def test_saves_of_the_one_kind_do_not_make_the_other_try_again() -> None:
    pace = Pace()
    saves(pace, 4, 1.0, 2.0, over=False)
    saves(pace, 3 * AGAIN // 4, 1.0, 2.0)
    assert all(saves(pace, AGAIN // 2, 1.0, 2.0, over=False))


def test_small_saves_tell_nothing() -> None:
    pace = Pace()
    for _ in range(20):
        assert pace.unbuffered(True)
        pace.note(True, True, ENOUGH - 1, 0.001)


def test_a_store_takes_both_ways_and_the_files_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    real = direct.DirectOutput.__init__

    def noted(self: direct.DirectOutput, *args: object, unbuffered: bool) -> None:
        opened.append(unbuffered)
        real(self, *args, unbuffered=unbuffered)  # type: ignore[arg-type]

    monkeypatch.setattr(direct.DirectOutput, "__init__", noted)
    values = np.random.default_rng(1).random(ENOUGH // 8 + 5)
    files = []
    with Store(tmp_path, keep=1) as store:
        for _ in range(7):
            saved = store.save(1, {"u": ArrayItem(values, Block(), values.shape)})
            files.append(saved.path.read_bytes())
    assert {True, False} == set(opened)
    assert len(set(files)) == 1
