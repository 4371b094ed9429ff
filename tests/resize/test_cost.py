from __future__ import annotations

from dataclasses import replace

import pytest

from dmr.resize.cost import ASSUMED_BANDWIDTH, ASSUMED_LAUNCH, cost
from dmr.resize.view import Costs, CostSample, RunView

RUN = RunView(
    time=0.0, run="r", generation=1, nodes=4, sizes=(2, 4, 8), since=0.0, state_bytes=1_000_000_000, lost_steps=0.0
)  # fmt: skip


def test_assumed_before_anything_was_measured() -> None:
    found = cost(RUN, 8)
    assert found.total == pytest.approx(2 * 1e9 / ASSUMED_BANDWIDTH + ASSUMED_LAUNCH)
    assert not found.measured
    assert found.error == pytest.approx(found.total / 2)


def test_the_means_of_the_run_where_sizes_are_not_known() -> None:
    found = cost(replace(RUN, costs=Costs(save=2.0, launch=3.0, load=1.0)), 8)
    assert (found.total, found.measured) == (6.0, True)
    part = cost(replace(RUN, costs=Costs(save=2.0)), 8)
    assert part.save == 2.0 and not part.measured


def test_the_old_size_saves_and_the_new_one_launches_and_loads() -> None:
    samples = (
        CostSample(4, 1_000_000_000, save=8.0, launch=4.0, load=3.0),
        CostSample(8, 1_000_000_000, save=5.0, launch=6.0, load=2.0),
    )
    found = cost(replace(RUN, resize_costs=samples), 8)
    assert (found.save, found.launch, found.load) == (8.0, 6.0, 2.0)
    near = cost(replace(RUN, resize_costs=samples), 7)
    assert near.launch == 6.0, "the nearest size measured"


def test_more_bytes_take_longer_and_newest_count() -> None:
    half = CostSample(4, 500_000_000, save=4.0, launch=1.0, load=2.0)
    found = cost(replace(RUN, resize_costs=(half,)), 8)
    assert (found.save, found.load, found.launch) == (8.0, 4.0, 1.0)
    old = tuple(CostSample(4, 0, save=100.0) for _ in range(5))
    new = tuple(CostSample(4, 0, save=2.0 + 0.1 * turn) for turn in range(5))
    found = cost(replace(RUN, resize_costs=(*old, *new)), 8)
    assert found.save == pytest.approx(2.2)


def test_lost_steps_are_work_to_be_done_again() -> None:
    found = cost(replace(RUN, costs=Costs(1.0, 1.0, 1.0), lost_steps=30.0), 8, seconds_per_step=0.5)
    assert (found.lost, found.total) == (15.0, 18.0)
