"""What the end of the ranks means."""

from __future__ import annotations

from typing import Any

import pytest

from dmr.launcher.run.rundir import Control, Progress
from dmr.launcher.supervise.outcome import judge

ASKED = Control(3, 1, "resize", 4)


def progress(state: str, acknowledged: int = 0) -> Progress:
    return Progress("r", 1, "t", state, 0.0, step=7, acknowledged=acknowledged)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("exit", "report", "asked", "failure", "killed", "kind"),
    [
        (0, progress("finished"), None, None, None, "finished"),
        (137, progress("finished"), None, None, "did not end", "finished"),
        (3, progress("finished"), None, None, None, "refused"),
        (0, progress("leaving", 3), ASKED, None, None, "left"),
        (0, progress("leaving"), None, None, None, "left"),
        (143, progress("leaving", 3), ASKED, None, None, "left"),
        (0, progress("running"), None, None, None, "crashed"),
        (1, progress("running"), None, None, None, "crashed"),
        (137, progress("saving"), ASKED, None, "too late", "crashed"),
        (1, progress("running"), None, {"kind": "user", "text": "dmr: error: no"}, None, "refused"),
        (1, None, None, {"kind": "user", "text": "dmr: error: no"}, None, "refused"),
        (1, None, None, {"kind": "crash", "text": "boom"}, None, "crashed"),
        (0, None, None, None, None, "rigid"),
        (9, None, None, None, None, "rigid"),
    ],
)
def test_kinds(
    exit: int, report: Progress | None, asked: Control | None, failure: Any, killed: str | None, kind: str
) -> None:
    assert judge(exit, report, asked, failure, killed).kind == kind


def test_a_program_that_spoke_before_is_no_rigid_one() -> None:
    assert judge(1, None, None, None, spoke_before=True).kind == "crashed"


@pytest.mark.parametrize("spoke_before", [False, True])
@pytest.mark.parametrize(
    ("exit", "report", "failure", "kind"),
    [
        (139, None, None, "not started"),
        (11, None, None, "not started"),  # MPICH's word for it
        (14, None, None, "not started"),  # Open MPI ends a rank whose peer has died
        (139, progress("starting"), None, "crashed"),
        (139, None, {"kind": "crash", "text": "boom"}, "crashed"),
        (139, None, {"kind": "user", "text": "no"}, "refused"),
    ],
)
def test_a_program_that_gave_its_sign_and_died_has_not_started(
    exit: int, report: Progress | None, failure: Any, kind: str, spoke_before: bool
) -> None:
    assert judge(exit, report, None, failure, None, spoke_before, starting=True).kind == kind


def test_a_program_that_ended_well_is_rigid_whatever_sign_it_gave() -> None:
    assert judge(0, None, None, None, starting=True).kind == "rigid"


def test_a_program_that_ended_by_itself_before_it_reported() -> None:
    found = judge(3, None, None, None, ended=True)
    assert (found.kind, found.exit) == ("refused", 3) and "by itself with exit status 3, before" in found.text
    assert judge(0, None, None, None, ended=True).kind == "rigid"
    assert judge(3, None, None, None, spoke_before=True, ended=True).kind == "crashed"


def test_texts_say_what_happened() -> None:
    trace = "dmr: rank 2 failed:\nTraceback (most recent call last):\n  …\nValueError: bad cell\n"
    assert judge(1, progress("running"), None, {"rank": 2, "text": trace}).text == "rank 2: ValueError: bad cell"
    assert judge(137, progress("running"), None, None).text.endswith("exit status 137 (signal 9)")
    assert judge(0, progress("leaving", 3), ASKED, None).text == "saved step 7 and left as asked"
    assert judge(0, progress("leaving"), None, None).text == "saved step 7 and left by itself"
