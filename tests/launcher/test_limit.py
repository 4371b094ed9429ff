"""A program that ends before its allocation does is left alone; one that doesn't, or may not, is not."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dmr.launcher.run.rundir import Progress
from dmr.launcher.supervise.limit import done_in_time
from dmr.resize import limit as limits
from dmr.resize.limit import LEAST_STEP, ROOM, lead, limit_for, spare

REPORT = Progress("run", 1, "token", "running", 0.0, step=45, steps=50, seconds_per_step=1.0)


def test_a_program_that_is_nearly_done_stays() -> None:
    assert done_in_time(REPORT, 1.0, 0.1, left=14.0)
    assert not done_in_time(REPORT, 1.0, 0.1, left=12.0)


@pytest.mark.parametrize(
    "report",
    [
        None,
        dataclasses.replace(REPORT, steps=None),
        dataclasses.replace(REPORT, step=50),
        dataclasses.replace(REPORT, steps=40),
    ],
)
def test_nothing_is_promised_where_the_end_is_not_known(report: Progress | None) -> None:
    assert not done_in_time(report, 1.0, 0.1, left=1e6)


def test_nothing_is_promised_without_a_pace() -> None:
    assert not done_in_time(dataclasses.replace(REPORT, seconds_per_step=None), None, 0.1, left=1e6)


def test_the_slower_pace_counts() -> None:
    assert not done_in_time(REPORT, 10.0, 0.1, left=30.0)
    assert not done_in_time(dataclasses.replace(REPORT, seconds_per_step=10.0), 1.0, 0.1, left=30.0)


@given(st.integers(0, 99), st.floats(1e-3, 1e3), st.floats(0, 1e3), st.floats(0, 1e6))
def test_there_is_always_room_for_a_step_and_two_saves(step: int, pace: float, save: float, left: float) -> None:
    report = dataclasses.replace(REPORT, step=step, steps=100, seconds_per_step=pace)
    if done_in_time(report, None, save, left):
        assert left > (100 - step) * pace + pace + 2 * save + ROOM


@pytest.mark.parametrize(
    ("step", "save", "held", "found"),
    [
        (0.1, 0.5, 7200.0, 61.1),  # a step, two saves, a minute
        (0.1, 0.5, 60.0, 15.0),  # a quarter of a minute
        (20.0, 1.0, 60.0, 31.25),  # in which a step would not end
        (0.1, 20.0, 60.0, 30.125),  # nor a save
        (40.0, 1.0, 60.0, 37.0),  # not before the middle of the first step: one is done at least
        (300.0, 10.0, 7200.0, 392.5),
    ],
)
def test_how_long_before_the_end_it_is_asked(step: float, save: float, held: float, found: float) -> None:
    assert lead(step, save, held, held - 3.0) == pytest.approx(min(step + 2 * save + 60.0, found))


@pytest.mark.parametrize(
    ("save", "held", "computing", "found"),
    [
        (0.0, 5.0, 4.0, 3.0),  # all of it would be needed: asked a second after the first step began, not with it
        (10.0, 60.0, 17.0, 16.0),
        (0.5, 100.0, 10.0, 9.0),  # a quarter is more than was left when the first step began
        (0.5, 100.0, 1.0, 0.5),
        (0.5, 100.0, -1.0, 0.0),  # the scheduler lets jobs run over
    ],
)
def test_while_the_step_is_unknown_one_is_begun(save: float, held: float, computing: float, found: float) -> None:
    assert lead(0.0, save, held, computing) == pytest.approx(found)


@given(st.floats(0, 1e3), st.floats(0, 1e3), st.floats(1, 1e5), st.floats(0, 1))
def test_a_step_is_begun_before_it_is_asked(step: float, save: float, held: float, part: float) -> None:
    computing = held * part
    found = lead(step, save, held, computing)
    assert 0 <= found <= computing - min(max(step, LEAST_STEP), computing) / 2


steps_ = st.floats(0.01, 1e3)
saves = st.floats(0, 300)


def leaves(step: float, save: float, asked: float, end: float, left: float) -> bool:
    """Whether a launcher has a program leave so many seconds before the limit that would end ``end`` before it."""
    rest = math.ceil((left - end) / step)
    report = dataclasses.replace(REPORT, step=10**9 - rest, steps=10**9, seconds_per_step=step)
    return left <= asked and not done_in_time(report, step, save, left)


@settings(max_examples=300)
@given(st.floats(1, 1e5), steps_, saves, st.floats(0, 1), st.floats(0, 1), st.floats(1, 1.5))
@example(120, 20, 5, 1, 1, 1)
@example(120, 60, 5, 1, 1, 1)
def test_a_run_that_ends_its_spare_time_before_the_limit_is_let_finish(
    limit: float, step: float, save: float, held: float, computing: float, more: float
) -> None:
    """At no time before its end, at whatever place in a step it is, when its pace is as foreseen."""
    asked = lead(step, save, limit * held, limit * held * computing)
    end = more * spare(asked, step, save) + 1e-6
    for place in range(100):
        left = end + (asked - end) * (place + 1) / 100
        assert left <= end or not leaves(step, save, asked, end, left)


@given(steps_, saves, st.floats(2, 1e5))
def test_spare_time_is_not_wasted(step: float, save: float, limit: float) -> None:
    """A run that ends a little later is asked at the first look, if a step has just begun then."""
    asked = lead(step, save, limit, limit)
    end = 0.99 * spare(asked, step, save) - 0.01
    if end > 0:
        assert not limits.done_in_time(asked - end + step, step, save, asked)


@settings(max_examples=300)
@given(st.floats(1, 1e5), steps_, saves, st.floats(0, 1), st.floats(0, 1), st.floats(1, 3))
@example(90, 20, 5, 1, 1, 1)
def test_growth_into_the_limit_that_it_needs_is_not_left(
    duration: float, step: float, save: float, held: float, computing: float, more: float
) -> None:
    """Nor in any longer one: the launcher's own start and the load may take any part of it."""
    limit = limit_for(duration, step, save)
    assert limit >= duration
    longer = limit * more
    asked = lead(step, save, longer * held, longer * held * computing)
    assert duration + spare(asked, step, save) <= longer + 1e-6 * longer


@pytest.mark.parametrize(
    ("limit", "step", "save", "asked"), [(120, 20, 5, 36.25), (120, 60, 5, 86.25), (7200, 0.1, 0.5, 61.1)]
)
def test_the_spare_time_of_some_limits(limit: float, step: float, save: float, asked: float) -> None:
    assert lead(step, save, limit, limit) == pytest.approx(asked)
    found = min(asked, asked + step - (asked - 5 - step - 2 * save) / 1.25)
    assert spare(asked, step, save) == pytest.approx(found)
    assert limit_for(limit - found, step, save) == pytest.approx(limit)
