"""What Slurm recorded of the steps of a job, for generations of which there are no samples. Pure.

``sacct`` tells of a step that has ended its processor time and the most memory of a task, ``sstat`` the same of one
that runs. That is a mean and a peak over the step: no phases can be found in it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import numpy as np

from ..run.history import GenerationRecord, History
from ..telemetry.extra import Record
from ..telemetry.read import NodeSeries

MOST_ROWS = 512
SLACK = 5.0
"""Seconds by which a step may begin before its generation: the controller's clock, and whole seconds."""


def step_series(
    records: Sequence[Record], history: History, sampled: Collection[int], now: float
) -> tuple[tuple[NodeSeries, ...], tuple[str, ...]]:
    """Return what steps used, as series with a constant value, and what is to be said of that.

    Parameters
    ----------
    records
        Rows of ``sacct`` or ``sstat``.
    sampled
        Generations that samplers saw.
    now
        The present, for a generation that has not ended.
    """
    found, notes = [], []
    for each in history.generations:
        if each.number in sampled or each.job is None:
            continue
        end = each.end if each.end is not None else now
        rows = [row for row in records if _is_of(row, each, end)]
        made = [series for row in rows if (series := _series(row, each, end)) is not None]
        if made:
            found.extend(made)
            notes.append(
                f"no samples of generation {each.number}: its processors are a mean over the whole of it, and its "
                "memory at most what is told, by what Slurm recorded of its steps"
            )
    return tuple(found), tuple(notes)


def _is_of(row: Record, record: GenerationRecord, end: float) -> bool:
    mark = re.fullmatch(r"(\d+)\.\d+", row.job)
    if mark is None or mark[1] != record.job:
        return False
    if row.start is None:  # sstat tells of steps that run
        return record.end is None
    return record.start - SLACK <= row.start <= end


def _series(row: Record, record: GenerationRecord, end: float) -> NodeSeries | None:
    fields = row.fields or {}
    tasks = _number(fields.get("NTasks")) or 1.0
    start = max(record.start, row.start or record.start)
    stop = min(end, row.end if row.end is not None else end)
    if row.cpu_seconds is None or stop - start < 1.0:
        return None
    seconds = row.cpu_seconds * (tasks if "TotalCPU" not in fields else 1.0)
    if seconds <= 0 and not row.memory:
        return None
    count = int(min(MOST_ROWS, max(2.0, stop - start)))
    times = np.linspace(start, stop, count + 1)[1:]
    values = {"cpu": seconds / (stop - start)}
    if row.memory:
        values["memory"] = row.memory * tasks / record.nodes
    values["cpus"] = _number(fields.get("AllocCPUS")) or tasks
    columns = {name: np.full(count, value) for name, value in values.items()}
    period = (stop - start) / count
    return NodeSeries(0, f"step {row.job}", times, columns, columns, columns, period, {"source": "slurm"})


def _number(text: str | None) -> float | None:
    return float(text) if text and text.isdigit() else None
