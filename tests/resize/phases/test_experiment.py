from __future__ import annotations

import math

from dmr.resize.phases.experiment import half_widths, is_known, next_trial
from dmr.resize.view import Rate

SIZES = (1, 2, 4, 8, 16)


def rates(*sizes: int, phase: str | None = "solve", steps: int = 20) -> list[Rate]:
    return [Rate(size, 0.1 + 0.9 / size, steps, phase) for size in sizes]


def test_first_the_present_size_is_measured() -> None:
    found = next_trial([], "solve", SIZES, 4)
    assert (found.action, found.nodes) == ("measure", 4)
    found = next_trial(rates(4, steps=3), "solve", SIZES, 4, steps=10)
    assert found.action == "measure" and "3 of 10" in found.reason


def test_then_the_most_uncertain_size() -> None:
    found = next_trial(rates(4), "solve", SIZES, 4)
    assert (found.action, found.nodes) == ("size", 16)
    found = next_trial(rates(4, 16), "solve", SIZES, 16)
    assert (found.action, found.nodes) == ("size", 1)


def test_it_is_done_when_the_intervals_are_narrow_enough() -> None:
    known = rates(1, 4, 16)
    assert next_trial(known, "solve", SIZES, 1, within=0.15).action == "done"
    assert max(half_widths(known, "solve", SIZES).values()) < 0.15
    assert next_trial(known, "solve", SIZES, 1, within=0.001).action == "size"
    assert is_known(known, ["solve"], SIZES, within=0.15, steps=10)
    assert not is_known(known, ["solve", "write"], SIZES, within=0.15, steps=10)


def test_every_size_measured_is_enough_however_wide() -> None:
    assert next_trial(rates(*SIZES), "solve", SIZES, 16, within=1e-6).action == "done"
    assert is_known(rates(*SIZES), ["solve"], SIZES, within=1e-6, steps=10)


def test_phases_are_measured_each_for_itself() -> None:
    assert next_trial(rates(1, 4, 16), "write", SIZES, 4).action == "measure"
    assert half_widths([], "solve", SIZES) == dict.fromkeys(SIZES, math.inf)


def test_a_program_without_phases_is_one() -> None:
    assert is_known(rates(1, 4, 16, phase=None), [None], SIZES, within=0.15, steps=10)
