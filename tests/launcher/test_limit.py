"""A program that ends before its allocation does is left alone; one that doesn't, or may not, is not."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmr.launcher.run.rundir import Progress
from dmr.launcher.supervise.limit import ROOM, done_in_time, lead

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


@given(st.floats(0, 1e3), st.floats(0, 1e3), st.floats(1, 1e5), st.floats(0, 1))
def test_a_step_is_begun_before_it_is_asked(step: float, save: float, held: float, part: float) -> None:
    computing = held * part
    found = lead(step, save, held, computing)
    assert found <= max(0.25 * held, computing - step / 2)
