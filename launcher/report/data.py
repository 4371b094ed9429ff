"""A run's analysis as plain data, for the page and for scripts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...resize.phases.verdict import Verdict
from ..timeline.analysis import Analysis
from ..timeline.data import KINDS, Array
from ..timeline.fuse import clock_words
from .advice import advise

SKIPPED = frozenset({"held", "requested", "memory_held", "processes", "sampler"})
"""Columns that the page shows otherwise, or not."""
UNITS: Mapping[str, str] = {
    "cpu": "share", "gpu": "share", "waiting": "share", "memory": "bytes",
    "memory_held": "bytes", "node_memory": "bytes", "read": "bytes/s", "write": "bytes/s", "received": "bytes/s",
    "sent": "bytes/s", "switches": "1/s", "used": "nodes", "seconds_per_step": "s", "step": "steps", "gpu_watts": "W",
}  # fmt: skip


def report_data(found: Analysis, *, table: bool = True) -> dict[str, Any]:
    """Return all that a report tells; times are seconds since the start of the run.

    Parameters
    ----------
    table
        With the columns over time.
    """
    line, zero = found.timeline, found.timeline.start
    last = found.history.last
    data: dict[str, Any] = {
        "run": line.run,
        "program": found.key.program,
        "input": found.key.input,
        "machine": found.key.machine,
        "start": zero,
        "seconds": found.seconds,
        "state": "not started" if last is None else last.why or "running",
        "steps": found.steps,
        "generations": len(found.history.generations),
        "sizes": list(found.sizes),
        "node_hours": math.fsum(line.node_hours.values()),
        "costs": [
            {"kind": kind, "what": KINDS[kind], "node_hours": value}
            for kind, value in line.node_hours.items()
            if value > 0
        ],
        "phases": [
            {
                "phase": each.label, "start": each.start - zero, "end": each.end - zero, "nodes": each.nodes,
                "declared": each.name is not None, "confidence": each.confidence,
            }
            for each in line.phases
        ],
        "summaries": [
            {
                "phase": each.phase, "seconds": each.seconds, "node_hours": each.node_hours,
                "right": None if each.right is None else dataclasses.asdict(each.right),
                "uses": [{**dataclasses.asdict(use), "memory_headroom": use.memory_headroom} for use in each.uses],
            }
            for each in found.summaries
        ],
        "changes": [_verdict(each, zero) for each in found.verdicts],
        "plan": None if found.plan is None else dataclasses.asdict(found.plan),
        "advice": [dataclasses.asdict(each) for each in advise(found)],
        "held": [[each.time - zero, each.nodes] for each in line.held],
        "requested": [[each.time - zero, each.nodes] for each in line.requested],
        "spans": [
            {"kind": each.kind, "start": each.start - zero, "end": each.end - zero, "nodes": each.nodes,
             "generation": each.generation}
            for each in line.spans
        ],
        "queue": [[each.time - zero, each.waiting, each.idle, each.total] for each in line.queue],
        "clocks": list(clock_words(line.clocks)),
        "gaps": [{"start": each.start - zero, "end": each.end - zero, "what": each.what} for each in line.gaps],
        "period": line.period,
        "resolution": line.facts.get("resolution"),
    }  # fmt: skip
    if table:
        data["columns"] = {name: _column(found, name) for name in line.columns if name not in SKIPPED}
        if "memory_held" in line.columns:
            data["memory_held"] = _last_known(line.columns["memory_held"])
    cleaned: dict[str, Any] = _plain(data)
    return cleaned


def _column(found: Analysis, name: str) -> dict[str, Any]:
    line = found.timeline
    mean = line.columns[name]
    column: dict[str, Any] = {"unit": UNITS.get(name, ""), "mean": _figures(mean)}
    for what, values in (("least", line.least.get(name)), ("most", line.most.get(name))):
        if values is not None and not np.array_equal(values, mean, equal_nan=True):
            column[what] = _figures(values)
    return column


def _figures(values: Array) -> list[float | None]:
    """Return the values with four figures: a screen shows no more."""
    return [None if value != value else float(f"{value:.4g}") for value in values.tolist()]


def _last_known(values: Array) -> float | None:
    known = values[np.isfinite(values)]
    return float(known[-1]) if known.size else None


def _verdict(each: Verdict, zero: float) -> dict[str, Any]:
    request = each.request
    moments = {
        name: None if (value := getattr(request, name)) is None else value - zero
        for name in ("time", "granted", "asked", "stopped", "computing", "until")
    }
    return {
        **moments, "by": request.by, "reason": request.reason, "before": request.before, "after": request.after,
        "outcome": request.outcome, "phase": request.phase, "targeted": request.targeted, "verdict": each.word,
        "why": each.reason, "acquisition": each.acquisition, "synchronisation": each.synchronisation,
        "redistribution": each.redistribution, "lead": each.lead, "gained": each.gained, "lost": each.lost,
        "net": each.net, "error": each.error, "node_hours": each.node_hours, "node_hours_error": each.node_hours_error,
    }  # fmt: skip


def _plain(value: Any) -> Any:
    """Return the value with what JSON can't hold taken out."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
