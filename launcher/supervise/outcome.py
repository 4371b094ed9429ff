"""Why the ranks ended: a pure judgement of what they left behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..run.rundir import Control, Progress

Kind = Literal["finished", "left", "rigid", "crashed", "refused", "not started"]


@dataclass(frozen=True)
class Outcome:
    """How the ranks of one generation ended.

    Attributes
    ----------
    kind
        ``finished``: the program is done. ``left``: it saved and went at a safe point. ``rigid``: it never
        spoke the protocol, so its exit status is all there is. ``crashed``: start again from the
        last checkpoint. ``refused``: a mistake in the program or its input that a restart would only repeat.
        ``not started``: the program was there, and died while MPI was on its way.
    exit
        Exit status of the ranks.
    text
        One line for the log.
    """

    kind: Kind
    exit: int
    text: str


def judge(
    exit: int,
    progress: Progress | None,
    request: Control | None,
    failure: Mapping[str, Any] | None,
    killed: str | None = None,
    spoke_before: bool = False,
    starting: bool = False,
    ended: bool = False,
) -> Outcome:
    """Judge the end of a generation.

    Parameters
    ----------
    exit
        Exit status of the ranks.
    progress
        Its last report, None when this generation never reported.
    request
        What was asked of it last, if anything.
    failure
        What the first failing rank recorded.
    killed
        Why the launcher ended the ranks itself, if it did.
    spoke_before
        Whether an earlier generation of the run reported: the program is no rigid one then.
    starting
        Whether it gave its sign (see `..run.sign`) a short time ago.
    ended
        Whether it gave its sign, and a rank ended in an orderly way before it reported.
    """
    if progress is not None and progress.state == "finished":
        if exit == 0 or killed:
            return Outcome("finished", 0, "the program finished")
        return Outcome("refused", exit, f"the program did all its steps, but then ended {_status(exit)}")
    if progress is not None and progress.state == "leaving":
        asked = "as asked" if request is not None and progress.acknowledged >= request.id else "by itself"
        return Outcome("left", 0, f"saved step {progress.step} and left {asked}")
    if failure is not None and failure.get("kind") == "user":
        return Outcome("refused", exit or 1, _described(failure))
    if killed is not None:
        return Outcome("crashed", exit, killed)
    if failure is not None:
        return Outcome("crashed", exit, _described(failure))
    # Whatever the status: where one rank died of a signal, MPI ends another with 14, say, and that may be what is seen.
    if progress is None and starting and exit != 0:
        return Outcome("not started", exit, f"the program ended {_status(exit)} before it had begun")
    if progress is None and not spoke_before and ended and exit != 0:
        return Outcome("refused", exit, f"the program ended by itself {_status(exit)}, before its first safe point")
    if progress is None and not spoke_before and ended:
        return Outcome("rigid", exit, "the program imported dmr, but ended before a first safe point")
    if progress is None and not spoke_before:
        return Outcome("rigid", exit, f"the program ended with exit status {exit}; it never spoke to the launcher")
    if exit == 0:
        return Outcome("crashed", exit, "the program ended with exit status 0, but without reporting that it was done")
    return Outcome("crashed", exit, f"the program ended {_status(exit)}")


def _described(failure: Mapping[str, Any]) -> str:
    where = f"rank {failure['rank']}: " if "rank" in failure else ""
    lines = [line for line in str(failure.get("text") or failure.get("error") or "failed").splitlines() if line.strip()]
    said = lines[-1].removeprefix("dmr: ").removeprefix("error: ").removeprefix(where)
    return where + said.strip()


def _status(exit: int) -> str:
    signal = -exit if exit < 0 else exit - 128 if 128 < exit <= 192 else None
    return f"with exit status {exit}" + (f" (signal {signal})" if signal is not None else "")
