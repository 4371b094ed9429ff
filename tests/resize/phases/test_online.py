"""Phases recognised while the run goes on: how soon, how surely, and nothing where there is nothing."""

from __future__ import annotations

import numpy as np
import pytest
from phase_truth import FLOORS, LEVELS, SPAN, Truth, scatter, series

from dmr.resize.phases.looks import Look, looks_of, merged, named_as_known
from dmr.resize.phases.online import CONFIRM, DOUBT, SURE, Recogniser
from dmr.resize.phases.recurring import Stretch
from dmr.resize.phases.signals import Signals


def stretches_of(truth: Truth, nodes: int = 4) -> list[Stretch]:
    bounds = [0, *truth.boundaries, truth.signals.times.size]
    return [
        Stretch(float(a), float(b), nodes, {}, None, name)
        for name, a, b in zip(truth.names, bounds, bounds[1:], strict=False)
    ]


def looks(noise: float, kind: str = "gaussian", seed: int = 1, nodes: int = 4) -> tuple[Look, ...]:
    truth = series(np.random.default_rng(seed), noise, occurrences=9, kind=kind)
    return looks_of(stretches_of(truth, nodes), truth.signals)


def told(recogniser: Recogniser, signals: Signals, starts: list[float] | None = None) -> list[str | None]:
    """Return the phase that was acted on at each sample; None while it is not sure."""
    found: list[str | None] = []
    for place, time in enumerate(signals.times):
        now = recogniser.take(float(time), {name: float(each[place]) for name, each in signals.values.items()})
        found.append(now.phase if now.sure else None)
        if starts is not None and now.since is not None and now.since not in starts:
            starts.append(now.since)
    return found


@pytest.mark.parametrize(
    ("kind", "noise", "lag"),
    [("gaussian", 0.02, 6), ("gaussian", 0.1, 6), ("gaussian", 0.3, 7), ("gaussian", 0.5, 9), ("heavy", 0.3, 7),
     ("uniform", 0.3, 7), ("correlated", 0.3, 14), ("spiky", 0.1, 8)],
)  # fmt: skip
def test_a_change_is_known_within_so_many_samples(kind: str, noise: float, lag: int) -> None:
    known = looks(noise, kind)
    late: list[int] = []
    off: list[float] = []
    wrong = samples = 0
    for seed in range(10):
        truth = series(np.random.default_rng(100 + seed), noise, kind=kind)
        starts: list[float] = []
        found = told(Recogniser(known, 4, FLOORS), truth.signals, starts)
        off += [min(abs(each - place) for place in (0, *truth.boundaries)) for each in starts]
        bounds = [0, *truth.boundaries, len(found)]
        for name, before, a, b in zip(truth.names, ("", *truth.names), bounds, bounds[1:], strict=False):
            right = [place for place in range(a, b) if found[place] == name]
            late.append(right[0] - a + 1 if right else b - a)
            wrong += sum(each not in (name, None) for each in found[a + lag : b])
            assert before == "" or found[a] in (before, None)
        samples += len(found)
    assert np.quantile(late, 0.95) <= lag
    assert CONFIRM <= np.median(late) <= CONFIRM + 2
    assert wrong / samples < 0.002
    assert np.quantile(off, 0.9) <= 3, "when it began is known better than that it did"


@pytest.mark.parametrize("kind", ["gaussian", "heavy", "uniform", "correlated", "spiky"])
@pytest.mark.parametrize("phase", list(LEVELS))
def test_no_other_phase_is_said_on_stationary_noise_in_more_than_5_percent(kind: str, phase: str) -> None:
    known = looks(0.3, kind)
    false = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        values = {name: LEVELS[phase][name] + 0.3 * span * scatter(rng, 150, kind) for name, span in SPAN.items()}
        found = told(Recogniser(known, 4, FLOORS), Signals(np.arange(150.0), values, FLOORS))
        false += any(each not in (phase, None) for each in found)
        assert sum(each == phase for each in found) > 120
    assert false / 40 <= 0.05


@pytest.mark.parametrize("kind", ["gaussian", "heavy", "uniform", "correlated", "spiky"])
def test_what_is_like_no_known_phase_is_none(kind: str) -> None:
    known = [each for each in looks(0.1, kind) if each.phase != "write"]
    false = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        values = {name: LEVELS["write"][name] + 0.1 * span * scatter(rng, 150, kind) for name, span in SPAN.items()}
        recogniser = Recogniser(known, 4, FLOORS)
        false += any(each is not None for each in told(recogniser, Signals(np.arange(150.0), values, FLOORS)))
        assert recogniser.now.confirmed and recogniser.now.phase is None and recogniser.now.confidence == 0
    assert false / 40 <= 0.05


def test_a_phase_nobody_knows_is_left_and_found_again() -> None:
    known = [each for each in looks(0.1) if each.phase != "write"]
    rng = np.random.default_rng(3)
    level = {name: np.repeat([LEVELS[each][name] for each in ("solve", "write", "assemble")], 60) for name in SPAN}
    values = {name: each + 0.1 * SPAN[name] * rng.normal(size=180) for name, each in level.items()}
    found = told(Recogniser(known, 4, FLOORS), Signals(np.arange(180.0), values, FLOORS))
    assert set(found[CONFIRM:60]) == {"solve"} and set(found[60 + DOUBT : 120]) == {None}
    assert set(found[120 + CONFIRM + 1 :]) == {"assemble"}


def test_a_run_of_one_phase_is_recognised_too() -> None:
    known = [each for each in looks(0.2) if each.phase == "solve"]
    rng = np.random.default_rng(4)
    values = {name: LEVELS["solve"][name] + 0.2 * span * rng.normal(size=100) for name, span in SPAN.items()}
    found = told(Recogniser(known, 4, FLOORS), Signals(np.arange(100.0), values, FLOORS))
    assert found[:CONFIRM] == [None] * (CONFIRM - 1) + ["solve"] and set(found[CONFIRM:]) == {"solve"}


def test_at_a_size_that_nobody_saw_phases_are_recognised_by_what_does_not_depend_on_it_and_learnt() -> None:
    truth = series(np.random.default_rng(5), 0.1, occurrences=9)
    speed = {"solve": 0.0, "assemble": -1.0, "write": 0.5}
    steps = np.array([speed[each.label] for each in stretches_of(truth) for _ in range(int(each.seconds))])
    signals = Signals(truth.signals.times, {**truth.signals.values, "seconds_per_step": steps}, FLOORS)
    known = looks_of(stretches_of(truth), signals)
    # On half of the nodes all is slower, each phase by another factor, and processors are a little busier.
    there = Signals(
        signals.times, {**signals.values, "cpu": 1.05 * signals.values["cpu"], "seconds_per_step": 0.3 - steps}, FLOORS
    )
    recogniser = Recogniser(known, 2, FLOORS, before="write")
    assert recogniser.now.phase == "write" and not recogniser.now.sure
    found = told(recogniser, there)
    true = [each.label for each in stretches_of(truth) for _ in range(int(each.seconds))]
    assert sum(a == b for a, b in zip(true, found, strict=True)) > 0.9 * len(true)
    assert sum(b not in (a, None) for a, b in zip(true, found, strict=True)) < 0.04 * len(true)
    learnt = {each.phase: each for each in recogniser.learnt}
    assert set(learnt) == set(LEVELS) and all(each.nodes == 2 for each in learnt.values())
    assert learnt["assemble"].mean["seconds_per_step"] == pytest.approx(1.3, abs=0.2)


def test_signals_that_earlier_runs_did_not_have_change_nothing() -> None:
    known = [each for each in looks(0.1) if each.phase != "write"]
    rng = np.random.default_rng(9)
    values = {name: LEVELS["solve"][name] + 0.1 * span * rng.normal(size=60) for name, span in SPAN.items()}
    values["waiting"] = np.full(60, 0.3)
    for nodes in (4, 2):
        found = told(Recogniser(known, nodes, FLOORS), Signals(np.arange(60.0), values, FLOORS))
        assert set(found) <= {"solve", None} and set(found[2 * CONFIRM :]) == {"solve"}


def test_where_phases_look_alike_what_is_expected_decides() -> None:
    alike = [Look("a", 4, {"cpu": 0.5}, {"cpu": 0.1}, 100), Look("b", 4, {"cpu": 0.5}, {"cpu": 0.1}, 100)]
    other = Look("c", 4, {"cpu": 0.0}, {"cpu": 0.1}, 100)
    rng = np.random.default_rng(6)
    recogniser = Recogniser([*alike, other], 4, FLOORS)
    for place in range(80):
        expected = "a" if place < 40 else "b"
        now = recogniser.take(float(place), {"cpu": 0.5 + 0.1 * rng.normal()}, expected)
        assert place % 40 < 39 or now.phase == expected and now.confidence > 0.5
    # What is seen speaks louder than what was expected.
    for place in range(80, 100):
        now = recogniser.take(float(place), {"cpu": 0.1 * rng.normal()}, "b")
    assert now.phase == "c" and now.sure


def test_nothing_known_or_nothing_seen_says_nothing() -> None:
    assert Recogniser([], 4).take(0.0, {"cpu": 1.0}).phase is None
    recogniser = Recogniser(looks(0.1), 4, FLOORS, before="nobody knows it")
    assert recogniser.take(0.0, {"cpu": float("nan")}).phase is None and recogniser.samples == 0
    assert SURE > 0.5


def test_phases_of_another_run_get_the_names_that_they_have() -> None:
    known = looks(0.1, seed=7)
    truth = series(np.random.default_rng(8), 0.1, occurrences=9)
    names = {"write": "phase 1", "solve": "phase 2", "assemble": "phase 3"}
    mine = [Stretch(each.start, each.end, 4, {}, None, names[each.label]) for each in stretches_of(truth)]
    found = named_as_known(mine, looks_of(mine, truth.signals), known, FLOORS)
    assert [each.label for each in found] == list(truth.names)
    # One that is new does not take a name that stands for something else.
    less = [each for each in known if each.phase != "write"]
    as_numbers = [Look({"solve": "phase 1", "assemble": "phase 2"}[each.phase], *list(vars(each).values())[1:])
                  for each in less]  # fmt: skip
    found = named_as_known(mine, looks_of(mine, truth.signals), as_numbers, FLOORS)
    renamed = {one.label: other.label for one, other in zip(stretches_of(truth), found, strict=True)}
    assert renamed == {"solve": "phase 1", "assemble": "phase 2", "write": "phase 3"}
    # What was declared keeps its name.
    declared = [Stretch(each.start, each.end, 4, {}, "mine", "mine") for each in mine]
    assert {each.label for each in named_as_known(declared, [], known, FLOORS)} == {"mine"}


def test_looks_of_several_runs_are_one_and_differences_between_them_widen_it() -> None:
    one, other = Look("a", 4, {"cpu": 0.4}, {"cpu": 0.03}, 100), Look("a", 4, {"cpu": 0.6}, {"cpu": 0.03}, 100)
    (both,) = merged([(1.0, one), (1.0, other)])
    assert both.mean["cpu"] == pytest.approx(0.5) and both.spread["cpu"] == pytest.approx(np.hypot(0.03, 0.1))
    (newer,) = merged([(0.25, one), (1.0, other)])
    assert newer.mean["cpu"] == pytest.approx(0.56)
