"""Read all that there is to a run: its folder, and what accounting and others recorded beside it."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...resize.words import count
from ..run.history import History, read_history
from ..run.options import RunOptions
from ..run.rundir import LauncherState, Progress, RunDir
from ..telemetry.extra import Extra, Record, parse_records, read_extra
from ..telemetry.layout import TelemetryError
from ..telemetry.profile import read_profile
from ..telemetry.read import Telemetry, read_telemetry
from .accounting import KEPT, Ask, read_accounting
from .data import Clock
from .steps import step_series

POINTS = 4096
"""Rows that a timeline has at most; telemetry is read as fine as that needs."""
NO_DIFFERENCE = 0.05
"""Seconds within which two clocks are the same: what an fsync takes."""
NOT_A_CLOCK = 300.0
"""A file this much younger than its last line was copied since, and tells nothing of clocks."""


@dataclass(frozen=True)
class Sources:
    """What a timeline is made from.

    ``events`` are the ledger's, their times put right by ``clocks``. ``notes`` say what could not be used.
    """

    run: str
    folder: Path
    options: RunOptions | None
    events: tuple[Mapping[str, Any], ...]
    progress: Progress | None = None
    launcher: LauncherState | None = None
    telemetry: Telemetry = field(default_factory=Telemetry)
    extras: tuple[Extra, ...] = ()
    accounting: tuple[Record, ...] = ()
    clocks: tuple[Clock, ...] = ()
    notes: tuple[str, ...] = ()


def read_sources(
    folder: Path,
    *,
    points: int = POINTS,
    sacct: Path | None = None,
    jobcomp: Path | None = None,
    ask: Ask | None = None,
    ask_running: Callable[[str], str | None] | None = None,
    profiles: Sequence[Path] = (),
    columns: Sequence[Path] = (),
) -> Sources:
    """Read a run.

    Parameters
    ----------
    sacct
        A file with what ``sacct -P`` printed; default: ``telemetry/sacct.txt`` of the run, where there is one.
    jobcomp
        A file of Slurm's ``jobcomp/filetxt``, for jobs that the accounting does not know.
    ask
        Returns what ``sacct -P`` prints of some jobs now, where no file tells of them.
    ask_running
        Returns what ``sstat -P`` prints of a job that runs now, where no sampler does.
    profiles
        Files of Slurm's ``acct_gather_profile/hdf5``, for nodes and times that no sampler saw.
    columns
        CSV or JSONL files with columns of the user's own, beside those in ``telemetry/user/``.

    Raises
    ------
    RunDirError
        When there is no such run.
    TelemetryError
        When a file that was named can't be used.
    """
    run = RunDir(folder)
    description = run.description()
    notes: list[str] = []
    events, clocks = _events(run)
    telemetry = read_telemetry(folder / "telemetry", points)
    notes.extend(telemetry.unread)
    for each in telemetry.nodes:
        who = f"node {each.node}, generation {each.generation}"
        clocks.append(Clock(who, _or_none(each.facts.get("clock_ahead")), "a file it wrote"))
    slurm = [series for path in profiles for series in read_profile(path)]
    telemetry = dataclasses.replace(telemetry, nodes=telemetry.nodes + tuple(slurm))
    extras = [read_extra(path) for path in columns]
    for path in sorted((folder / "telemetry" / "user").glob("*")):
        if path.suffix in (".csv", ".jsonl"):
            try:
                extras.append(read_extra(path))
            except TelemetryError as error:
                notes.append(str(error))
    notes.extend(f"{count(each.left_out, 'line')} of {each.name} could not be used" for each in extras if each.left_out)
    jobs = tuple(dict.fromkeys(str(each["job"]) for each in events if each.get("job")))
    records = read_accounting(folder / "telemetry" / KEPT, jobs, notes, sacct=sacct, jobcomp=jobcomp, ask=ask)
    history = read_history(events)
    sampled = {each.generation for each in telemetry.nodes}
    now = max([time.time(), *(float(each["time"]) for each in events)])
    steps, words = step_series((*records, *_running(history, sampled, ask_running)), history, sampled, now)
    telemetry = dataclasses.replace(telemetry, nodes=telemetry.nodes + (() if slurm else steps))
    notes.extend(() if slurm else words)
    options = RunOptions.of_run(run) if "command" in description else None
    name = str(description.get("run") or folder.name)
    return Sources(
        name, folder, options, events, run.read_progress(), run.read_launcher(), telemetry, tuple(extras), records,
        tuple(clocks), tuple(notes),
    )  # fmt: skip


def _running(
    history: History, sampled: Collection[int], ask: Callable[[str], str | None] | None
) -> tuple[Record, ...]:
    """Return the rows of ``sstat`` for a generation that runs and that no sampler sees."""
    last = history.last
    if ask is None or last is None or last.end is not None or last.job is None or last.number in sampled:
        return ()
    try:
        return parse_records((ask(last.job) or "").splitlines())
    except TelemetryError:
        return ()


def _or_none(value: Any) -> float | None:
    return None if value is None else float(value)


def _events(run: RunDir) -> tuple[tuple[Mapping[str, Any], ...], list[Clock]]:
    """Return the ledger with the clocks of those who wrote it put right by the times of their files."""
    found: list[dict[str, Any]] = []
    ahead: dict[Path, float] = {}
    lines: dict[Path, list[dict[str, Any]]] = {}
    for path in sorted((run.folder / "ledger").glob("*.jsonl")):
        lines[path] = [each for each in _lines(path) if isinstance(each.get("time"), int | float)]
        if lines[path]:
            ahead[path] = float(lines[path][-1]["time"]) - os.stat(path).st_mtime
    # Files that were copied since are all of one age, whatever they say.
    copied = any(each < -NOT_A_CLOCK for each in ahead.values())
    clocks = []
    for path, events in lines.items():
        by = path.name.removesuffix(".jsonl")
        offset = ahead.get(path, 0.0)
        if copied and offset < 0 or abs(offset) <= NO_DIFFERENCE:
            known = None if copied and offset < -NO_DIFFERENCE else 0.0
            offset = 0.0
        else:
            known = offset
        if events:
            clocks.append(Clock(_who(by), known, "the time of its ledger"))
        found.extend({**each, "time": float(each["time"]) - offset} for each in events)
    found.sort(key=lambda each: (each.get("generation", 0), each["time"]))
    return tuple(found), clocks


def _who(name: str) -> str:
    number, _, rest = name.partition(".")
    part = "rank 0" if rest == "app" else "successor" if rest else "launcher"
    return f"{part}, generation {int(number) if number.isdigit() else number}"


def _lines(path: Path) -> list[dict[str, Any]]:
    found = []
    with open(path, errors="replace") as stream:
        for line in stream:
            try:
                each = json.loads(line)
            except ValueError:
                continue
            if isinstance(each, dict):
                found.append(each)
    return found
