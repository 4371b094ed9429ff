"""Which checkpoints stay, when the next is due, and saving in the background."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmr.ckpt import (
    ArrayItem,
    Automatic,
    Block,
    CheckpointInfo,
    EverySeconds,
    EverySteps,
    KeepBest,
    KeepEverySeconds,
    KeepEverySteps,
    KeepLast,
    Moment,
    Store,
    ValueItem,
    daly,
    young,
)


def found(*steps: int, every: float = 10.0) -> list[CheckpointInfo]:
    return [CheckpointInfo(Path(f"{step}"), step, 0, 1, step * every) for step in sorted(steps, reverse=True)]


def stay(rule: Any, *steps: int) -> list[int]:
    return sorted(int(path.name) for path in rule.chosen(found(*steps)))


def test_rules_choose() -> None:
    steps = (10, 20, 30, 45, 60, 75, 99, 120)
    assert stay(KeepLast(3), *steps) == [75, 99, 120]
    assert stay(KeepEverySteps(50), *steps) == [10, 60, 120]
    assert stay(KeepEverySeconds(500), *steps) == [10, 60, 120]
    assert stay(KeepLast(1) | KeepEverySteps(50) | KeepEverySteps(20), *steps) == [10, 20, 45, 60, 99, 120]
    assert stay(KeepEverySeconds(500)) == []


@pytest.mark.parametrize("wrong", [lambda: KeepLast(0), lambda: KeepEverySteps(0), lambda: KeepEverySeconds(0)])
def test_rules_that_keep_nothing_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="Keep"):
        wrong()


def test_a_store_keeps_by_its_rule(tmp_path: Path) -> None:
    scores = [0.5, 0.9, 0.1, 0.3, 0.2, 0.4]
    with Store(tmp_path, keep=KeepLast(2) | KeepBest("score")) as store:
        for step, score in enumerate(scores):
            store.save(step, {"x": ValueItem(step)}, info={"score": score})
        assert [each.step for each in store.list()] == [5, 4, 1]
    with Store(tmp_path, keep=KeepBest("score", greatest=False)) as store:
        store.save(6, {"x": ValueItem(6)}, info={"score": 7.0})
        assert [each.step for each in store.list()] == [6, 4], "the newest stays whatever the rule"


def test_intervals() -> None:
    start = Moment(0, 0.0)
    assert EverySteps(10).due(Moment(10, 0), start) and not EverySteps(10).due(Moment(9, 999), start)
    assert EverySeconds(5).due(Moment(1, 5), start) and not EverySeconds(5).due(Moment(99, 4.9), start)
    rule = Automatic(mtbf=20_000, least=10, first=60, margin=30)
    assert not rule.due(Moment(1, 59), start) and rule.due(Moment(1, 60), start)
    interval = rule.interval(4.0)
    assert interval == pytest.approx(young(4.0, 20_000), rel=0.02)
    assert not rule.due(Moment(1, interval - 1), start, cost=4.0) and rule.due(Moment(1, interval), start, cost=4.0)
    assert rule.interval(1e-9) == 10


def test_the_end_of_the_allocation_brings_one_more() -> None:
    rule = Automatic(mtbf=1e9, margin=30)
    assert not rule.due(Moment(1, 1000), Moment(0, 0), cost=5, left=41)
    assert rule.due(Moment(1, 1000), Moment(0, 0), cost=5, left=40)
    assert rule.due(Moment(1, 1000), Moment(0, 999), cost=5, left=39.5)
    assert not rule.due(Moment(2, 1001), Moment(1, 1000), cost=5, left=38), "it was saved when 39 were left"
    assert not rule.due(Moment(2, 1020), Moment(1, 1000), cost=5, left=19)


@given(st.floats(1e-3, 1e4), st.floats(1, 1e7))
def test_dalys_interval_is_the_best(cost: float, mtbf: float) -> None:
    """Compared with the expected run time of his model, equation 20: exp((t + cost)/mtbf) - 1 over t."""
    best = daly(cost, mtbf)
    assert 0 < best <= max(young(cost, mtbf), mtbf)
    if cost > mtbf / 2:
        return

    def time_per_work(interval: float) -> float:
        return math.expm1((interval + cost) / mtbf) / interval

    for other in (best / 2, best * 2):
        assert time_per_work(best) <= time_per_work(other) * 1.0001


def test_in_the_background_without_mpi(tmp_path: Path) -> None:
    struct = np.zeros(3, np.dtype([("a", "i1"), ("b", "f8")], align=True))
    struct.view(np.uint8)[:] = np.arange(struct.nbytes)
    bits = struct.tobytes()
    with Store(tmp_path) as store:
        store.save_later(1, {"s": ArrayItem(struct, Block(), (3,))})
        struct.view(np.uint8)[:] = 0
        saved = store.wait()
        assert saved is not None and store.load_newest().array("s").tobytes() == bits
        store.save_later(2, {"s": ArrayItem(struct[:2], Block(), (3,))})
        with pytest.raises(Exception, match="this rank's part has shape"):
            store.close()
    assert [each.step for each in Store(tmp_path).list()] == [1]


def test_in_the_background_on_ranks(on_ranks, tmp_path: Path) -> None:
    out = on_ranks(3, "later.py", tmp_path, timeout=60).stdout
    assert json.loads(out)["overlapped"] >= 1
