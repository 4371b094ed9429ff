from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmr.resize.simulate import sacct, swf
from dmr.resize.simulate.generate import amdahl, lublin
from dmr.resize.simulate.workload import Job, make_malleable, size_at, sizes_for

SWF = """\
; Version: 2.2
; Computer: Test SP2
; MaxJobs: 3
; MaxNodes: 64
; MaxProcs: 128
; Note: this : has colons

    1     0    10   100  4  90.5  2048  8   200 -1 1  3 1 5 2 1 -1 -1
2 20 -1 50 4 -1 -1 -1 -1 -1 1 3 1 -1 -1 -1 1 30
"""


def line(**changes: float) -> str:
    given = dict.fromkeys(swf.FIELDS, -1) | {"job": 1, "submit": 0, "run": 10, "allocated": 2, "status": 1}
    return " ".join(str(value) for value in (given | changes).values())


def test_all_fields_and_the_header() -> None:
    trace = swf.parse(SWF.splitlines())
    assert trace.problems == ()
    assert trace.header["Note"] == "this : has colons"
    assert trace.processors == 128
    first, second = trace.records
    assert first == swf.Record(1, 0, 10, 100, 4, 90.5, 2048, 8, 200, -1, 1, 3, 1, 5, 2, 1, -1, -1)
    assert (second.preceding, second.think) == (1, 30)


def test_sizes_and_limits_are_what_was_asked_for() -> None:
    found = swf.to_workload(swf.parse(SWF.splitlines()), source="test")
    assert found.jobs == (Job(1, 0, 8, 100, 200), Job(2, 20, 4, 50, 50))
    assert found.nodes == 128
    by_node = swf.to_workload(swf.parse(SWF.splitlines()), processors_per_node=3)
    assert [job.nodes for job in by_node.jobs] == [3, 2]
    assert by_node.nodes == 43


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("1 2 3", "3 fields instead of 18"),
        (line(run="x"), "field 4 (run) is 'x', not a number"),  # type: ignore[arg-type]
        (line(run="nan"), "field 4 (run) is 'nan', not a finite number"),  # type: ignore[arg-type]
        (line(allocated=2.5), "field 5 (allocated) is '2.5', not a whole number"),
        (line() + " 7", "19 fields instead of 18"),
    ],
)
def test_malformed_lines_are_counted_or_refused(text: str, what: str) -> None:
    lines = ["; MaxProcs: 4", line(), text, "", line(job=2, submit=5)]
    trace = swf.parse(lines)
    assert [(each.line, each.what, each.skipped) for each in trace.problems] == [(3, what, True)]
    assert len(trace.records) == 2
    with pytest.raises(swf.TraceError, match="line 3"):
        swf.parse(lines, strict=True)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"run": -1, "status": 5}, "never ran"),
        ({"run": 0}, "run time 0"),
        ({"allocated": -1}, "no number of processors"),
        ({"submit": -4}, "negative submit time"),
        ({"allocated": 9}, "asks for 9 nodes of 4"),
    ],
)
def test_records_that_cannot_be_jobs_are_counted(changes: dict[str, float], what: str) -> None:
    found = swf.to_workload(swf.parse(["; MaxProcs: 4", line(), line(job=2, **changes)]))
    assert [job.id for job in found.jobs] == [1]
    assert [(each.line, each.what) for each in found.problems] == [(3, what)]


def test_disorder_parts_and_repeated_numbers() -> None:
    text = [line(submit=10), line(job=2, submit=4), line(job=2, submit=4, status=2)]
    found = swf.to_workload(swf.parse(text))
    assert [job.id for job in found.jobs] == [2, 1]
    assert {(each.what, each.skipped) for each in found.problems} == {
        ("submitted before the job above it", False),
        ("part of a job that is there as a whole", True),
    }
    twice = swf.to_workload(swf.parse([line(), line(submit=3)]))
    assert [job.id for job in twice.jobs] == [1, 2]
    assert [(each.line, each.what) for each in twice.problems] == [(2, "has the number of a job above it")]


def test_the_size_of_the_machine_may_be_said() -> None:
    trace = swf.parse(["; MaxProcs: 4", line(allocated=9), line(job=2, allocated=3)])
    assert [job.id for job in swf.to_workload(trace).jobs] == [2]
    assert [job.id for job in swf.to_workload(trace, nodes=16).jobs] == [1, 2]
    assert [job.id for job in swf.to_workload(trace, nodes=2).jobs] == []


@given(
    st.lists(
        st.builds(
            swf.Record,
            job=st.integers(1, 10**6), submit=st.integers(0, 10**8), wait=st.floats(-1, 1e6).map(lambda x: round(x, 2)),
            run=st.integers(-1, 10**6), allocated=st.integers(-1, 10**5), status=st.integers(-1, 5),
        ),
        max_size=10,
    )
)  # fmt: skip
def test_written_traces_read_back(records: list[swf.Record]) -> None:
    trace = swf.parse(swf.write(records, {"MaxProcs": "12"}).splitlines())
    assert list(trace.records) == records
    assert (trace.processors, trace.problems) == (12, ())


@given(st.lists(st.text(max_size=40), max_size=10))
def test_rubbish_is_counted_line_by_line(lines: list[str]) -> None:
    trace = swf.parse(lines)
    told = sum(bool(each.strip()) and not each.strip().startswith(";") for each in lines)
    assert len(trace.problems) + len(trace.records) == told


SACCT = """\
JobIDRaw|Submit|Start|End|NNodes|Timelimit|State
100|2026-03-01T10:00:00|2026-03-01T10:00:05|2026-03-01T11:00:05|4|02:00:00|COMPLETED
100.batch|2026-03-01T10:00:05|2026-03-01T10:00:05|2026-03-01T11:00:05|1||COMPLETED
101|2026-03-01T10:00:30|2026-03-01T10:01:00|2026-03-01T10:11:00|8|1-00:00:00|RESIZING
101|2026-03-01T10:00:30|2026-03-01T10:01:00|2026-03-01T10:31:00|2|1-00:00:00|COMPLETED
102|2026-03-01T10:02:00|Unknown|Unknown|2|10:00|PENDING
103|2026-03-01T10:03:00|2026-03-01T10:03:00|2026-03-01T10:04:40|1|UNLIMITED|FAILED
104|soon|2026-03-01T10:03:00|2026-03-01T10:04:40|1|10:00|COMPLETED
105|2026-03-01T10:03:00|2026-03-01T10:03:00|2026-03-01T10:04:40
"""


def test_sacct_rows_become_jobs() -> None:
    found = sacct.parse(SACCT.splitlines(), source="sacct")
    assert found.jobs == (
        Job(1, 0.0, 4, 3600.0, 7200.0),
        Job(2, 30.0, 8, 1800.0, 86400.0),
        Job(3, 180.0, 1, 100.0, 100.0),
    )
    assert [(each.line, each.what) for each in found.problems] == [
        (6, "has not started"), (8, "Submit is 'soon', not a time"), (9, "4 columns instead of 7"),
    ]  # fmt: skip
    with pytest.raises(swf.TraceError, match="line 8"):
        sacct.parse(SACCT.splitlines(), strict=True)
    with pytest.raises(swf.TraceError, match="Submit, End missing"):
        sacct.parse(["JobID|Start|NNodes"])


def test_sacct_with_bars_at_the_end() -> None:
    text = "JobID|Submit|Start|End|NNodes|\n7|1000|1010|1110|2|\n"
    assert sacct.parse(text.splitlines()).jobs == (Job(1, 0.0, 2, 100.0, 100.0),)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10:00", 600.0), ("1:00:00", 3600.0), ("2-00:00:30", 172830.0), ("UNLIMITED", 0.0), ("x", None)],
)
def test_limits_of_sacct(text: str, seconds: float | None) -> None:
    assert sacct._limit(text) == seconds


def test_lublin_follows_its_model() -> None:
    """Shares, sizes, run times and the daily cycle of 20,000 jobs are those of the published parameters."""
    jobs = lublin(20_000, 128, 3).jobs
    assert jobs == lublin(20_000, 128, 3).jobs
    serial = sum(job.nodes == 1 for job in jobs) / len(jobs)
    assert serial == pytest.approx(0.244, abs=0.012)
    powers = sum(job.nodes & (job.nodes - 1) == 0 for job in jobs) / len(jobs)
    assert powers > 0.244 + 0.576 - 0.012
    assert all(1 <= job.nodes <= 128 and 1 <= job.runtime <= math.exp(12) <= 2 * 86400 for job in jobs)
    small = [math.log(job.runtime) for job in jobs if job.nodes == 1]
    share = -0.0054 * 1 + 0.78
    assert statistics.mean(small) == pytest.approx(share * 4.2 * 0.94 + (1 - share) * 312 * 0.03, abs=0.1)
    large = [math.log(job.runtime) for job in jobs if job.nodes > 64]
    assert statistics.mean(large) > statistics.mean(small), "large jobs run longer"
    by_hour = [0] * 24
    for job in jobs:
        by_hour[int(job.submit % 86400 // 3600)] += 1
    assert max(by_hour) > 5 * min(by_hour)
    assert 9 <= by_hour.index(max(by_hour)) <= 16, "most jobs arrive at working hours"
    assert 2 <= by_hour.index(min(by_hour)) <= 6


def test_amdahl_recipe() -> None:
    found = amdahl(400, 128, 1, load=1.5)
    assert found.load(128) == pytest.approx(1.5, rel=0.2)
    for job in found.jobs:
        assert 0.95 <= job.parallel <= 0.9999
        least, preferred, most = job.sizes[0], job.preferred, job.sizes[-1]
        assert 1 <= least <= preferred <= job.nodes <= most <= 128
        assert job.limit >= job.runtime
        for size, efficiency in ((least, 0.95), (preferred, 0.8), (most, 0.5)):
            if 1 < size < 128:
                assert abs(size - size_at(job.parallel, efficiency)) <= 0.5


def test_sizes_by_efficiency() -> None:
    """f = 0.95: 1/(n·0.05 + 0.95) is 0.95 at 2.05 nodes, 0.8 at 6, 0.5 at 21."""
    assert sizes_for(0.95, 128) == (2, 6, 21)
    assert sizes_for(0.9999, 128) == (128, 128, 128)


@given(st.floats(0, 1), st.integers(0, 100))
def test_making_malleable_keeps_the_jobs(share: float, seed: int) -> None:
    rigid = lublin(60, 64, 1)
    mixed = make_malleable(rigid, share, 64, seed)
    for before, after in zip(rigid.jobs, mixed.jobs, strict=True):
        assert (before.submit, before.nodes, before.runtime, before.limit) == (
            after.submit, after.nodes, after.runtime, after.limit,
        )  # fmt: skip
        if after.malleable:
            assert after.sizes[0] <= after.preferred <= after.nodes <= after.sizes[-1] <= 64
            assert after.seconds(after.nodes) == pytest.approx(after.runtime)
            efficiency = after.runtime * after.nodes
            one = after.seconds(1)
            assert 0.5 - 1e-9 <= one / efficiency <= 0.8 + 1e-9
    if share == 0:
        assert not any(job.malleable for job in mixed.jobs)


def test_stretched_to_a_load_and_cut_to_a_machine() -> None:
    found = lublin(500, 128, 1)
    assert found.scaled(0.9, 128).load(128) == pytest.approx(0.9)
    small = found.fitting(16)
    assert max(job.nodes for job in small.jobs) <= 16
    assert len(small.jobs) + len(small.problems) == 500
    assert len(found.first(10).jobs) == 10
