"""The time limit that a successor asks for, and the least one that it takes (``sbatch --time-min``).

A job with ``--time-min`` that backfilling starts gets a limit cut to the hole it fits into, or (22.05 and 24.11, by
trial) always ``--time-min`` itself, and its record then shows the cut one. Successors have to ask for the whole again,
or limits would only ever become shorter.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass

from ..engines.engine import EngineError
from .commands import Commands
from .options import Script, read_line
from .parse import duration

TIME_LIMIT, TIME_MIN = "DMR_TIME_LIMIT", "DMR_TIME_MIN"
"""Tell a job whose own limits may be shorter those that the user asked for, for its successors."""
PARTITION = "partition"
"""What `TIME_LIMIT` says where the user asked for none: the partition's."""
SECONDS = 10.0
"""How long accounting may take to answer, and to know of a job."""
_NO_LIMIT = frozenset({"0", "-1", "INFINITE", "UNLIMITED"})


@dataclass(frozen=True)
class Times:
    """What the user asked for, in sbatch's words.

    Attributes
    ----------
    limit
        Empty for the partition's own.
    least
        The shortest limit that the job takes, empty where the limit must not be cut.
    cut
        The limit that the scheduler gave this job where that is less, or may be; else empty.
    known
        Whether ``limit`` was found; otherwise it is the one that was cut.
    """

    limit: str
    least: str = ""
    cut: str = ""
    known: bool = True

    @property
    def told(self) -> str:
        """What the user should know of it, empty for nothing."""
        if not self.cut:
            return ""
        began = f"the scheduler started this job with a time limit of {self.cut}"
        if not self.known:
            return (
                f"{began}, which may have been cut (--time-min), and what was asked for is found neither "
                "in the job's script nor in Slurm's accounting: successors ask for no more than that; a line "
                "'#SBATCH --time=…' in the script tells it"
            )
        how = f"cut from {self.limit}" if self.limit else "which may have been cut"
        asked = f"for {self.limit} again" if self.limit else "for the partition's limit again"
        return f"{began}, {how} (--time-min): what is not done by then goes on in a successor, which asks {asked}"


def asked_times(record: Mapping[str, str], script: Script, environ: Mapping[str, str]) -> Times:
    """Find out what the user asked for.

    In this order: what the job before has told; the record, where the limit can't have been cut; the line of sbatch,
    where it is in the record (see `submit_line`); sbatch's variable; the script. One below the record's was overridden,
    or the job's limit has been raised since.
    """
    own = record.get("TimeLimit", "")
    own = "" if own == "Partition_Limit" else own
    least = environ.get(TIME_MIN) or record.get("TimeMin") or script.given.get("time-min", "")
    kept = environ.get(TIME_LIMIT, "")
    cuttable = bool(least) and may_be_cut(record)
    if kept == PARTITION:
        return Times("", least, own if cuttable else "")
    if kept:
        limit = own if own and _longer(own, kept) else kept
        return Times(limit, least, own if cuttable and _longer(limit, own) else "")
    if not cuttable:
        return Times(own, least)
    line = _options_of(record)
    given = [*([] if line is None else [line]), _options_in(environ), script.given]
    for each in given:
        limit = each.get("time", "")
        if limit and (duration(limit) is not None or limit.upper() in _NO_LIMIT) and not _longer(own, limit):
            return Times(limit, least, own if _longer(limit, own) else "")
    if line is not None and not any("time" in each for each in given):
        return Times("", least, own)
    return Times(own, least, own, known=False)


def may_be_cut(record: Mapping[str, str]) -> bool:
    """Whether the record's time limit may be less than what was asked for: only backfill cuts it."""
    return "TimeMin" in record and record.get("Scheduler", "").rstrip(":*") != "Main"


def with_limit(record: Mapping[str, str], seconds: float | None) -> Mapping[str, str]:
    """Return the record with a limit that is longer than its own; itself otherwise, and where none is known."""
    if seconds is None or not _longer(str(int(seconds // 60)), record.get("TimeLimit", "")):
        return record
    return {**record, "TimeLimit": str(int(seconds // 60))}


def submit_line(commands: Commands, record: Mapping[str, str], job: str) -> str:
    """Return the line that a job was submitted by, from its record or from accounting; empty where neither has it.

    Accounting knows of a job some seconds after its start: it is asked again until then.
    """
    if "SubmitLine" in record:
        return record["SubmitLine"]
    argv = ["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job}", "--format=SubmitLine"]
    until = time.monotonic() + SECONDS
    try:
        while not (line := commands.query(argv, seconds=SECONDS).out.strip()) and time.monotonic() < until:
            time.sleep(2.0)
    except EngineError:
        return ""
    return line


def time_options(times: Times, limit: float | None, *, whole: bool = False) -> tuple[list[str], dict[str, str]]:
    """Return the options of time, and what tells the next job the user's own.

    Parameters
    ----------
    limit
        A shorter limit in seconds that fits into the queue; Slurm counts in minutes, so it is rounded down.
    whole
        Let the scheduler cut nothing off. The script has no ``--time-min`` any more, see `.options.read_script`.
    """
    told = {TIME_LIMIT: times.limit or PARTITION}
    own, asked = _seconds(times.limit), times.limit
    shorter = limit is not None and (own is None or limit < own)
    if shorter and limit is not None:
        asked = str(max(1, int(limit // 60)))
    options = [f"--time={asked}"] if asked else []
    if not times.least:
        return options, told if shorter else {}
    told[TIME_MIN] = times.least
    if whole:
        return options, told
    # More than the limit is refused.
    return [*options, f"--time-min={asked if _longer(times.least, asked) else times.least}"], told


def _options_of(record: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options in the line of sbatch, up to the script; None where they are not known for sure."""
    line, command = record.get("SubmitLine", ""), record.get("Command", "").split()
    try:
        words = shlex.split(line)[1:]
    except ValueError:  # Slurm joins words without quotes
        words = line.split()[1:]
    read = read_line(words)
    if read is None:
        return None
    found, behind = read[0], words[read[1] :]
    if behind and behind[0].startswith("--"):
        # What was wrapped has lost its quotes, so an option of time may be sbatch's or of what is run.
        return None if any(re.match(r"-[A-Za-z]*t|--ti", word) for word in behind[1:]) else found
    # A word behind a value with spaces is not the script.
    name = os.path.basename(command[0]) if command else ""
    return found if name and behind and os.path.basename(behind[0]) == name else None


def _options_in(environ: Mapping[str, str]) -> dict[str, str]:
    value = environ.get("SBATCH_TIMELIMIT", "")
    return {"time": value} if value else {}


def _seconds(text: str) -> float | None:
    """Return the seconds of a limit, None for no limit."""
    return None if text.upper() in _NO_LIMIT else duration(text)


def _longer(first: str, second: str) -> bool:
    """Whether the first limit is longer than the second, in the whole minutes that Slurm counts."""
    one, other = _seconds(first), _seconds(second)
    if other is None:
        return False
    return one is None or -(-one // 60) > -(-other // 60)
