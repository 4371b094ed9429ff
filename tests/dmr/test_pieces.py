"""The parts of the application's side that need no ranks."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmr.arrays import Array
from dmr.ckpt import Automatic, Block, BlockCyclic, EverySeconds, KeepEverySteps, KeepLast, Replicated
from dmr.errors import Error
from dmr.holders import Particles, PerRank, Ragged
from dmr.loops import Loops
from dmr.safepoint import MOST_STEPS_APART, Cadence, Order, agree
from dmr.settings import Settings, from_environment, settings
from dmr.wishes import Suggest, Wishes
from dmr.world import SingleProcess


@pytest.mark.parametrize(
    ("text", "seconds", "steps"),
    [
        ("90", 90, None),
        ("90s", 90, None),
        ("15min", 900, None),
        ("2h", 7200, None),
        ("1:30:00", 5400, None),
        ("10:00", 600, None),
        ("1-00:00", 86400, None),
        ("500steps", None, 500),
        ("1 step", None, 1),
    ],
)
def test_checkpoint_intervals(text, seconds, steps):
    found = settings(every=text)
    assert found.rule == (EverySeconds(seconds) if seconds else None)
    assert found.every_steps == steps


def test_automatic_intervals_take_a_mean_time_between_failures():
    assert settings(every="auto").rule == Automatic(86400.0)
    assert settings(every="auto/6h").rule == Automatic(21600.0)
    rule = KeepLast(1) | KeepEverySteps(10)
    assert settings(keep=rule, background=True) == Settings(keep=rule, background=True)


@pytest.mark.parametrize(
    "text", ["0", "0steps", "-5", "soon", "1:2:3:4", "5 parsecs", "", "auto/", "auto/never", "auto/0"]
)
def test_bad_intervals_are_refused(text):
    with pytest.raises(Error, match="checkpoint_every"):
        settings(every=text)


def test_the_launcher_overrides_the_program():
    chosen = from_environment(
        Settings(every_steps=5, keep=1, driver="mpio"),
        {
            "DMR_CHECKPOINT_EVERY": "60",
            "DMR_KEEP": "4",
            "DMR_DRIVER": "direct",
            "DMR_CHECK_INTERVAL": "2",
            "DMR_CHECKPOINT_BACKGROUND": "1",
        },
    )
    assert chosen == Settings(rule=EverySeconds(60.0), keep=4, driver="direct", background=True, interval=2.0)
    for name, value in [
        ("DMR_KEEP", "0"),
        ("DMR_DRIVER", "fast"),
        ("DMR_CHECK_INTERVAL", "never"),
        ("DMR_CHECKPOINT_BACKGROUND", "yes"),
    ]:
        with pytest.raises(Error, match=name):
            from_environment(Settings(), {name: value})


@given(st.lists(st.floats(1e-7, 10.0), min_size=3, max_size=40))
def test_agreements_lie_about_the_interval_apart(step_seconds):
    cadence, clock, step = Cadence(0.5), 0.0, 0
    cadence.left(step, clock)
    for seconds in step_seconds:
        apart = cadence.apart()
        assert 1 <= apart <= MOST_STEPS_APART
        step, clock = step + apart, clock + apart * seconds
        cadence.entered(step, clock)
        assert cadence.seconds_per_step == pytest.approx(seconds, rel=1e-6)
        cadence.left(step, clock)
    assert cadence.apart() <= max(1, 0.5 / step_seconds[-1])


def test_agreement_of_one_process_hears_its_own_wishes():
    order = Order(request=3, save=True, pending=4, resizes=2)
    wishes = Wishes(Suggest.EXPAND, True, cancels=2, expand_by=1, inhibited_until=12.5)
    agreement, due = agree(SingleProcess(), 10, order, 17, wishes)
    assert due == 17 and agreement.order == order
    assert (agreement.suggestion, agreement.signalled, agreement.cancels) == (Suggest.EXPAND, True, 2)
    assert (agreement.expand_by, agreement.shrink_by, agreement.inhibited_until) == (1, 0, 12.5)


def test_loops_go_on_where_they_were():
    loops = Loops()
    assert loops.enter(0) == 0
    loops.here = 4
    loops.leave(done=True)
    assert loops.enter(10) == 10
    loops.here = 13
    assert loops.step == 7
    saved = loops.to_json()
    again = Loops(saved)
    assert again.enter(0) is None
    assert again.enter(10) == 13
    assert again.step == 7
    with pytest.raises(Error, match="inside another loop"):
        again.enter(0)


def test_once_is_kept():
    loops = Loops()
    assert loops.once("set-up") and not loops.once("set-up")
    assert not Loops(loops.to_json()).once("set-up")


@given(
    st.integers(1, 9), st.integers(1, 12), st.integers(1, 9), st.integers(0, 2), st.sampled_from([(0, 1), (1,), (1, 0)])
)
def test_neighbours_face_each_other(rows, columns, ranks, halo, axes):
    layout = Block(axes=axes)
    parts = [Array("u", (rows, columns), np.dtype("f8"), layout, rank, ranks, halo) for rank in range(ranks)]
    for rank, part in enumerate(parts):
        for axis in (0, 1):
            above = part.neighbour(axis, +1) if part.box.size else None
            if above is not None:
                assert parts[above].neighbour(axis, -1) == rank
                assert parts[above].box.lo[axis] == part.box.hi[axis]
            elif part.box.size:
                assert part.box.hi[axis] == (rows, columns)[axis]
    assert sum(part.box.size for part in parts) == rows * columns


def test_a_part_takes_only_what_fits():
    part = Array("u", (6, 4), np.dtype("f4"), Block(axis=0), 1, 2, halo=1)
    assert part.padded.shape == (5, 4) and part.local.shape == (3, 4)
    part.local = np.ones((3, 4), "f4")
    assert part.padded.sum() == 12
    for wrong in (np.ones((3, 4)), np.ones((2, 4), "f4"), [[1.0]]):
        with pytest.raises(Error, match="array 'u': its part on rank 1"):
            part.local = wrong
    with pytest.raises(Error, match="go with a Block layout"):
        Array("r", (6,), np.dtype("f4"), Replicated(), 0, 2, halo=1)
    with pytest.raises(Error, match="negative"):
        Array("r", (6,), np.dtype("f4"), Block(axis=0), 0, 2, halo=-1)


def test_importing_dmr_imports_nothing_heavy():
    code = "import sys, dmr; print([m for m in ('numpy', 'mpi4py', 'h5py', 'click') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_every_public_name_is_there():
    import dmr

    for name in dmr.__all__:
        assert getattr(dmr, name) is not None
    with pytest.raises(AttributeError, match="nothing_like_it"):
        dmr.nothing_like_it  # noqa: B018


def test_holders_refuse_what_was_not_declared():
    rows = Ragged("rows", np.dtype("i4"), (2,))
    rows.values = np.zeros((3, 2), "i8")
    with pytest.raises(Error, match=r"ragged 'rows': values is declared as int32 \(n, 2\), but it is int64 \(3, 2\)"):
        rows.item()
    dust = Particles("dust", {"x": ("f8", (3,))})
    dust.columns["y"] = np.zeros(0)
    with pytest.raises(Error, match="declared with the columns x, but it has x, y"):
        dust.item()
    with pytest.raises(Error, match="say what becomes of it"):
        PerRank("own", np.zeros(1), None)


def test_an_array_of_a_layout_without_boxes_says_so():
    part = Array("u", (8, 8), np.dtype("f8"), BlockCyclic((2, 2)), 1, 4)
    assert part.local.shape == (4, 4)
    with pytest.raises(Error, match="no single box"):
        part.box  # noqa: B018
