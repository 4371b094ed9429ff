"""Columns of the user's own, what ``sacct`` and ``sstat`` print, and files of ``jobcomp/filetxt``.

A CSV file has a line of names first, a JSONL file an object a line. One of the names is ``time`` (or ``timestamp``,
``epoch``, ``date``): unix seconds, milliseconds, or a date in ISO 8601; a date without a zone is local time.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from ...resize import words
from .layout import TelemetryError
from .read import Array

TIME_NAMES = ("time", "timestamp", "epoch", "date", "datetime")
_UNITS = {"": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40, "P": 2.0**50}


@dataclass(frozen=True)
class Extra:
    """Columns over time from one file; ``left_out`` counts lines that could not be used."""

    name: str
    times: Array
    columns: Mapping[str, Array]
    left_out: int = 0


@dataclass(frozen=True)
class Record:
    """A row of ``sacct`` or ``sstat``. Unix seconds, bytes; None where it is not told.

    ``fields`` are all that was printed, by Slurm's names.
    """

    job: str
    start: float | None = None
    end: float | None = None
    nodes: int | None = None
    state: str = ""
    cpu_seconds: float | None = None
    memory: float | None = None
    fields: Mapping[str, str] | None = None


def read_extra(path: Path) -> Extra:
    """Read a CSV or JSONL file.

    Raises
    ------
    TelemetryError
        When it can't be read, has no time, or no line of it can be used.
    """
    try:
        with open(path, newline="", encoding="utf-8", errors="replace") as stream:
            first = stream.readline()
            stream.seek(0)
            if first.lstrip().startswith("{"):
                rows = [_object(line) for line in stream if line.strip()]
            else:
                rows = [dict(each) for each in csv.DictReader(stream, skipinitialspace=True)]
    except (OSError, csv.Error) as error:
        raise TelemetryError(f"can't read {path}: {error}") from None
    names = list(dict.fromkeys(str(name) for row in rows for name in row if name is not None))
    clock = next((name for name in names if name.strip().lower() in TIME_NAMES), None)
    if clock is None:
        raise TelemetryError(f"{path} has no column of times; call one of them {', '.join(TIME_NAMES[:3])} or date")
    usable = [(time, row) for row in rows if (time := parse_moment(row.get(clock))) is not None]
    if not usable:
        lines = words.count(len(rows), "line")
        raise TelemetryError(f"{path}: none of its {lines} has a time in {clock!r} that can be read")
    usable.sort(key=lambda each: each[0])
    times = np.array([time for time, _ in usable])
    keep = np.concatenate([np.diff(times) > 0, [True]])
    columns = {}
    for name in names:
        values = np.array([_number(row.get(name)) for _, row in usable])[keep]
        if name != clock and np.isfinite(values).any():
            columns[name.strip()] = values
    return Extra(path.stem, times[keep], columns, len(rows) - int(keep.sum()))


def parse_moment(value: Any) -> float | None:
    """Return unix seconds, None for what is no time."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        try:
            return datetime.fromisoformat(str(value).strip()).timestamp()
        except ValueError:
            return None
    if not math.isfinite(number):
        return None
    return number / 1000 if number > 1e11 else number


def parse_records(lines: Iterable[str]) -> tuple[Record, ...]:
    """Return the rows of ``sacct -P`` or ``sstat -P``, with whatever columns were asked for.

    Raises
    ------
    TelemetryError
        When there is no line of names with JobID in it.
    """
    rows = list(csv.reader(lines, delimiter="|", quoting=csv.QUOTE_NONE))
    names = rows[0] if rows else []
    job = next((name for name in ("JobIDRaw", "JobID") if name in names), None)
    if job is None:
        raise TelemetryError("this is no output of sacct -P or sstat -P: its first line does not name a JobID")
    found = []
    for row in rows[1:]:
        if len(row) < len(names):
            continue
        # A separator in a comment, the last column as a rule, makes the row longer.
        fields = dict(zip(names, [*row[: len(names) - 1], "|".join(row[len(names) - 1 :])], strict=True))
        nodes = fields.get("NNodes", "")
        found.append(
            Record(
                fields[job], parse_moment(fields.get("Start")), parse_moment(fields.get("End")),
                int(nodes) if nodes.isdigit() else None, fields.get("State", "").split(" ")[0],
                _duration(fields.get("TotalCPU") or fields.get("AveCPU")), _bytes(fields.get("MaxRSS")), fields,
            )
        )  # fmt: skip
    return tuple(found)


def parse_jobcomp(lines: Iterable[str], jobs: Collection[str]) -> tuple[Record, ...]:
    """Return the rows of some jobs in a file of Slurm's ``jobcomp/filetxt``, which holds those of all users.

    Its times are local, of the machine of the controller.

    Raises
    ------
    TelemetryError
        When no line of it is one of such a file.
    """
    found, known = [], False
    for line in lines:
        mark = re.match(r"JobId=(\d+) ", line)
        if mark is None:
            continue
        known = True
        if mark[1] not in jobs:
            continue
        # A name of the user's stands before what is looked for: the last of each key counts.
        fields = dict(re.findall(r"(?:^|(?<= ))(\w+)=(\S*)", line))
        nodes = fields.get("NodeCnt", "")
        found.append(
            Record(
                mark[1], parse_moment(fields.get("StartTime")), parse_moment(fields.get("EndTime")),
                int(nodes) if nodes.isdigit() else None, fields.get("JobState", ""), fields=fields,
            )
        )  # fmt: skip
    if not known:
        raise TelemetryError("this is no file of Slurm's jobcomp/filetxt: no line of it begins with JobId=")
    return tuple(found)


def _object(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _number(value: Any) -> float:
    if isinstance(value, bool) or value is None:
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _duration(text: str | None) -> float | None:
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", text or "")
    if not found:
        return None
    days, hours, minutes = (int(each or 0) for each in found.groups()[:3])
    return 86400.0 * days + 3600.0 * hours + 60.0 * minutes + float(found[4])


def _bytes(text: str | None) -> float | None:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)", text or "")
    return float(found[1]) * _UNITS[found[2]] if found else None
