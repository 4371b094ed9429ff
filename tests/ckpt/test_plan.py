"""The plan is pure: properties of layouts, windows and owners, without any file."""

from __future__ import annotations

import itertools
import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmr.ckpt import Block, BlockCyclic, Box, Counts, Layout, Replicated, Unsupported
from dmr.ckpt.layouts import parts
from dmr.ckpt.layouts.parts import Axis, CyclicAxis, Part, cut, get, put
from dmr.ckpt.layouts.registry import layout_from_json
from dmr.ckpt.transfer.held import Held, cuts
from dmr.ckpt.transfer.plan import BLOCK, PIECE, ROUND, bounds_of, elements_per_piece, plan, rounds, window

shapes = st.lists(st.integers(0, 9), min_size=1, max_size=4).map(tuple)
ranks = st.integers(1, 9)


@st.composite
def blocks(draw: st.DrawFn, shape: tuple[int, ...]) -> Block:
    axes = draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape), unique=True))
    return Block(axes=tuple(axes))


@given(st.data(), shapes, ranks)
def test_blocks_cover_every_element_once(data: st.DataObject, shape: tuple[int, ...], count: int) -> None:
    layout = data.draw(blocks(shape))
    seen = np.zeros(shape, int)
    for (box,) in layout.boxes(shape, count):
        seen[box.slices] += 1
    assert (seen == 1).all()


@given(st.data(), shapes, ranks)
def test_block_sizes_differ_by_at_most_one(data: st.DataObject, shape: tuple[int, ...], count: int) -> None:
    layout = data.draw(blocks(shape))
    for axis in layout.split_axes(shape):
        extents = [box.shape[axis] for (box,) in layout.boxes(shape, count)]
        assert max(extents) - min(extents) <= 1
        assert math.prod(layout.grid_for(shape, count)) == count


@given(st.data(), shapes, ranks)
def test_coords_and_rank_at_are_inverse(data: st.DataObject, shape: tuple[int, ...], count: int) -> None:
    layout = data.draw(blocks(shape))
    for rank in range(count):
        assert layout.rank_at(shape, count, layout.coords(shape, count, rank)) == rank
    assert layout.rank_at(shape, count, layout.grid_for(shape, count)) is None


def test_grid_suits_the_shape() -> None:
    assert Block(axes=(0, 1)).grid_for((100, 100), 6) == (3, 2)
    assert Block(axes=(0, 1)).grid_for((10, 1000), 4) == (1, 4)
    assert Block(axes=(0, 1)).grid_for((512, 344), 4) == (2, 2)
    assert Block(axes=(0, 1)).grid_for((2, 3), 5) == (1, 5)
    assert Block(axes=(0, 1, 2)).grid_for((64, 64, 64), 8) == (2, 2, 2)
    assert Block(axes=(0, 1), grid=(1, 6)).grid_for((100, 100), 6) == (1, 6)
    assert Block(axes=(0, 1), grid=(1, 6)).grid_for((100, 100), 4) == (2, 2)


def test_one_way_to_say_a_layout() -> None:
    assert Block() == Block(axis=0) == Block(axes=(0,)) != Block(axis=1)
    for layout in (Block(), Block(axes=(1, 0), grid=(2, 3)), Replicated()):
        assert layout_from_json(layout.to_json()) == layout


@pytest.mark.parametrize(
    "wrong", [{"axis": 1, "axes": (0, 1)}, {"axes": ()}, {"axes": (0, 0)}, {"axes": (0,), "grid": (0,)}]
)
def test_wrong_blocks_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match="Block"):
        Block(**wrong)


@pytest.mark.parametrize("layout", [Block(axis=1), BlockCyclic((2,), axes=(1,)), Counts((2, 3), axis=1)])
def test_missing_axis_is_named(layout: Layout) -> None:
    with pytest.raises(Unsupported, match="it has 1 axes"):
        layout.boxes((5,), 2)


@pytest.mark.parametrize("layout", [Block(axes=(0, -2)), BlockCyclic((2, 2), axes=(0, -2))])
def test_an_axis_named_twice_is_refused(layout: Layout) -> None:
    with pytest.raises(Unsupported, match="can't split an array of shape"):
        layout.boxes((5, 5), 2)
    assert layout.boxes((5, 5, 5), 2)


@given(shapes, st.data())
def test_window_is_the_range_in_c_order(shape: tuple[int, ...], data: st.DataObject) -> None:
    size = math.prod(shape)
    lo = data.draw(st.integers(0, size))
    hi = data.draw(st.integers(lo, size))
    whole = np.arange(size).reshape(shape)
    boxes = window(shape, lo, hi)
    found = np.concatenate([np.zeros(0, int), *(whole[box.slices].ravel() for box in boxes)])
    assert (found == np.arange(lo, hi)).all()
    assert len(boxes) <= max(2 * len(shape) - 1, 1)


def axis_of(n: int) -> st.SearchStrategy[Axis]:
    span = st.tuples(st.integers(0, n), st.integers(0, n)).map(lambda each: (min(each), max(each)))
    array = st.sets(st.integers(0, max(n - 1, 0)), max_size=n).map(lambda each: np.array(sorted(each), np.int64))
    turns = st.builds(
        lambda block, count, place: CyclicAxis(n, block, count, place % count),
        st.integers(1, 4),
        st.integers(1, 4),
        st.integers(0, 3),
    )
    return st.one_of(span, array, turns) if n else span


def indices(axis: Axis) -> np.ndarray:
    if isinstance(axis, CyclicAxis):
        return axis.positions(0, len(axis))
    return np.arange(*axis) if isinstance(axis, tuple) else axis


@given(st.data(), shapes, st.sampled_from([2, parts.LONG]))
def test_cut_put_and_get_agree_with_plain_indexing(data: st.DataObject, shape: tuple[int, ...], long: int) -> None:
    with mock.patch.object(parts, "LONG", long):
        check_cut_put_and_get(data, shape)


def check_cut_put_and_get(data: st.DataObject, shape: tuple[int, ...]) -> None:
    part = Part(tuple(data.draw(axis_of(n)) for n in shape))
    box = Box(*zip(*(sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in shape), strict=True))
    whole = np.arange(1, math.prod(shape) + 1).reshape(shape)
    held = whole[np.ix_(*map(indices, part.axes))]
    target = np.zeros(box.shape, int)
    overlap = cut(part, box)
    if overlap is not None:
        put(target, overlap.inside, held[overlap.local])
        back = np.zeros(overlap.shape, int)
        get(whole[box.slices], overlap.inside, back)
        assert (back == held[overlap.local]).all()
    expected = np.where(np.isin(whole, held), whole, 0)[box.slices]
    assert (target == expected).all()


@given(st.lists(st.tuples(shapes, st.sampled_from([1, 3, 8, 16])), min_size=1, max_size=5), ranks, st.data())
@settings(deadline=None)
def test_every_element_has_one_owner_and_reaches_it(
    arrays: list[tuple[tuple[int, ...], int]], count: int, data: st.DataObject
) -> None:
    def box(layout: Block, shape: tuple[int, ...], rank: int) -> Box:
        return layout.boxes(shape, count)[rank][0]

    layouts = [data.draw(blocks(shape)) for shape, _ in arrays]
    pieces = [data.draw(st.integers(1, 40)) for _ in arrays]
    held = []
    for rank in range(count):
        held.append(
            [
                Held(
                    "x",
                    shape,
                    layout,
                    count,
                    rank,
                    np.zeros(box(layout, shape, rank).shape, f"V{size}"),
                    piece,
                    writing=True,
                )
                for (shape, size), layout, piece in zip(arrays, layouts, pieces, strict=True)
            ]
        )
    plans = plan([each.moved for each in held[0]], count)
    schedule = rounds(plans, count)
    inside = {(a, p) for a, p in zip(schedule.array.tolist(), schedule.piece.tolist(), strict=True)}
    for array, its in enumerate(plans):
        seen = np.zeros(its.size, int)
        for piece, owner in enumerate(its.owners.tolist()):
            lo, hi = its.span(piece)
            seen[lo:hi] += 1
            assert 0 <= owner < count
            sizes = [sum(c.size for *_, c in cuts(its, piece, held[rank][array].parts(rank))) for rank in range(count)]
            assert sum(sizes) == hi - lo
            if not its.mixed[piece]:
                assert sizes[owner] == hi - lo
            assert ((array, piece) in inside) == bool(its.mixed[piece])
        assert (seen == 1).all()
    for number in range(len(schedule)):
        here = slice(schedule.starts[number], schedule.starts[number + 1])
        for rank in range(count):
            mine = schedule.owner[here] == rank
            assert ((schedule.hi - schedule.lo)[here][mine]).sum() <= ROUND


@given(st.integers(1, 1 << 26))
def test_pieces_are_whole_blocks_where_they_can_be(itemsize: int) -> None:
    count = elements_per_piece(itemsize)
    assert count >= 1
    assert count * itemsize <= max(PIECE, itemsize)
    if math.lcm(itemsize, BLOCK) <= PIECE:
        assert count * itemsize % BLOCK == 0


def test_bounds_are_found_for_runs_of_the_files_order() -> None:
    for shape, layout in itertools.product([(10, 4), (10, 1), (7,)], [Block(axis=0)]):
        assert bounds_of(shape, layout.boxes(shape, 3)) is not None
    assert bounds_of((10, 4), Block(axis=1).boxes((10, 4), 2)) is None
    assert bounds_of((1, 8), Block(axis=1).boxes((1, 8), 2)) == [0, 4, 8]
    assert bounds_of((10, 4), Block(axes=(0, 1), grid=(2, 2)).boxes((10, 4), 4)) is None
