"""A successor's time limit: the user's own, or a shorter one that fits before a waiting job."""

from __future__ import annotations

import pytest

from dmr.launcher.engines.engine import Submission
from dmr.launcher.slurm.script import generated
from dmr.launcher.slurm.submit import TIME_LIMIT, Origin, prepare, time_options


@pytest.mark.parametrize(
    ("own", "kept", "limit", "option", "told"),
    [
        ("02:00:00", None, None, [], {}),
        ("02:00:00", None, 3599.0, ["--time=59"], {TIME_LIMIT: "02:00:00"}),
        ("02:00:00", None, 9000.0, [], {}),
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
    assert time_options({"TimeLimit": own}, environ, limit) == (option, told)


def test_the_last_limit_in_the_command_line_is_the_shorter_one() -> None:
    origin = Origin("7", {"TimeLimit": "02:00:00", "JobName": "x"}, generated(["true"]), {"A": "b"}, 2)
    short = prepare(origin, Submission(2, "t", "dmr:r:2:t", (4, 4), {}, limit=1800.0), 1, None)
    assert [each for each in short.argv if each.startswith("--time")] == ["--time=02:00:00", "--time=30"]
    assert short.environ[TIME_LIMIT] == "02:00:00"
    shortened = Origin("8", {"TimeLimit": "00:30:00", "JobName": "x"}, generated(["true"]), short.environ, 4)
    back = prepare(shortened, Submission(3, "t", "dmr:r:3:t", (8, 8), {}), 1, None)
    assert [each for each in back.argv if each.startswith("--time")] == ["--time=00:30:00", "--time=02:00:00"]
    assert TIME_LIMIT not in back.environ
