from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmr.resize.phases.plan import Part, merit, plan
from dmr.resize.phases.recurring import Stretch
from dmr.resize.phases.rightsize import least_for_memory, right_size
from dmr.resize.phases.usage import Usage, rates, summarise
from dmr.resize.phases.verdict import Request, Work, judge
from dmr.resize.samples import Sample
from dmr.resize.speed import Estimate


def amdahl(serial: float, nodes: float) -> float:
    return serial + (1 - serial) / nodes


def samples(serial: float, sizes: tuple[int, ...], error: float = 0.01) -> list[Sample]:
    return [Sample(size, amdahl(serial, size), error, 100) for size in sizes]


def test_the_right_size_is_the_knee_and_its_interval_narrows() -> None:
    # Knee of Amdahl's law: n T² is least at n = (1 − s)/s.
    sizes = tuple(range(1, 65))
    few = right_size(samples(0.1, (4, 8)), sizes)
    many = right_size(samples(0.1, (1, 2, 4, 8, 16, 32)), sizes)
    assert few is not None and many is not None
    assert many.nodes == pytest.approx(9, abs=1)
    assert many.low <= 9 <= many.high and few.low <= 9 <= few.high
    assert many.high - many.low < few.high - few.low


def test_with_one_size_measured_the_interval_is_wide() -> None:
    found = right_size(samples(0.1, (4,)), (1, 2, 4, 8, 16, 32))
    assert found is not None and found.measured == 1
    assert found.high >= 4 * found.low


def test_what_scales_wants_all_and_what_does_not_wants_one() -> None:
    for serial, wanted in ((1e-4, 16), (0.9, 1)):
        found = right_size(samples(serial, (1, 2, 4, 8)), (1, 2, 4, 8, 16))
        assert found is not None and found.nodes == wanted


def test_memory_bounds_the_right_size_from_below() -> None:
    assert least_for_memory({4: 30e9}, 64e9) == 3
    assert least_for_memory({}, 64e9) == least_for_memory({4: 30e9}, None) == 1
    # 10 GB on each node, and 80 GB spread over them.
    assert least_for_memory({4: 30e9, 8: 20e9}, 64e9) == 2
    assert least_for_memory({4: 12e9, 8: 12e9}, 64e9) == 1
    found = right_size(samples(0.9, (2, 4)), (1, 2, 4, 8), least=3)
    assert found is not None and found.nodes == 4 and found.memory_bound
    assert right_size([], (1, 2)) is None


def usage_of(pieces: list[tuple[str, int, float, float]]) -> tuple[list[Stretch], Usage]:
    """Build a run from (phase, nodes, seconds, seconds a step), a sample a second."""
    stretches, times, steps, cpu = [], [0.0], [0.0], [1.0]
    for name, nodes, seconds, per_step in pieces:
        start = times[-1]
        stretches.append(Stretch(start, start + seconds, nodes, {}, name, name))
        for _ in range(int(seconds)):
            times.append(times[-1] + 1)
            steps.append(steps[-1] + 1 / per_step)
            cpu.append(0.5 if name == "write" else 0.9)
    usage = Usage(
        np.array(times),
        np.array(times),
        np.array(steps),
        np.array(cpu),
        np.full(len(times), 12e9),
        np.full(len(times), 64e9),
    )
    return stretches, usage


def test_each_phase_and_size_has_its_arithmetic() -> None:
    pieces = [("solve", 4, 60.0, 0.5), ("write", 4, 30.0, 1.0), ("solve", 8, 60.0, 0.3), ("write", 8, 30.0, 1.0)]
    stretches, usage = usage_of(pieces)
    solve, write = summarise(stretches, usage, (1, 2, 4, 8, 16))
    four, eight = solve.uses
    assert (four.phase, four.nodes, four.seconds, four.occurrences) == ("solve", 4, 60, 1)
    assert four.seconds_per_step == pytest.approx(0.5) and eight.seconds_per_step == pytest.approx(0.3)
    assert four.node_hours == pytest.approx(4 * 60 / 3600)
    assert four.efficiency == pytest.approx(1.0) and four.base == 4
    assert eight.efficiency == pytest.approx(4 * 0.5 / (8 * 0.3))
    assert eight.cpu == pytest.approx(0.9, abs=0.02)
    assert eight.memory_headroom == pytest.approx(1 - 12 / 64)
    assert eight.idle_node_hours == pytest.approx(0.1 * 8 * 60 / 3600, rel=0.08)
    # "write" takes as long on any size: all but the smallest's node-hours were too many.
    assert write.right is not None and write.right.nodes == 1
    assert [each.nodes for each in rates(stretches, usage)] == [4, 4, 8, 8]


def test_over_allocation_is_measured_against_a_measured_right_size() -> None:
    pieces = [("write", size, 40.0, 1.0) for size in (1, 2, 4)]
    stretches, usage = usage_of(pieces)
    (write,) = summarise(stretches, usage, (1, 2, 4))
    assert write.right is not None and write.right.nodes == 1
    assert [each.over_node_hours for each in write.uses] == pytest.approx([0, 40 / 3600, 3 * 40 / 3600])


def test_without_steps_the_rest_is_told_all_the_same() -> None:
    stretches = [Stretch(0, 10, 2, {}, None, "phase 1")]
    (found,) = summarise(stretches, Usage(np.arange(10.0), cpu=np.full(10, 0.25)), (1, 2))
    assert found.right is None and found.uses[0].seconds_per_step is None
    assert found.uses[0].idle_node_hours == pytest.approx(0.75 * 2 * 10 / 3600)


class Speeds:
    """Seconds a step, known to 2 %."""

    def __init__(self, **by_phase: dict[int, float]) -> None:
        self.by_phase = by_phase

    def at(self, phase: str | None, nodes: int) -> Estimate | None:
        value = self.by_phase.get(phase or "all", {}).get(nodes)
        return None if value is None else Estimate(value, 0.98 * value, 1.02 * value, True)


def grown(**changes: object) -> Request:
    made = {
        "time": 0.0, "by": "policy queue", "reason": "", "before": 4, "after": 8, "outcome": "applied",
        "granted": 300.0, "asked": 300.0, "stopped": 302.0, "computing": 310.0, "until": 710.0, "phase": "solve",
        "work": (Work("solve", 1000, 400.0),), **changes,
    }  # fmt: skip
    return Request(**made)  # type: ignore[arg-type]


def test_an_effective_growth_with_its_arithmetic() -> None:
    found = judge(grown(), Speeds(solve={4: 0.75}))
    assert found.word == "effective"
    assert (found.acquisition, found.synchronisation, found.redistribution) == (300, 2, 8)
    assert found.lead == 310
    assert found.gained == pytest.approx(1000 * 0.75 - 400)
    assert found.net == pytest.approx(350 - 8) and found.error == pytest.approx(15)
    # 4 nodes for 750 s, against 8 for 400 s, the 8 s of the change, and 2 s in which both stood.
    assert found.node_hours == pytest.approx((4 * 750 - 8 * 410) / 3600)


def test_growth_that_brings_nothing_or_harm() -> None:
    assert judge(grown(), Speeds(solve={4: 0.41})).word == "useless"
    assert judge(grown(), Speeds(solve={4: 0.35})).word == "harmful"
    assert judge(grown(work=()), Speeds(solve={4: 0.75})).word == "harmful"


def test_growth_that_came_after_its_phase_is_late() -> None:
    found = judge(grown(phase_end=305.0, targeted=True, work=(Work("write", 400, 400.0),)), Speeds(write={4: 1.0}))
    assert found.word == "late" and "5 s after the end of solve" in found.reason
    # One that was not made for that phase, and did good after it, is not.
    assert judge(grown(phase_end=305.0), Speeds(solve={4: 0.75})).word == "effective"
    assert judge(grown(phase_end=305.0), Speeds(solve={4: 0.41})).word == "late"


def test_a_shrink_is_judged_by_node_hours() -> None:
    shrink = grown(before=8, after=4, granted=0.0, asked=0.0, stopped=2.0, computing=6.0, until=406.0)
    found = judge(shrink, Speeds(solve={8: 0.38}))
    assert found.word == "effective" and found.node_hours == pytest.approx((8 * 380 - 4 * 404) / 3600)
    assert found.net == pytest.approx(380 - 400 - 4)
    assert judge(shrink, Speeds(solve={8: 0.1})).word == "harmful"


def test_requests_that_never_came_or_may_still() -> None:
    never: dict[str, object] = dict.fromkeys(("granted", "asked", "stopped", "computing"))
    assert judge(grown(outcome="open", **never), Speeds()).word == "open"
    gone = judge(grown(outcome="given up", until=90.0, **never), Speeds())
    assert gone.word == "useless" and "after 90 s" in gone.reason
    assert judge(grown(), Speeds()).word == "open"


SERIAL = {"solve": 0.001, "write": 0.8, "mesh": 0.15}


def seconds(phase: str, nodes: int) -> float | None:
    return amdahl(SERIAL[phase], nodes)


def test_a_plan_takes_fewer_node_hours_in_the_same_time() -> None:
    parts = [Part("mesh", 300), Part("solve", 2000), Part("write", 200)]
    found = plan(parts, (1, 2, 4, 8, 16), seconds, 8, change=lambda size: 2.0)
    assert found is not None
    assert found.seconds <= found.base_seconds
    assert found.node_hours <= 0.85 * found.base_node_hours
    assert found.sizes["solve"] > found.sizes["mesh"] >= found.sizes["write"]


def test_changes_that_cost_too_much_are_not_planned() -> None:
    parts = [Part("solve", 20), Part("write", 20)] * 50
    found = plan(parts, (1, 2, 4, 8), seconds, 4, change=lambda size: 1e4)
    assert found is not None and set(found.sizes.values()) == {4}


def test_no_plan_without_speeds() -> None:
    assert plan([Part("solve", 10)], (1, 2), lambda phase, nodes: None, 2) is None
    assert plan([], (1, 2), seconds, 2) is None


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(SERIAL)), st.integers(1, 5000)), min_size=1, max_size=8),
    st.sampled_from([1, 2, 4, 8, 16]),
    st.floats(0, 100),
    st.floats(1.0, 1.3),
)
def test_a_plan_is_never_worse_than_one_size(
    given_parts: list[tuple[str, int]], base: int, change: float, slower: float
) -> None:
    parts = [Part(*each) for each in given_parts]
    found = plan(parts, (1, 2, 4, 8, 16), seconds, base, change=lambda size: change, slower=slower)
    assert found is not None
    base_merit = merit(found.base_seconds, found.base_node_hours, "hours")
    assert merit(found.seconds, found.node_hours, "hours") <= base_merit * (1 + 1e-9)
    assert found.seconds <= slower * found.base_seconds * (1 + 1e-9)
