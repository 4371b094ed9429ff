"""The Standard Workload Format, version 2.2 (Chapin et al. 1999; Parallel Workloads Archive).

One line a job with 18 numbers, −1 where unknown; lines that begin with ``;`` are comments, those at the
top with ``Name: value`` the header.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum

from ..words import count
from .workload import Job, Problem, Workload

FIELDS = (
    "job", "submit", "wait", "run", "allocated", "cpu", "memory", "requested", "requested_time", "requested_memory",
    "status", "user", "group", "program", "queue", "partition", "preceding", "think",
)  # fmt: skip


class Status(IntEnum):
    """Field 11."""

    FAILED = 0
    COMPLETED = 1
    PARTIAL_TO_BE_CONTINUED = 2
    PARTIAL_LAST_COMPLETED = 3
    PARTIAL_LAST_FAILED = 4
    CANCELLED = 5


@dataclass(frozen=True, slots=True)
class Record:
    """The 18 fields of one line, in their order; times in seconds, memory in kilobytes a processor."""

    job: int
    submit: float
    wait: float = -1
    run: float = -1
    allocated: int = -1
    cpu: float = -1
    memory: float = -1
    requested: int = -1
    requested_time: float = -1
    requested_memory: float = -1
    status: int = -1
    user: int = -1
    group: int = -1
    program: int = -1
    queue: int = -1
    partition: int = -1
    preceding: int = -1
    think: float = -1


WHOLE = frozenset({0, 4, 7, 10, 11, 12, 13, 14, 15, 16})
"""Places of the fields that are whole numbers."""


class TraceError(ValueError):
    """The trace can't be used; the message says which line is why."""


@dataclass(frozen=True)
class Trace:
    """What a file holds: its header, its records and what was wrong with it.

    ``lines`` are the numbers of the records' lines.
    """

    header: dict[str, str]
    records: tuple[Record, ...]
    problems: tuple[Problem, ...]
    lines: tuple[int, ...] = ()

    @property
    def processors(self) -> int:
        """Size of the machine by the header, 0 where it doesn't say."""
        for key in ("MaxProcs", "MaxNodes"):
            text = self.header.get(key, "").split()
            if text and text[0].isdigit() and int(text[0]) > 0:
                return int(text[0])
        return 0


def parse(lines: Iterable[str], *, strict: bool = False) -> Trace:
    """Read a trace.

    Parameters
    ----------
    lines
        The lines of the file, decoded.
    strict
        Refuse a file with a malformed line instead of passing over the line.

    Raises
    ------
    TraceError
        With ``strict``, at the first malformed line.
    """
    header: dict[str, str] = {}
    records: list[Record] = []
    problems: list[Problem] = []
    places: list[int] = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text.startswith(";"):
            key, colon, value = text.lstrip("; ").partition(":")
            if colon and not records and key.strip() and " " not in key.strip():
                header.setdefault(key.strip(), value.strip())
            continue
        if not text:
            continue
        found = _record(text)
        if isinstance(found, Record):
            records.append(found)
            places.append(number)
            continue
        if strict:
            raise TraceError(f"line {number}: {found}: {text[:100]!r}")
        problems.append(Problem(number, text[:100], found, True))
    return Trace(header, tuple(records), tuple(problems), tuple(places))


def _record(text: str) -> Record | str:
    """Return the record of a line, or what is wrong with it."""
    words = text.split()
    if len(words) != len(FIELDS):
        return f"{len(words)} field{'s' * (len(words) != 1)} instead of {len(FIELDS)}"
    values: list[float] = []
    for place, word in enumerate(words):
        try:
            value = float(word)
        except ValueError:
            return f"field {place + 1} ({FIELDS[place]}) is {word!r}, not a number"
        if value != value or value in (float("inf"), float("-inf")):
            return f"field {place + 1} ({FIELDS[place]}) is {word!r}, not a finite number"
        if place in WHOLE and value != int(value):
            return f"field {place + 1} ({FIELDS[place]}) is {word!r}, not a whole number"
        values.append(int(value) if place in WHOLE else value)
    return Record(*values)  # type: ignore[arg-type]


def to_workload(trace: Trace, processors_per_node: int = 1, source: str = "", nodes: int | None = None) -> Workload:
    """Return the jobs that ran.

    A job's size is what it asked for, else what it got; its limit what it asked for, else its run time.
    Records of jobs that never ran (cancelled before the start, no run time or size) are left out and counted,
    as are the parts of a checkpointed job (status 2 to 4) where its whole is there as well; so are records that are
    larger than the machine, which has ``nodes`` nodes if given, else as many as the header says. Corrected and
    counted: records out of order, and numbers of jobs that were there before.
    """
    machine = nodes or -(-trace.processors // processors_per_node)
    problems = list(trace.problems)
    jobs: list[Job] = []
    whole = {each.job for each in trace.records if each.status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED)}
    last = float("-inf")
    numbers: set[int] = set()
    for each, line in zip(trace.records, trace.lines or range(1, len(trace.records) + 1), strict=True):
        processors = each.requested if each.requested > 0 else each.allocated
        size = -(-processors // processors_per_node)
        why = ""
        if each.run <= 0:
            why = "never ran" if each.run != 0 else "run time 0"
        elif processors <= 0:
            why = "no number of processors"
        elif each.submit < 0:
            why = "negative submit time"
        elif each.status in (2, 3, 4) and each.job in whole:
            why = "part of a job that is there as a whole"
        elif machine and size > machine:
            why = f"asks for {count(size, 'node')} of {machine}"
        if why:
            problems.append(Problem(line, f"job {each.job}", why, True))
            continue
        if each.submit < last:
            problems.append(Problem(line, f"job {each.job}", "submitted before the job above it", False))
        last = max(last, each.submit)
        if each.job in numbers:
            problems.append(Problem(line, f"job {each.job}", "has the number of a job above it", False))
        numbers.add(each.job)
        limit = each.requested_time if each.requested_time > 0 else each.run
        jobs.append(Job(each.job, each.submit, size, each.run, max(limit, 1.0)))
    jobs.sort(key=lambda job: job.submit)
    if len(numbers) < len(jobs):
        jobs = [replace(job, id=number) for number, job in enumerate(jobs, 1)]
    return Workload(tuple(jobs), machine, source, trace.header, tuple(problems))


def write(records: Iterable[Record], header: dict[str, str] | None = None) -> str:
    """Return a trace as text."""
    lines = [f"; {key}: {value}" for key, value in (header or {}).items()]
    for record in records:
        lines.append(" ".join(_number(getattr(record, name)) for name in FIELDS))
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
