"""A successor's time limits: the user's own, or a shorter one that fits before a waiting job."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmr.launcher.engines.engine import Submission
from dmr.launcher.slurm.options import read_script
from dmr.launcher.slurm.parse import duration
from dmr.launcher.slurm.script import BatchScript, generated
from dmr.launcher.slurm.submit import Origin, prepare
from dmr.launcher.slurm.times import TIME_LIMIT, TIME_MIN, Times, asked_times, time_options

NO_SCRIPT = read_script("#!/bin/sh\n")


@pytest.mark.parametrize(
    ("own", "kept", "limit", "option", "told"),
    [
        ("02:00:00", None, None, ["--time=02:00:00"], {}),
        ("02:00:00", None, 3599.0, ["--time=59"], {TIME_LIMIT: "02:00:00"}),
        ("02:00:00", None, 9000.0, ["--time=02:00:00"], {}),
        ("02:00:00", None, 20.0, ["--time=1"], {TIME_LIMIT: "02:00:00"}),
        ("UNLIMITED", None, 600.0, ["--time=10"], {TIME_LIMIT: "UNLIMITED"}),
        ("Partition_Limit", None, 600.0, [], {}),
        # This job's own limit was shortened: its successors go back to the user's, or to another shorter one.
        ("00:59:00", "02:00:00", None, ["--time=02:00:00"], {}),
        ("00:59:00", "02:00:00", 4000.0, ["--time=66"], {TIME_LIMIT: "02:00:00"}),
    ],
)
def test_time_options(own: str, kept: str | None, limit: float | None, option: list[str], told: dict[str, str]) -> None:
    environ = {} if kept is None else {TIME_LIMIT: kept}
    assert time_options(asked_times({"TimeLimit": own}, NO_SCRIPT, environ), limit) == (option, told)


def test_a_shorter_limit_and_back_to_the_users_own() -> None:
    origin = Origin("7", {"TimeLimit": "02:00:00", "JobName": "x"}, generated(["true"]), {"A": "b"}, 2)
    short = prepare(origin, Submission(2, "t", "dmr:r:2:t", (4, 4), {}, limit=1800.0), 1, None)
    assert [each for each in short.argv if each.startswith("--time")] == ["--time=30"]
    assert short.environ[TIME_LIMIT] == "02:00:00" and TIME_MIN not in short.environ
    shortened = Origin("8", {"TimeLimit": "00:30:00", "JobName": "x"}, generated(["true"]), short.environ, 4)
    back = prepare(shortened, Submission(3, "t", "dmr:r:3:t", (8, 8), {}), 1, None)
    assert [each for each in back.argv if each.startswith("--time")] == ["--time=02:00:00"]
    assert TIME_LIMIT not in back.environ


# -- limits that the scheduler may cut


def cut(to: str = "00:40:00", **more: str) -> dict[str, str]:
    """Return the record of a job with --time-min=30 that backfill started."""
    return {"TimeLimit": to, "TimeMin": "00:30:00", "Scheduler": "Backfill", "Command": "/w/job.sh a", **more}


@pytest.mark.parametrize(
    ("record", "script", "environ", "limit", "known"),
    [
        # The first that says it, in Slurm's own order of precedence …
        (cut(SubmitLine="sbatch -t 2:00:00 --time-min 30 job.sh -t 1"), "-t 9:00:00", {}, "2:00:00", True),
        (cut(SubmitLine="/opt/bin/sbatch --time=120 /w/job.sh"), "", {"SBATCH_TIMELIMIT": "9:00:00"}, "120", True),
        (cut(SubmitLine="sbatch job.sh"), "-t 9:00:00", {"SBATCH_TIMELIMIT": "120"}, "120", True),
        (cut(), "", {"SBATCH_TIMELIMIT": "120"}, "120", True),
        (cut(), "--time=1-12", {}, "1-12", True),
        (cut(SubmitLine="it's no command line"), "--time=0", {}, "0", True),
        # … but not one that something else has overridden
        (cut(), "--time=35", {}, "00:40:00", False),
        (cut(), "--time=35", {"SBATCH_TIMELIMIT": "soon"}, "00:40:00", False),
        (cut(), "", {}, "00:40:00", False),
        # No limit was asked for: the partition's, again
        (cut(SubmitLine="sbatch --time-min=30 job.sh"), "", {}, "", True),
        # Not cut
        (cut("02:00:00", Scheduler="Main"), "--time=9:00:00", {}, "02:00:00", True),
        (cut("02:00:00"), "--time=120", {}, "120", True),
        # Told by the job before
        (cut(), "--time=9:00:00", {TIME_LIMIT: "3:00:00", TIME_MIN: "20"}, "3:00:00", True),
    ],
)
def test_the_limit_that_was_asked_for(
    record: dict[str, str], script: str, environ: dict[str, str], limit: str, known: bool
) -> None:
    found = asked_times(record, read_script(f"#!/bin/sh\n#SBATCH {script}\n"), environ)
    assert (found.limit, found.known) == (limit, known)
    assert found.least == environ.get(TIME_MIN, "00:30:00")
    was_cut = limit not in ("02:00:00", "120") or record["TimeLimit"] == "00:40:00"
    assert found.cut == (record["TimeLimit"] if was_cut else "")
    assert ("#SBATCH --time" in found.told) != known and bool(found.told) == was_cut


@pytest.mark.parametrize(
    ("times", "limit", "whole", "asked"),
    [
        (Times("2:00:00", "30"), None, False, ["--time=2:00:00", "--time-min=30"]),
        (Times("2:00:00", "30"), 3599.0, False, ["--time=59", "--time-min=30"]),
        (Times("2:00:00", "30"), 1200.0, False, ["--time=20", "--time-min=20"]),
        (Times("UNLIMITED", "30"), 1200.0, False, ["--time=20", "--time-min=20"]),
        (Times("2:00:00", "30"), None, True, ["--time=2:00:00", "--time-min=2:00:00"]),
        (Times("2:00:00", "30"), 1200.0, True, ["--time=20", "--time-min=20"]),
        (Times("UNLIMITED", "30"), None, True, ["--time=UNLIMITED", "--time-min=30"]),
        (Times("", "30"), None, True, ["--time-min=30"]),
        (Times("2:00:00"), None, True, ["--time=2:00:00"]),
    ],
)
def test_what_is_asked_for(times: Times, limit: float | None, whole: bool, asked: list[str]) -> None:
    options, told = time_options(times, limit, whole=whole)
    assert options == asked
    want = {TIME_LIMIT: times.limit, TIME_MIN: times.least} if times.least else {}
    assert told == {key: value for key, value in want.items() if value}


@given(st.integers(1, 6000), st.integers(1, 6000), st.none() | st.floats(0, 1e6), st.booleans())
def test_the_least_limit_is_never_above_the_limit(own: int, least: int, limit: float | None, whole: bool) -> None:
    time, time_min = time_options(Times(str(own), str(least)), limit, whole=whole)[0]
    asked, lowest = duration(time.removeprefix("--time=")), duration(time_min.removeprefix("--time-min="))
    assert asked is not None and lowest is not None and 60 <= lowest <= asked <= 60 * own


def test_times_are_handed_from_job_to_job() -> None:
    """The script's own --time-min would be above a shortened limit, and is overridden; later it is there again."""
    script = BatchScript("#!/bin/sh\n#SBATCH --time=2:00:00 --time-min=30 --nodes=4\n")
    record, environ = cut(), {"A": "b"}
    for limit, asked in ((600.0, ["--time=10", "--time-min=10"]), (None, ["--time=2:00:00", "--time-min=00:30:00"])):
        submission = Submission(2, "t", "dmr:r:2:t", (2, 8), {}, limit=limit)
        prepared = prepare(Origin("7", record, script, environ, 2), submission, 1, None)
        assert [each for each in prepared.argv if each.startswith("--time")] == asked
        assert "#SBATCH --time=2:00:00 --time-min=30" in prepared.script
        assert (prepared.environ[TIME_LIMIT], prepared.environ[TIME_MIN]) == ("2:00:00", "00:30:00")
        record, environ = cut("00:10:00", TimeMin="00:10:00"), dict(prepared.environ)
