"""A program whose phases take turns: what is left is a mix of them, and the default policy does not flap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from dmr.resize.decide import decide
from dmr.resize.mixture import shares_of, speed_of
from dmr.resize.policy import load_policy
from dmr.resize.situation import Rules, Situation
from dmr.resize.view import Ahead, ClusterView, Costs, JobView, Rate, RunView

ASSEMBLE, SOLVE = 0.4, 0.12
"""Seconds a step on two nodes."""
COSTS = Costs(save=0.5, launch=2.0, load=0.5)


def a_run(*rates: Rate, **changes: object) -> RunView:
    view = RunView(
        100.0, "r", 1, 2, (2, 3, 4, 5, 6), 0.0, step=150, steps=400, job="1", rates=rates, costs=COSTS, started=0.0
    )
    return replace(view, **changes)  # type: ignore[arg-type]


MIXED = (Rate(2, ASSEMBLE, 50, "assemble"), Rate(2, SOLVE, 100, "solve"))


def test_what_is_left_is_like_what_was_so_far() -> None:
    for phase in ("assemble", "solve", "never seen", None):
        run = a_run(*MIXED, phase=phase)
        assert dict(shares_of(run)) == pytest.approx({"assemble": 1 / 3, "solve": 2 / 3})
        speed = speed_of(run)
        here = speed.at(2)
        assert here is not None and here.measured
        assert here.value == pytest.approx((ASSEMBLE + 2 * SOLVE) / 3)
        assert list(speed.samples) == [2] and speed.largest == 2
    left = Situation(a_run(*MIXED, phase="solve"), ClusterView(100.0, 8, 6), Rules()).seconds_left(2)
    assert left is not None and left.value == pytest.approx(250 * (ASSEMBLE + 2 * SOLVE) / 3)


def test_a_plan_that_is_known_counts_more_than_what_was() -> None:
    ahead = (Ahead("solve", 100, 200), Ahead("assemble", 200, 250), Ahead("output", 250, 300, 0.1))
    run = a_run(*MIXED, phase="solve", ahead=ahead)
    # 50 steps of solve and 50 of assemble to come, then 150 as so far.
    assert dict(shares_of(run)) == pytest.approx({"assemble": (50 + 50) / 250, "solve": (50 + 100) / 250})


def test_a_program_of_one_phase_is_as_before() -> None:
    run = a_run(Rate(2, SOLVE, 100, "solve"), phase="solve")
    assert shares_of(run) == ()
    assert speed_of(run).at(2) == speed_of(replace(run, phase=None)).at(2)


def test_each_phase_scales_for_itself() -> None:
    run = a_run(*MIXED, Rate(4, ASSEMBLE / 2, 50, "assemble"))
    speed = speed_of(run)
    at = speed.at(4)
    assert at is not None and not at.measured and list(speed.samples) == [2]
    assert at.low < at.value < at.high < (ASSEMBLE + 2 * SOLVE) / 3
    assert "assemble: measured at 2, 4 nodes" in speed.basis


def alternating(policy: str) -> Iterator[tuple[str, RunView]]:
    """Yield what the launcher does every two seconds: phases of four seconds each in turn, six of eight nodes idle.

    To the steps left at the speed of one phase more nodes bring minutes, at that of the other less than they cost.
    """
    options = {"deadline": {"within": "60"}, "energy": {"base": 4000.0}}
    chosen = load_policy(policy, {"dwell": 3.0, **options.get(policy, {})})
    steps = dict.fromkeys((("assemble", 1.0), ("solve", 0.05)), 0.0)
    pending: int | None = None
    step = 0.0
    for second in range(0, 40, 2):
        phase, speed = list(steps)[second // 4 % 2]
        wobble = 1 + 0.05 * (-1) ** (second // 2)
        steps[phase, speed] += 2 / speed
        step += 2 / speed
        rates = tuple(Rate(2, value * wobble, int(count), name) for (name, value), count in steps.items() if count)
        run = a_run(
            *rates, time=float(second + 2), step=int(step), steps=600, phase=phase, costs=Costs(1.0, 8.0, 1.0),
            pending=pending, pending_job=None if pending is None else "2",
        )  # fmt: skip
        if run.step >= 600:
            return
        jobs = (JobView("1", "running", 2, end=9e8, run="r"),)
        decision = decide(run, ClusterView(run.time, 8, 6, jobs), chosen)
        if decision.action == "expand":
            pending = decision.nodes
        elif decision.action == "cancel":
            pending = None
        yield decision.action, run


@pytest.mark.parametrize("policy", ["queue", "deadline", "energy"])
def test_phases_in_turn_make_no_policy_flap(policy: str) -> None:
    actions = [action for action, _ in alternating(policy)]
    assert len(actions) > 10
    assert actions.count("expand") == 1 and "cancel" not in actions, actions


def asked(pending: int | None, seconds: float, idle: int = 6, **changes: object) -> tuple[str, str]:
    """Ask for a run that was measured to scale so that six nodes save so many seconds, the change counted."""
    left = 250
    here = 0.4
    there = here - (seconds + 3.0) / left
    run = a_run(
        Rate(2, here, 100), Rate(6, there, 100), sizes=(2, 6), pending=pending, pending_job="2" if pending else None,
        **changes,
    )  # fmt: skip
    jobs = (JobView("1", "running", 2, end=9e8, run="r"),)
    decision = decide(run, ClusterView(100.0, 8, idle, jobs), load_policy("queue", {"dwell": 3.0}))
    return decision.action, decision.reason


def test_a_successor_is_not_given_up_for_a_gain_that_wobbles() -> None:
    assert asked(None, 20.0)[0] == "expand"
    for gain in (1.0, 0.0, -2.0):
        assert asked(None, gain)[0] == "stay", "not worth asking for"
        assert asked(6, gain)[0] == "stay", "nor worth giving up"
    action, reason = asked(6, -8.0)
    assert action == "cancel" and "later" in reason


def test_a_successor_is_given_up_for_hard_reasons() -> None:
    action, reason = asked(6, 20.0, idle=3)
    assert action == "cancel" and "idle" in reason
    action, reason = asked(6, 20.0, step=392)
    assert action == "cancel" and "the run ends in 3 s" in reason
