"""How long ranks wait for one another, where that is asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dmr.launcher.run.rundir import Generation, waits_folder
from dmr.waiting import Waiting, waiting


def waited(out: str) -> list[float]:
    return [float(seconds) for _, seconds in sorted(re.findall(r"^rank (\d+) waited (\S+)$", out, re.M))]


def test_those_who_wait_are_told_from_the_one_they_wait_for(hand, finish):
    first, *others = waited(finish(hand.start("waits.py", ranks=3, env={"DMR_TIME_COMM": "1"})).out)
    assert all(each > 0.6 for each in others), "20 steps of 0.05 s"
    assert first < min(others) / 2
    assert not waits_folder("token-1").exists()


def test_nothing_is_measured_that_nobody_asked_for(hand, finish):
    assert set(waited(finish(hand.start("waits.py", ranks=2)).out)) == {-1.0}


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "theirs"
    target.mkdir()
    link = tmp_path / "link"
    link.symlink_to(target)
    monkeypatch.setattr("dmr.waiting.waits_folder", lambda token: link)
    with pytest.raises(OSError, match="not this user's"):
        Waiting("t")
    monkeypatch.setenv("DMR_TIME_COMM", "1")
    assert waiting(Generation(tmp_path, 1, "t", 1)) is None
    assert waiting(None) is None


def test_waits_within_waits_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmr.waiting.waits_folder", lambda token: tmp_path / "w")
    now = iter([0.0, 5.0])
    monkeypatch.setattr("dmr.waiting.time.monotonic", lambda: next(now))
    counter = Waiting("t")
    with counter, counter:
        pass
    assert counter.seconds == 5.0
