from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest
from phase_truth import FLOORS, LEVELS, SPAN, Truth, score, series, stationary

from dmr.resize.phases.changes import PhasesError, find_changes
from dmr.resize.phases.detect import Declared, Held, find_phases
from dmr.resize.phases.signals import Signals, SignalsError

pytest.importorskip("ruptures")


@pytest.mark.parametrize(
    ("kind", "noise"),
    [(kind, noise) for kind in ("gaussian", "heavy", "uniform") for noise in (0.02, 0.1, 0.2, 0.3, 0.5)]
    + [("correlated", noise) for noise in (0.02, 0.1, 0.2, 0.3)],
)
def test_boundaries_within_2_samples_and_f1_of_090_at_noise_from_2_to_50_percent_of_a_change(
    kind: str, noise: float
) -> None:
    rng = np.random.default_rng(7)
    hits = false = missed = 0
    for _ in range(25):
        truth = series(rng, noise, kind=kind)
        one = score([each.index for each in find_changes(truth.signals)], truth.boundaries, tolerance=2)
        hits, false, missed = hits + one[0], false + one[1], missed + one[2]
    assert hits > 100
    assert 2 * hits / (2 * hits + false + missed) >= 0.9


@pytest.mark.parametrize("count", [60, 600])
@pytest.mark.parametrize("kind", ["gaussian", "heavy", "uniform", "correlated", "spiky"])
@pytest.mark.parametrize("floors", [None, 1e-6])
def test_no_phase_invented_on_stationary_noise_in_more_than_5_percent(
    kind: str, count: int, floors: float | None
) -> None:
    rng = np.random.default_rng(8)
    invented = 0
    for _ in range(60):
        signals = stationary(rng, kind, count)
        if floors is not None:  # nothing is too small to matter: only the penalty holds back
            signals = dataclasses.replace(signals, floors=dict.fromkeys(signals.values, floors))
        invented += bool(find_changes(signals))
    assert invented / 60 <= 0.05


def test_one_signal_that_changes_is_enough() -> None:
    rng = np.random.default_rng(9)
    truth = series(rng, 0.1)
    values = {name: LEVELS["solve"][name] + 0.1 * SPAN[name] * rng.normal(size=each.size)
              for name, each in truth.signals.values.items()}  # fmt: skip
    signals = Signals(truth.signals.times, {**values, "cpu": truth.signals.values["cpu"]}, FLOORS)
    assert score([each.index for each in find_changes(signals)], truth.boundaries)[1:] == (0, 0)


def test_a_long_series_is_searched_coarsely_and_its_boundaries_are_still_exact() -> None:
    truth = series(np.random.default_rng(10), 0.1, occurrences=12, shortest=1500, longest=4000)
    assert truth.signals.times.size > 20_000
    assert score([each.index for each in find_changes(truth.signals)], truth.boundaries)[1:] == (0, 0)


def test_changes_too_small_to_matter_are_none() -> None:
    rng = np.random.default_rng(11)
    level = np.repeat([0.90, 0.92, 0.90], 200)  # ten times its noise, and still only 2 % of a processor
    signals = Signals(np.arange(600.0), {"cpu": level + 0.002 * rng.normal(size=600)}, {"cpu": 0.03})
    assert find_changes(signals) == ()
    assert len(find_changes(dataclasses.replace(signals, floors={"cpu": 0.01}))) == 2


def test_unknown_samples_and_constant_signals_change_nothing() -> None:
    truth = series(np.random.default_rng(12), 0.1)
    values = {name: each.copy() for name, each in truth.signals.values.items()}
    for each in values.values():
        each[::13] = np.nan
    values["swap"] = np.zeros(truth.signals.times.size)
    values["gpu"] = np.full(truth.signals.times.size, np.nan)
    found = find_changes(Signals(truth.signals.times, values, FLOORS))
    assert score([each.index for each in found], truth.boundaries)[1:] == (0, 0)


def labels_at_each_second(truth: Truth, noise_seed: int = 0) -> tuple[list[str], list[str]]:
    count = truth.signals.times.size
    found = find_phases(truth.signals, [Held(0.0, float(count), 4)])
    bounds = [0, *truth.boundaries, count]
    true = [name for name, a, b in zip(truth.names, bounds, bounds[1:], strict=False) for _ in range(b - a)]
    label = [each.label for second in range(count) for each in found if each.start <= second < each.end]
    return true, label


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.2, 0.3])
def test_recurring_phases_are_the_same(noise: float) -> None:
    rng = np.random.default_rng(13)
    right = total = 0
    for _ in range(10):
        true, label = labels_at_each_second(series(rng, noise, occurrences=9))
        pairs = {name: max(set(of), key=of.count) for name in set(true)
                 if (of := [each for t, each in zip(true, label, strict=True) if t == name])}  # fmt: skip
        assert len(set(pairs.values())) == len(pairs), "two phases were taken for one"
        right += sum(pairs[t] == each for t, each in zip(true, label, strict=True))
        total += len(true)
    assert right / total > 0.98


def test_phases_are_the_same_across_sizes_and_a_change_of_size_is_no_phase() -> None:
    rng = np.random.default_rng(14)
    first = series(rng, 0.05, occurrences=6)
    count = first.signals.times.size
    # On twice the nodes each does less: lower levels, in the same order.
    values = {name: np.concatenate([each, 0.9 * each]) for name, each in first.signals.values.items()}
    signals = Signals(np.arange(2.0 * count), values, FLOORS)
    found = find_phases(signals, [Held(0, count, 4), Held(count, 2 * count, 8)])
    four = [each.label for each in found if each.nodes == 4]
    eight = [each.label for each in found if each.nodes == 8]
    assert four == eight
    assert len(set(four)) == len(set(first.names))


def test_declared_phases_are_kept_and_found_ones_split_them() -> None:
    rng = np.random.default_rng(15)
    level = np.repeat([0.9, 0.2, 0.9, 0.2, 0.9], [60, 60, 60, 60, 60])
    signals = Signals(np.arange(300.0), {"cpu": level + 0.02 * rng.normal(size=300)}, FLOORS)
    # The second change is declared a second early: it is not found once more.
    declared = [Declared("compute", 0, 119), Declared("output", 119, 121), Declared("compute", 121, 300)]
    found = find_phases(signals, [Held(0, 300, 2)], [Declared("all", 0, 119), Declared("rest", 119, 300)])
    assert [(each.label, round(each.start)) for each in found] == [
        ("all/1", 0), ("all/2", 60), ("rest/1", 119), ("rest/2", 180), ("rest/1", 240)
    ]  # fmt: skip
    found = find_phases(signals, [Held(0, 300, 2)], [Declared("all", 0, 119)], split=False)
    assert [(each.label, round(each.start)) for each in found] == [
        ("all", 0), ("phase 1", 119), ("phase 2", 180), ("phase 1", 240)
    ]  # fmt: skip
    found = find_phases(signals.cut(0, 60), [Held(0, 60, 2)], declared[:1])
    assert [(each.label, each.name) for each in found] == [("compute", "compute")]


def test_no_samples_at_all_leave_the_declared_phases() -> None:
    signals = Signals(np.zeros(0), {}, {})
    found = find_phases(signals, [Held(0, 10, 1), Held(12, 20, 2)], [Declared("a", 0, 5), Declared("b", 5, 15)])
    assert [(each.label, each.start, each.end, each.nodes) for each in found] == [
        ("a", 0, 5, 1), ("b", 5, 10, 1), ("b", 12, 15, 2), ("phase 1", 15, 20, 2)
    ]  # fmt: skip


def test_signals_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SignalsError, match="ascend"):
        Signals(np.array([0.0, 0.0]), {})
    with pytest.raises(SignalsError, match="'cpu' has shape"):
        Signals(np.array([0.0, 1.0]), {"cpu": np.zeros(3)})


def test_without_ruptures_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ruptures", None)
    with pytest.raises(PhasesError, match="pip install"):
        find_changes(series(np.random.default_rng(0), 0.1).signals)


def test_a_declared_phase_without_a_change_inside_is_one_however_it_differs() -> None:
    rng = np.random.default_rng(16)
    level = np.repeat([0.9, 0.1, 0.5, 0.1], 40)
    signals = Signals(np.arange(160.0), {"cpu": level + 0.02 * rng.normal(size=160)}, FLOORS)
    names = ("solve", "write", "solve", "write")
    declared = [Declared(name, 40 * place, 40 * place + 40) for place, name in enumerate(names)]
    found = find_phases(signals, [Held(0, 160, 2)], declared)
    assert [each.label for each in found] == ["solve", "write", "solve", "write"]
    # At another size likewise.
    found = find_phases(signals, [Held(0, 80, 2), Held(80, 160, 4)], declared)
    assert [each.label for each in found] == ["solve", "write", "solve", "write"]


def test_speed_and_memory_depend_on_the_size_and_do_not_tell_phases_apart_between_sizes() -> None:
    rng = np.random.default_rng(17)
    cpu = np.repeat([0.9, 0.2, 0.9, 0.2], 40) + 0.02 * rng.normal(size=160)
    memory = np.repeat([4e9, 4e9, 9e9, 9e9], 40)
    speed = np.repeat([0.0, 0.1, 0.6, 0.1], 40) + 0.005 * rng.normal(size=160)  # decades: one scales, one does not
    floors = {"cpu": 0.03, "seconds_per_step": 0.06}
    signals = Signals(np.arange(160.0), {"cpu": cpu, "memory": memory, "seconds_per_step": speed}, floors)
    found = find_phases(signals, [Held(0, 80, 8), Held(80, 160, 2)])
    assert [(each.label, each.nodes) for each in found] == [
        ("phase 1", 8), ("phase 2", 8), ("phase 1", 2), ("phase 2", 2)
    ]  # fmt: skip


def test_memory_tells_phases_apart_within_a_start_and_not_between_two() -> None:
    rng = np.random.default_rng(18)
    cpu = np.full(240, 0.9) + 0.02 * rng.normal(size=240)
    memory = np.repeat([4e9, 8e9, 4e9, 5e9], 60) + 1e7 * rng.normal(size=240)
    signals = Signals(np.arange(240.0), {"cpu": cpu, "memory": memory}, {"cpu": 0.03})
    found = find_phases(signals, [Held(0, 180, 4), Held(180, 240, 4)])
    assert [each.label for each in found][:3] == ["phase 1", "phase 2", "phase 1"]
    assert found[3].label in ("phase 1", "phase 2"), "after a restart it has more of it, and does the same"


def at_sizes(*levels: dict[str, float], each: int = 60) -> Signals:
    """Return signals of a program that does the same all the time, at a size of its own for each of the levels."""
    rng = np.random.default_rng(19)
    values = {
        name: np.repeat([level[name] for level in levels], each) + 0.005 * rng.normal(size=each * len(levels))
        for name in levels[0]
    }
    floors = {"cpu": 0.03, "busiest": 0.06, "write": 0.3, "seconds_per_step": 0.06}
    return Signals(np.arange(float(each * len(levels))), values, floors)


def level(cpu: float, seconds: float, write: float = 1.0) -> dict[str, float]:
    return {"cpu": cpu, "busiest": 1.0, "write": write, "seconds_per_step": float(np.log10(seconds))}


def held(*sizes: int, goes_on: bool = True, each: int = 60) -> list[Held]:
    return [Held(each * i, each * (i + 1), nodes, goes_on) for i, nodes in enumerate(sizes)]


def test_a_uniform_program_has_one_phase_at_whatever_sizes() -> None:
    """Its processors and its steps are others at each size, by no more than the size explains."""
    signals = at_sizes(level(0.95, 1.0), level(0.7, 0.4, 0.4), level(0.85, 0.65, 0.7), level(0.94, 1.02))
    assert {each.label for each in find_phases(signals, held(1, 4, 2, 1))} == {"phase 1"}
    signals = at_sizes(level(0.7, 0.4), level(0.85, 0.65), level(0.95, 1.0), level(0.6, 0.5))
    assert {each.label for each in find_phases(signals, held(4, 2, 1, 3))} == {"phase 1"}


def test_what_a_change_of_size_does_not_explain_is_another_phase() -> None:
    slower = at_sizes(level(0.95, 0.5), level(0.6, 2.5))
    assert [each.label for each in find_phases(slower, held(1, 2))] == ["phase 1", "phase 2"], "more nodes, slower"
    writes = at_sizes(level(0.95, 0.5, 0.0), level(0.9, 0.4, 2.5))
    assert [each.label for each in find_phases(writes, held(1, 2))] == ["phase 1", "phase 2"]


def test_a_size_asked_for_another_phase_is_no_reason_to_take_the_two_for_one() -> None:
    signals = at_sizes(level(0.95, 1.0), level(0.6, 0.5))
    assert {each.label for each in find_phases(signals, held(1, 2))} == {"phase 1"}
    assert [each.label for each in find_phases(signals, held(1, 2, goes_on=False))] == ["phase 1", "phase 2"]
