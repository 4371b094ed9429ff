from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmr.resize.families import Fit, fit
from dmr.resize.posterior import PRIOR
from dmr.resize.samples import Sample, clean
from dmr.resize.speed import Speed
from dmr.resize.view import Rate


def amdahl(n: float, f: float = 0.97) -> float:
    return 1 - f + f / n


def usl(n: float, sigma: float = 0.02, kappa: float = 0.002) -> float:
    return (1 + sigma * (n - 1) + kappa * n * (n - 1)) / n


def sevcik(n: float) -> float:
    return 0.9 / n + 0.03 + 0.002 * n


def exact(law: object, sizes: tuple[int, ...]) -> list[Sample]:
    return [Sample(n, law(n), 0.03, 10) for n in sizes]  # type: ignore[operator]


def test_least_squares_finds_the_parameters() -> None:
    found = fit("amdahl", exact(amdahl, (1, 2, 8)))
    assert found is not None
    assert found.parameters() == pytest.approx({"seconds_on_one": 1.0, "parallel_fraction": 0.97})
    found = fit("usl", exact(usl, (1, 4, 16, 32)))
    assert found is not None
    assert found.parameters() == pytest.approx({"seconds_on_one": 1.0, "sigma": 0.02, "kappa": 0.002})
    assert found.fastest() == pytest.approx(math.sqrt(0.98 / 0.002))
    found = fit("sevcik", exact(sevcik, (1, 4, 16)))
    assert found is not None
    assert found.parameters() == pytest.approx({"phi_work": 0.9, "alpha": 0.03, "beta": 0.002})


def test_coefficients_are_never_negative() -> None:
    better_than_linear = [Sample(1, 1.0, 0.03, 1), Sample(2, 0.4, 0.03, 1), Sample(4, 0.15, 0.03, 1)]
    for name in ("amdahl", "usl", "sevcik"):
        found = fit(name, better_than_linear)  # type: ignore[arg-type]
        assert found is not None
        assert min(found.coefficients) >= 0


def test_too_few_sizes_are_not_fitted() -> None:
    assert fit("amdahl", exact(amdahl, (4,))) is None
    assert fit("usl", exact(usl, (1, 2))) is None
    assert Speed([Rate(4, 1.0)]).best is None


def test_the_law_is_chosen_by_evidence() -> None:
    curved = Speed([Rate(n, usl(n, kappa=0.01)) for n in (1, 2, 4, 8, 16, 32)])
    assert curved.evidence["amdahl"] < 0.01
    assert curved.best is not None and curved.best.fastest() == pytest.approx(math.sqrt(0.98 / 0.01), rel=0.05)
    simple = Speed([Rate(n, amdahl(n)) for n in (1, 2, 4, 8, 16, 32)])
    assert max(simple.evidence, key=lambda name: simple.evidence[name]) == "amdahl"
    assert simple.best is not None and simple.best.family == "amdahl"


def test_nothing_measured() -> None:
    assert Speed([]).at(4) is None
    assert "no speed" in Speed([]).basis


def test_one_size_is_honest() -> None:
    speed = Speed([Rate(4, 1.0)])
    assert speed.evidence == pytest.approx(PRIOR)
    near, far = speed.at(8), speed.at(64)
    assert near is not None and far is not None
    assert near.low <= 0.5 and near.high >= 0.9
    assert 0.5 < near.value < 1, "some gain, less than in proportion"
    assert far.high / far.low > near.high / near.low
    assert "assumed" in speed.basis


def test_the_interval_narrows_as_sizes_are_added() -> None:
    widths = []
    for sizes in ((4,), (4, 8), (2, 4, 8), (2, 4, 8, 16)):
        found = Speed([Rate(n, amdahl(n)) for n in sizes]).at(32)
        assert found is not None
        widths.append(found.high / found.low)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 1.5


@pytest.mark.parametrize("sizes", [(4,), (4, 8), (2, 4, 8), (1, 2, 4, 8, 16)])
def test_intervals_hold_the_truth(sizes: tuple[int, ...]) -> None:
    """Of 90 % intervals at sizes not measured, at least 85 % hold it, over laws and noise drawn at random."""
    dice = random.Random(5)
    held = asked = 0
    for _ in range(150):
        serial, overhead = 10 ** dice.uniform(-4, -0.5), 10 ** dice.uniform(-6, -3)
        overhead *= dice.random() < 0.5

        def truth(n: float, s: float = serial, o: float = overhead) -> float:
            return 1 / n + s + o * n

        speed = Speed([Rate(n, truth(n) * math.exp(dice.gauss(0, 0.03))) for n in sizes])
        for n in (3, 6, 12, 24, 48):
            found = speed.at(n)
            assert found is not None
            held += found.low <= truth(n) <= found.high
            asked += 1
    assert held / asked >= 0.85, held / asked


def test_warm_up_and_outliers_are_left_out_and_counted() -> None:
    rates = [Rate(4, 3.0)] + [Rate(4, 1.0 + 0.01 * k) for k in range(-3, 4)] + [Rate(4, 9.0)]
    found = clean(rates)
    assert (found.warm_up, found.outliers) == (1, 1)
    assert found.samples[0].seconds == pytest.approx(1.0, abs=0.02)
    assert "1 as warm-up, 1 as outliers" in Speed(rates).basis


def test_scatter_widens_the_interval() -> None:
    quiet = Speed([Rate(4, 1.0)] * 6).at(4)
    noisy = Speed([Rate(4, value) for value in (0.7, 1.3, 0.8, 1.2, 0.75, 1.25)]).at(4)
    assert quiet is not None and noisy is not None
    assert noisy.high / noisy.low > quiet.high / quiet.low > 1


def test_each_phase_has_its_own_speed() -> None:
    rates = [Rate(4, 1.0, phase="a"), Rate(4, 5.0, phase="b")]
    for phase, seconds in (("a", 1.0), ("b", 5.0)):
        found = Speed(rates, phase).at(4)
        assert found is not None and found.value == seconds
    unknown = Speed(rates, "c").at(4)
    assert unknown is not None and 1 < unknown.value < 5


def test_earlier_runs_help_and_are_trusted_less() -> None:
    alone = Speed([Rate(4, 1.0)]).at(16)
    helped = Speed([Rate(4, 1.0)], earlier=[Rate(8, 0.52), Rate(16, 0.29), Rate(4, 7.0)])
    found = helped.at(16)
    assert alone is not None and found is not None
    assert found.high / found.low < alone.high / alone.low
    assert not found.measured and found.value == pytest.approx(0.29, rel=0.1)
    assert "earlier" in helped.basis
    own = helped.at(4)
    assert own is not None and own.value == 1.0


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4096), st.floats(1e-9, 1e6), st.integers(1, 10**6)), min_size=1, max_size=8))
def test_any_measurements_give_finite_ordered_intervals(found: list[tuple[int, float, int]]) -> None:
    speed = Speed([Rate(*each) for each in found])
    for n in (1, 7, 100, 5000):
        at = speed.at(n)
        assert at is not None
        assert 0 < at.low <= at.value <= at.high
        assert math.isfinite(at.value)
    assert sum(speed.evidence.values()) == pytest.approx(1)


def test_a_law_of_overhead_alone_has_parameters() -> None:
    assert Fit("usl", (0.0, 0.0, 1.0), 0.0, 3).parameters() == {"seconds_on_one": 0.0, "sigma": 0.0, "kappa": 0.0}


def test_from_few_steps_no_law_is_told() -> None:
    first = Speed([Rate(2, 1.0, 3)])
    assert first.basis.startswith("measured at 2 nodes, from 3 steps yet") and "assumed" in first.basis
    assert Speed([Rate(2, 1.0, 1)]).basis.startswith("measured at 2 nodes, from 1 step yet")
    early = Speed([Rate(2, 1.0, 50), Rate(4, 1.0, 2)])
    assert "from few steps yet" in early.basis and "likely" not in early.basis
    flat = Speed([Rate(2, 1.0, 50), Rate(4, 1.0, 50)]).basis
    assert "more nodes have not made it faster" in flat and "likely" not in flat and "parallel_fraction" not in flat
    assert "amdahl" in Speed([Rate(2, 1.0, 50), Rate(4, 0.6, 50)]).basis
