from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmr.resize.phases.knowledge import (
    AtSize,
    Book,
    Entry,
    Key,
    KnowledgeError,
    Occurrence,
    RunRecord,
    record_of,
)
from dmr.resize.phases.turns import repeated
from dmr.resize.view import CostSample

DAY = 86400.0
KEY = Key("heat.py", "large", "cluster a")


def record(run: str, time: float = 0.0, *, solve: float = 1.0, shift: int = 0) -> RunRecord:
    return record_of(
        run, time,
        {"solve": [AtSize(4, solve, 100, 0.9, 2e9), AtSize(8, 0.6 * solve, 100)], "write": [AtSize(4, 2.0, 20)]},
        [Occurrence("solve", 0, 100 + shift), Occurrence("write", 100 + shift, 120), Occurrence("solve", 120, 220)],
        steps=220, costs=[CostSample(8, 10**9, 1.0, 2.0, 3.0)], waits=[(8, 120.0)],
    )  # fmt: skip


def entry(*runs: RunRecord) -> Entry:
    return Book({}).merged(Book({KEY: Entry(KEY, runs)})).entries[KEY]


def test_a_book_survives_json() -> None:
    book = Book().with_run(KEY, record("a", 5.0)).with_run(Key("other.py"), record("b", 6.0))
    assert Book.from_json(json.loads(json.dumps(book.to_json()))) == book


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({}, "no model"),
        ([], "no model"),
        ({"kind": "dmr model", "format": 99, "entries": []}, "format 99"),
        ({"kind": "dmr model", "format": 1, "entries": [{"program": "x"}]}, "damaged"),
        ({"kind": "dmr model", "format": 1, "entries": [{"program": "x", "runs": {"r": {"time": 0, "phases": {
            "p": [{"nodes": 1, "seconds_per_step": -1, "steps": 1}]}}}}]}, "damaged"),
    ],
)  # fmt: skip
def test_what_is_no_model_is_refused(found: object, words: str) -> None:
    with pytest.raises(KnowledgeError, match=words):
        Book.from_json(found)


books = st.lists(
    st.tuples(st.sampled_from("pq"), st.sampled_from("abcd"), st.integers(0, 3), st.sampled_from([1.0, 2.0])),
    max_size=6,
).map(lambda made: _book(made))


def _book(made: list[tuple[str, str, int, float]]) -> Book:
    book = Book()
    for program, run, time, solve in made:
        book = book.with_run(Key(program), record(run, float(time), solve=solve))
    return book


@settings(max_examples=80, deadline=None)
@given(books, books, books)
def test_merging_is_a_union(one: Book, two: Book, three: Book) -> None:
    assert one.merged(two) == two.merged(one)
    assert one.merged(two).merged(three) == one.merged(two.merged(three))
    assert one.merged(one) == one
    assert one.merged(two).merged(two) == one.merged(two)


def test_a_later_record_of_a_run_replaces_the_earlier() -> None:
    book = Book().with_run(KEY, record("a", 2.0, solve=3.0)).with_run(KEY, record("a", 1.0, solve=9.0))
    assert book.entries[KEY].rates("solve")[0].seconds_per_step == pytest.approx(3.0)
    assert len(book.entries[KEY].runs) == 1


def test_how_phases_look_is_kept_weighed_and_checked() -> None:
    def run(name: str, time: float, cpu: float, phase: str = "phase 1") -> RunRecord:
        return record_of(name, time, {phase: [AtSize(4, 1.0, 50, look={"cpu": (cpu, 0.02)}, seen=50)]}, [])

    book = Book().with_run(KEY, run("a", 0.0, 0.5)).with_run(KEY, run("b", 90 * DAY, 0.8))
    assert Book.from_json(json.loads(json.dumps(book.to_json()))) == book
    (look,) = book.entries[KEY].looks(90 * DAY)
    assert (look.phase, look.nodes, look.samples) == ("phase 1", 4, 100)
    assert look.mean["cpu"] == pytest.approx((0.5 * 0.5 + 0.8) / 1.5) and look.spread["cpu"] > 0.1
    mixed = book.with_run(KEY, run("c", 90 * DAY, 0.6, "whole run"))
    assert {each.phase for each in mixed.entries[KEY].looks(90 * DAY)} == {"phase 1"}, "the other is a mixture"
    found = book.to_json()
    found["entries"][0]["runs"]["a"]["phases"]["phase 1"][0]["look"]["cpu"] = [float("nan"), 0.1]
    with pytest.raises(KnowledgeError, match="not finite"):
        Book.from_json(found)


def test_old_runs_are_pruned() -> None:
    book = Book({KEY: entry(*(record(f"{n:03}", float(n)) for n in range(60)))}).pruned(10)
    assert [each.run for each in book.entries[KEY].runs][0] == "050"


def test_a_measured_size_is_predicted_without_caveat() -> None:
    found = entry(record("a"), record("b", DAY)).predict("solve", 8, 2 * DAY)
    assert found is not None and found.caveats == ()
    assert found.estimate.low <= 0.6 <= found.estimate.high


def test_beyond_what_was_seen_it_says_so() -> None:
    known = entry(record("a"))
    for nodes, word in ((16, "outside"), (6, "between")):
        found = known.predict("solve", nodes, DAY)
        assert found is not None and word in found.caveats[0] and found.confidence <= 0.5
    other = known.predict("solve", 8, DAY, input="small")
    assert other is not None and "'large', wanted for 'small'" in other.caveats[0]
    late = known.predict("solve", 8, 200 * DAY)
    assert late is not None and "200 days ago" in late.caveats[0]
    assert known.predict("unheard of", 8, DAY) is None


def test_confidence_grows_with_runs_and_falls_with_age_and_scatter() -> None:
    one = entry(record("a")).confidence("solve", 4, DAY)
    two = entry(record("a"), record("b")).confidence("solve", 4, DAY)
    scattered = entry(record("a"), record("b", solve=2.0)).confidence("solve", 4, DAY)
    aged = entry(record("a"), record("b")).confidence("solve", 4, 400 * DAY)
    assert one < two and scattered < two and aged < two
    assert entry(record("a")).confidence("solve", 5, DAY) == 0.0


def test_what_comes_next_is_known_by_the_step() -> None:
    known = entry(record("a"), record("b", 1.0, shift=4))
    found = known.outlook(60, "solve", 2.0)
    assert [(each.phase, each.start, each.end) for each in found] == [
        ("solve", 0, 104), ("write", 104, 120), ("solve", 120, 220)
    ]  # fmt: skip
    assert found[0].confidence > 0.8
    assert [each.phase for each in known.outlook(110, None, 2.0)] == ["write", "solve"]
    assert [each.phase for each in known.outlook(200, "solve", 2.0)] == ["solve"], "the end comes next"
    assert known.outlook(50, "write", 2.0) == ()


def test_a_run_that_is_elsewhere_is_foreseen_from_its_phase() -> None:
    known = entry(record("a"))
    found = known.outlook(500, "write", 1.0, since=495)
    assert [(each.phase, each.start, each.end) for each in found] == [("write", 495, 515), ("solve", 515, 615)]
    assert found[0].confidence < 0.5
    assert known.outlook(600, "write", 1.0, since=495)[0].end == 601, "it lasts longer than it did"
    assert known.outlook(500, None, 1.0) == () and known.outlook(500, "unheard", 1.0, since=499) == ()


def test_what_came_in_turn_comes_again() -> None:
    order = [Occurrence("mesh", 0, 10), Occurrence("solve", 10, 40), Occurrence("write", 40, 45),
             Occurrence("mesh", 45, 55), Occurrence("solve", 55, 85), Occurrence("write", 85, 90)]  # fmt: skip
    found = repeated([*order, Occurrence("mesh", 90, 93)], 93, 140)
    assert [(each.phase, each.start, each.end) for each in found] == [
        ("mesh", 90, 100), ("solve", 100, 130), ("write", 130, 135), ("mesh", 135, 140)
    ]  # fmt: skip
    assert repeated([*order, Occurrence("mesh", 90, 120)], 120, 140)[0].end == 121
    assert repeated(order[:4], 50, 140) == () and repeated([], 0, 10) == ()
    assert repeated([*order, Occurrence("other", 90, 93)], 93, 140) == ()


def test_the_nearest_entry_says_in_what_it_differs() -> None:
    book = Book().with_run(KEY, record("a")).with_run(Key("heat.py", "small", "cluster b"), record("b"))
    same = book.nearest(KEY)
    assert same is not None and same[0].key == KEY and same[1] == ()
    other = book.nearest(Key("heat.py", "tiny", "cluster b"))
    assert other is not None and other[0].key.input == "small" and "another input" in other[1][0]
    assert book.nearest(Key("else.py")) is None
