"""A successor's time limits: the user's own, or a shorter one that fits before a waiting job."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmr.launcher.engines.engine import Submission
from dmr.launcher.slurm import engine as engines
from dmr.launcher.slurm.engine import SlurmEngine
from dmr.launcher.slurm.options import read_script
from dmr.launcher.slurm.parse import JobRow, NodeRow, duration
from dmr.launcher.slurm.script import BatchScript, generated
from dmr.launcher.slurm.submit import Origin, prepare
from dmr.launcher.slurm.times import PARTITION, TIME_LIMIT, TIME_MIN, Times, asked_times, time_options, with_limit

NO_SCRIPT = read_script("#!/bin/sh\n")


@pytest.mark.parametrize(
    ("own", "kept", "limit", "option", "told"),
    [
        ("02:00:00", None, None, ["--time=02:00:00"], {}),
        ("02:00:00", None, 3599.0, ["--time=59"], {TIME_LIMIT: "02:00:00"}),
        ("02:00:00", None, 9000.0, ["--time=02:00:00"], {}),
        ("02:00:00", None, 20.0, ["--time=1"], {TIME_LIMIT: "02:00:00"}),
        ("UNLIMITED", None, 600.0, ["--time=10"], {TIME_LIMIT: "UNLIMITED"}),
        ("Partition_Limit", None, None, [], {}),
        ("Partition_Limit", None, 600.0, ["--time=10"], {TIME_LIMIT: PARTITION}),
        ("00:10:00", PARTITION, None, [], {}),
        ("00:10:00", PARTITION, 900.0, ["--time=15"], {TIME_LIMIT: PARTITION}),
        # This job's own limit was shortened: its successors go back to the user's, or to another shorter one.
        ("00:59:00", "02:00:00", None, ["--time=02:00:00"], {}),
        ("00:59:00", "02:00:00", 4000.0, ["--time=66"], {TIME_LIMIT: "02:00:00"}),
        # It was raised while the job ran.
        ("08:00:00", "02:00:00", None, ["--time=08:00:00"], {}),
        ("UNLIMITED", "02:00:00", 600.0, ["--time=10"], {TIME_LIMIT: "UNLIMITED"}),
        ("Partition_Limit", "02:00:00", None, ["--time=02:00:00"], {}),
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
        # Where the script stands, and with it sbatch's own options end
        (cut(SubmitLine="sbatch -J job.sh --time=2:00:00 --time-min=30 job.sh -t 9:00:00"), "", {}, "2:00:00", True),
        (cut(SubmitLine="sbatch --wckey job.sh --exclusive -Ht2:00:00 job.sh"), "", {}, "2:00:00", True),
        (cut(SubmitLine="sbatch --comment=my words job.sh --time=2:00:00 job.sh"), "", {}, "00:40:00", False),
        (cut(SubmitLine="sbatch --of-another-release job.sh -t 2:00:00 job.sh"), "", {}, "00:40:00", False),
        (cut(SubmitLine="sbatch --time=2:00:00 other.sh"), "", {}, "00:40:00", False),
        (cut(SubmitLine="sbatch --chdir=/w/ /w/", Command=""), "", {}, "00:40:00", False),
        (cut(SubmitLine="sbatch -D /w/", Command=""), "", {}, "00:40:00", False),
        (cut(SubmitLine="sbatch -t 2:00:00 --wrap=sleep 600", Command=""), "", {}, "2:00:00", True),
        (cut(SubmitLine="sbatch --wrap=app --time=2:00:00", Command=""), "", {}, "00:40:00", False),
        # Not cut
        (cut("02:00:00", Scheduler="Main"), "--time=9:00:00", {}, "02:00:00", True),
        (cut("02:00:00"), "--time=120", {}, "120", True),
        # Told by the job before
        (cut(), "--time=9:00:00", {TIME_LIMIT: "3:00:00", TIME_MIN: "20"}, "3:00:00", True),
        (cut(), "--time=9:00:00", {TIME_LIMIT: PARTITION, TIME_MIN: "20"}, "", True),
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
        (Times("", "30"), None, False, ["--time-min=30"]),
        (Times("", "30"), 600.0, False, ["--time=10", "--time-min=10"]),
        # Whole
        (Times("2:00:00", "30"), None, True, ["--time=2:00:00"]),
        (Times("2:00:00", "30"), 1200.0, True, ["--time=20"]),
        (Times("UNLIMITED", "30"), None, True, ["--time=UNLIMITED"]),
        (Times("", "30"), None, True, []),
        (Times("", "30"), 600.0, True, ["--time=10"]),
        (Times("2:00:00"), None, True, ["--time=2:00:00"]),
    ],
)
def test_what_is_asked_for(times: Times, limit: float | None, whole: bool, asked: list[str]) -> None:
    options, told = time_options(times, limit, whole=whole)
    assert options == asked
    assert told == ({TIME_LIMIT: times.limit or PARTITION, TIME_MIN: times.least} if times.least else {})


@given(st.integers(1, 6000), st.integers(1, 6000), st.none() | st.floats(0, 1e6))
def test_the_least_limit_is_never_above_the_limit(own: int, least: int, limit: float | None) -> None:
    time, time_min = time_options(Times(str(own), str(least)), limit)[0]
    asked, lowest = duration(time.removeprefix("--time=")), duration(time_min.removeprefix("--time-min="))
    assert asked is not None and lowest is not None and 60 <= lowest <= asked <= 60 * own


def test_times_are_handed_from_job_to_job() -> None:
    """The script's own --time-min would be above a shortened limit, or let one be cut that is not to be."""
    script = BatchScript("#!/bin/sh\n#SBATCH --time=2:00:00 --time-min=30 --nodes=4\n")
    record, environ = cut(), {"A": "b"}
    for limit, whole, asked, came in (
        (600.0, False, ["--time=10", "--time-min=10"], cut("00:10:00", TimeMin="00:10:00")),
        (None, True, ["--time=2:00:00"], {"TimeLimit": "02:00:00", "Scheduler": "Backfill"}),
        (None, False, ["--time=2:00:00", "--time-min=00:30:00"], cut()),
    ):
        submission = Submission(2, "t", "dmr:r:2:t", (2, 8), {}, limit=limit, whole=whole)
        prepared = prepare(Origin("7", record, script, environ, 2), submission, 1, None)
        assert [each for each in prepared.argv if each.startswith("--time")] == asked
        assert "#SBATCH --time=2:00:00\n" in prepared.script and "--time-min" not in prepared.script
        assert (prepared.environ[TIME_LIMIT], prepared.environ[TIME_MIN]) == ("2:00:00", "00:30:00")
        script = BatchScript(prepared.script)
        record, environ = came, dict(prepared.environ)


@pytest.mark.parametrize(
    ("record", "environ", "told"),
    [
        (cut(SubmitLine="sbatch --time-min=30 job.sh"), {}, "which may have been cut (--time-min)"),
        (cut(SubmitLine="sbatch -t 2:00:00 job.sh"), {}, "cut from 2:00:00 (--time-min)"),
        (cut(), {}, "which may have been cut (--time-min), and what was asked for is found neither"),
        # It is the policy that asked for a shorter one
        ({"TimeLimit": "00:20:00"}, {TIME_LIMIT: "2:00:00", TIME_MIN: "30"}, ""),
    ],
)
def test_what_is_told_of_a_limit(record: dict[str, str], environ: dict[str, str], told: str) -> None:
    found = asked_times(record, NO_SCRIPT, environ).told
    assert told in found and bool(told) == bool(found)


@pytest.mark.parametrize(
    ("own", "seen", "limit"),
    [("02:00:00", 28800.0, "480"), ("02:00:00", 7200.0, "02:00:00"), ("02:00:00", 600.0, "02:00:00"),
     ("02:00:00", None, "02:00:00"), ("UNLIMITED", 600.0, "UNLIMITED"), ("Partition_Limit", 600.0, "Partition_Limit")],
)  # fmt: skip
def test_a_limit_that_was_raised_meanwhile(own: str, seen: float | None, limit: str) -> None:
    assert with_limit({"TimeLimit": own, "A": "b"}, seen) == {"TimeLimit": limit, "A": "b"}


# -- what the engine asks, and when


class Controller:
    """Shows one running job, whose time limit may be changed."""

    row = JobRow(
        "7", "7", "RUNNING", 1, None, ("main",), 1.0, 0.0, 0.0, 2400.0, 2400.0, "", ("n1",), "n1", "me", "x", ""
    )  # fmt: skip

    def queue(self) -> list[JobRow]:
        return [self.row]

    def nodes(self) -> list[NodeRow]:
        return []

    def jobs_of(self, user: str) -> list[JobRow]:
        return [self.row]

    def job(self, job: str, *, tries: int = 1) -> JobRow | None:
        return self.row


def engine_of(record: dict[str, str], **environ: str) -> tuple[SlurmEngine, Controller]:
    controller = Controller()
    engine = SlurmEngine({"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", **environ}, client=controller)
    script = BatchScript("#!/bin/sh\n#SBATCH --time-min=30\n")
    engine.use_origin(Origin("7", {"JobName": "x", **record}, script, environ, 1))
    return engine, controller


def asked_by(engine: SlurmEngine) -> list[str]:
    prepared = engine.prepare(Submission(2, "t", "dmr:r:2:t", (2, 2), {}, whole=True))
    return [each for each in prepared.argv if each.startswith("--time")]


@pytest.mark.parametrize("environ", [{}, {TIME_LIMIT: "2:00:00", TIME_MIN: "30"}])
def test_a_limit_raised_while_the_job_runs_is_the_successors(environ: dict[str, str]) -> None:
    engine, controller = engine_of(cut(SubmitLine="sbatch -t 2:00:00 job.sh"), **environ)
    engine.allocation()
    assert asked_by(engine) == ["--time=2:00:00"], "what is shown is the limit that was cut"
    controller.row = replace(controller.row, time_limit=8 * 3600.0)
    engine.allocation()
    assert asked_by(engine) == ["--time=480"] and engine.asked_times().limit == "480"


def test_accounting_is_asked_once_and_keeps_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    begun, answer = threading.Event(), threading.Event()

    def slow(commands: object, record: object, job: str) -> str:
        asked.append(job)
        begun.set()
        assert answer.wait(10)
        return "sbatch -t 2:00:00 job.sh"

    monkeypatch.setattr(engines, "submit_line", slow)
    engine, _ = engine_of(cut())
    early = threading.Thread(target=engine.origin, daemon=True)
    early.start()
    assert begun.wait(10)
    others = threading.Thread(target=lambda: engine.use_origin(engine._described()), daemon=True)
    others.start()
    others.join(10)
    assert not others.is_alive() and early.is_alive()
    answer.set()
    early.join(10)
    assert asked_by(engine) == ["--time=2:00:00"] and asked == ["7"]


@pytest.mark.parametrize("told", ["2:00:00", PARTITION])
def test_accounting_is_not_asked_for_what_the_job_before_has_told(monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    monkeypatch.setattr(engines, "submit_line", lambda *_: pytest.fail("asked"))
    engine, _ = engine_of(cut(), **{TIME_LIMIT: told, TIME_MIN: "30"})
    assert asked_by(engine) == ([] if told == PARTITION else ["--time=2:00:00"])
