"""Workloads from what ``sacct -P`` prints.

A good call is ``sacct -P -a -X -S DATE -o JobIDRaw,Submit,Start,End,NNodes,Timelimit,State``. Columns may stand
in any order and more may be there; ``-p`` (with a bar at the end) is read as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from .swf import TraceError
from .workload import Job, Problem, Workload

NEEDED = ("Submit", "Start", "End", "NNodes")
ELAPSED = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?$")


def parse(lines: Iterable[str], *, strict: bool = False, source: str = "") -> Workload:
    """Read the jobs that ran.

    Rows of steps are passed over. A job that was shrunk has several rows, all but the last with state RESIZING:
    the largest size counts, from the first start to the last end. Jobs that have not started or not ended are left
    out and counted.

    Raises
    ------
    TraceError
        When the first line does not name the columns needed; with ``strict``, at the first malformed row.
    """
    rows = iter(enumerate(lines, 1))
    names: list[str] = []
    for _, line in rows:
        if line.strip():
            names = line.strip().split("|")
            break
    missing = [name for name in NEEDED if name not in names]
    if missing or not ({"JobID", "JobIDRaw"} & set(names)):
        missing += [] if {"JobID", "JobIDRaw"} & set(names) else ["JobIDRaw"]
        raise TraceError(
            f"this is not output of sacct -P with the columns needed: {', '.join(missing)} missing; make it with "
            "sacct -P -a -X -o JobIDRaw,Submit,Start,End,NNodes,Timelimit,State"
        )
    jobs: dict[str, Job] = {}
    ends: dict[str, float] = {}
    starts: dict[str, float] = {}
    problems: list[Problem] = []
    for number, line in rows:
        text = line.rstrip("\n")
        if not text.strip():
            continue
        row = dict(zip(names, text.split("|"), strict=False))
        key = row.get("JobIDRaw") or row.get("JobID", "")
        if "." in key:
            continue
        found = _row(row, text.count("|") + 1, len(names))
        if isinstance(found, str):
            harmless = found.startswith("has not")
            if strict and not harmless:
                raise TraceError(f"line {number}: {found}: {text[:100]!r}")
            problems.append(Problem(number, text[:100], found, True))
            continue
        submit, start, end, nodes, limit = found
        starts[key] = min(start, starts.get(key, start))
        ends[key] = max(end, ends.get(key, end))
        runtime = ends[key] - starts[key]
        if runtime <= 0:
            problems.append(Problem(number, text[:100], "run time 0", True))
            continue
        largest = max(nodes, jobs[key].nodes) if key in jobs else nodes
        jobs[key] = Job(0, submit, largest, runtime, limit if limit > 0 else runtime)
    ordered = sorted(jobs.values(), key=lambda job: job.submit)
    origin = ordered[0].submit if ordered else 0.0
    numbered = tuple(
        Job(number, job.submit - origin, job.nodes, job.runtime, job.limit) for number, job in enumerate(ordered, 1)
    )
    return Workload(numbered, 0, source, {}, tuple(problems))


def _row(row: dict[str, str], words: int, columns: int) -> tuple[float, float, float, int, float] | str:
    if not columns <= words <= columns + 1:
        return f"{words} columns instead of {columns}"
    times = []
    for name in ("Submit", "Start", "End"):
        text = row[name]
        if text in ("Unknown", "None", ""):
            return f"has not {'started' if name == 'Start' else 'ended' if name == 'End' else 'been submitted'}"
        try:
            times.append(_time(text))
        except ValueError:
            return f"{name} is {text!r}, not a time"
    if not row["NNodes"].isdigit() or int(row["NNodes"]) < 1:
        return f"NNodes is {row['NNodes']!r}, not a number of nodes"
    limit = _limit(row.get("Timelimit", ""))
    if limit is None:
        return f"Timelimit is {row['Timelimit']!r}, not a duration"
    if times[2] < times[1]:
        return "ends before it starts"
    return times[0], times[1], times[2], int(row["NNodes"]), limit


def _time(text: str) -> float:
    if text.isdigit():
        return float(text)
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _limit(text: str) -> float | None:
    """Return a limit in seconds, 0 where there is none."""
    if text in ("", "UNLIMITED", "Partition_Limit", "INVALID"):
        return 0.0
    found = ELAPSED.match(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(each or 0) for each in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds
