from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmr.resize.sizes import SizesError, format_sizes, next_larger, next_smaller, parse_sizes


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("4", (4,)),
        ("2:5", (2, 3, 4, 5)),
        ("2-5", (2, 3, 4, 5)),
        ("2:8:2", (2, 4, 6, 8)),
        ("1-15:4", (1, 5, 9, 13)),
        ("16,4,8,4", (4, 8, 16)),
        ("1, 4:6", (1, 4, 5, 6)),
        ("1:16:pow2", (1, 2, 4, 8, 16)),
        ("3:20:pow2", (4, 8, 16)),
        ("1:16:div48", (1, 2, 3, 4, 6, 8, 12, 16)),
        ("6:", (6, 7, 8)),
        ("1::pow2", (1, 2, 4, 8)),
    ],
)
def test_understood(text: str, sizes: tuple[int, ...]) -> None:
    assert parse_sizes(text, limit=8 if ":" in text and sizes[-1] <= 8 else None) == sizes


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "no sizes"),
        ("a:3", "not a whole number"),
        ("0:3", "outside"),
        ("-2:3", "not a whole number"),
        ("5:2", "larger than the maximum"),
        ("1:2:3:4", "too many colons"),
        ("1,,2", "empty item"),
        ("2:", "no maximum"),
        ("9:11:div7", "leaves none"),
        ("5:7:pow2", "leaves none"),
        ("1:10:pow3", "not a whole number"),
        ("1:10:div", "not a whole number"),
        ("1:1000000", "more than"),
        ("99999999999999999999", "outside"),
        ("²", "not a whole number"),
    ],
)
def test_refused_and_says_what_is_wrong(text: str, word: str) -> None:
    with pytest.raises(SizesError, match=word):
        parse_sizes(text)


def test_more_than_there_is_is_refused() -> None:
    with pytest.raises(SizesError, match="at most 8"):
        parse_sizes("2:16", limit=8)


@given(st.sets(st.integers(1, 500), min_size=1, max_size=40))
def test_written_sizes_read_back(sizes: set[int]) -> None:
    assert parse_sizes(format_sizes(sizes)) == tuple(sorted(sizes))


@given(st.integers(1, 200), st.integers(1, 200), st.sampled_from(["", ":3", ":pow2", ":div96"]))
def test_ranges_stay_in_their_bounds(a: int, b: int, rule: str) -> None:
    low, high = sorted((a, b))
    try:
        sizes = parse_sizes(f"{low}:{high}{rule}")
    except SizesError:
        assert rule in (":pow2", ":div96")
        return
    assert list(sizes) == sorted(set(sizes))
    assert low <= sizes[0] and sizes[-1] <= high
    assert parse_sizes(format_sizes(sizes)) == sizes


def test_neighbours() -> None:
    assert (next_larger((2, 4, 8), 4), next_smaller((2, 4, 8), 4)) == (8, 2)
    assert (next_larger((2, 4, 8), 8), next_smaller((2, 4, 8), 2)) == (None, None)
    assert next_larger((2, 4, 8), 3) == 4
