"""The scheduler is asked about growth before it is asked for it: once, and its answer is kept until it has passed."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from dmr.launcher.engines.engine import Submission
from dmr.launcher.engines.local import LocalEngine
from dmr.launcher.supervise.witness import Witness
from dmr.resize.view import ClusterView, Decision, RunView

RUN = RunView(1000.0, "r", 3, 2, (2, 4, 6, 8), 0.0, job="7")
CLUSTER = ClusterView(1000.0, 8, 6)


@dataclass
class Scheduler(LocalEngine):
    """Says when jobs could start."""

    starts: dict[int, float] = field(default_factory=dict)
    asked: list[Submission] = field(default_factory=list)
    can_submit = True

    def __post_init__(self) -> None:
        super().__init__(8)

    def foresee(self, submission: Submission) -> float | None:  # type: ignore[override]
        self.asked.append(submission)
        return self.starts.get(submission.nodes[1])


@pytest.fixture
def now() -> list[float]:
    return [1000.0]


def growth(nodes: int) -> Decision:
    return Decision("expand", nodes, "idle", limit=600.0)


def test_a_later_start_is_kept_until_it_has_come(now: list[float]) -> None:
    engine = Scheduler({4: 1300.0, 6: 1002.0})
    witness = Witness(engine, lambda: now[0])  # type: ignore[arg-type]
    assert witness.contradicts(RUN, CLUSTER, growth(4))
    assert witness.told() == ((4, 300.0),)
    assert not witness.contradicts(RUN, CLUSTER, growth(4)), "it was told already, and is wanted none the less"
    assert not witness.contradicts(RUN, CLUSTER, growth(6)), "two seconds are at once"
    assert [each.nodes for each in engine.asked] == [(4, 4), (6, 6)]
    assert all((each.limit, each.generation) == (600.0, 4) for each in engine.asked)
    now[0] = 1200.0
    assert witness.told() == ((4, 100.0),)
    now[0] = 1295.0
    assert witness.told() == ()
    engine.starts[4] = 1295.0
    assert not witness.contradicts(RUN, CLUSTER, growth(4)) and len(engine.asked) == 3


@pytest.mark.parametrize(
    ("run", "decision"),
    [
        (RUN, Decision("stay", 2, "")),
        (RUN, Decision("shrink", 1, "")),
        (RUN, growth(8)),  # old and new can't stand side by side: it would be told of its own end
        (RunView(1000.0, "r", 3, 2, (2, 4), 0.0, job="7", pending=4), growth(6)),
        (RunView(1000.0, "r", 3, 2, (2, 4), 0.0, in_place=True), growth(4)),
    ],
)
def test_nobody_is_asked_without_need(run: RunView, decision: Decision, now: list[float]) -> None:
    engine = Scheduler({8: 9999.0})
    assert not Witness(engine, lambda: now[0]).contradicts(run, CLUSTER, decision)  # type: ignore[arg-type]
    assert engine.asked == []


def test_who_does_not_answer_is_not_asked_again(now: list[float]) -> None:
    engine = Scheduler()
    witness = Witness(engine, lambda: now[0])  # type: ignore[arg-type]
    assert not witness.contradicts(RUN, CLUSTER, growth(4)) and not witness.contradicts(RUN, CLUSTER, growth(6))
    assert len(engine.asked) == 1
