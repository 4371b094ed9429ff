"""What nodes were held for, from the ledger alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..run.history import CRASHED, FINAL, LOST, GenerationRecord, History
from ..telemetry.extra import Record
from .data import Kind, Level, Span

Events = Sequence[Mapping[str, Any]]


def spans(
    history: History, events: Events, now: float, accounting: Sequence[Record] = ()
) -> tuple[tuple[Span, ...], tuple[tuple[float, float, int, int], ...]]:
    """Return what nodes were held for, and (start, end, nodes, generation) of the times in which the program computed.

    Parameters
    ----------
    now
        The present, for a generation that has not ended.
    accounting
        Rows of ``sacct``: the beginning and end of each job, where the scheduler knows them better.
    """
    found: list[Span] = []
    computing = []
    generations = history.generations
    for place, each in enumerate(generations):
        after = generations[place + 1] if place + 1 < len(generations) else None
        end = each.end if each.end is not None else after.start if after is not None else max(now, each.start)
        parts = _parts(each, [e for e in events if e.get("generation") == each.number], end)
        lost_from = _lost_from(each, after, parts)
        for kind, start, stop in parts:
            if kind == "compute" and lost_from is not None and stop > lost_from:
                found.append(Span(start, max(start, lost_from), each.nodes, "compute", each.number))
                found.append(Span(max(start, lost_from), stop, each.nodes, "lost", each.number))
            else:
                found.append(Span(start, stop, each.nodes, kind, each.number))
        first = next((start for kind, start, _ in parts if kind == "compute"), None)
        if first is not None:
            last = max(stop for kind, _, stop in parts if kind == "compute")
            computing.append((first, last, each.nodes, each.number))
        found.extend(_before(place, history, accounting))
        if after is None or after.job != each.job:
            found.extend(_afterwards(each, end, accounting))
    kept = [each for each in found if each.end > each.start]
    return tuple(sorted(kept, key=lambda each: (each.start, each.generation))), tuple(computing)


def _parts(record: GenerationRecord, events: Events, end: float) -> list[tuple[Kind, float, float]]:
    """Return what a generation did from its start to its end, without a hole."""
    loaded = next((e for e in events if e.get("event") == "loaded"), None)
    if loaded is None:
        return [("launch", record.start, end)]
    begin = min(end, float(loaded["time"]))
    load = min(begin - record.start, float(loaded.get("load") or 0.0))
    parts: list[tuple[Kind, float, float]] = [("launch", record.start, begin - load), ("load", begin - load, begin)]
    saves = sorted(
        (float(e["time"]) - float(e.get("seconds") or 0.0), float(e["time"]))
        for e in events
        if e.get("event") == "checkpoint"
    )
    at = begin
    for start, stop in saves:
        start, stop = max(at, start), min(end, stop)
        if stop > start:
            parts += [("compute", at, start), ("save", start, stop)]
            at = stop
    left = record.why is not None and record.why not in CRASHED and record.why not in ("finished", "failed", LOST)
    parts.append(("leave" if left and saves else "compute", at, end))
    return [(kind, start, stop) for kind, start, stop in parts if stop > start]


def _lost_from(
    record: GenerationRecord, after: GenerationRecord | None, parts: Sequence[tuple[Kind, float, float]]
) -> float | None:
    """Return when the work began that the next generation did again, None when there was none."""
    if after is None or None in (record.step, record.first_step, after.first_step):
        return None
    assert record.step is not None and record.first_step is not None and after.first_step is not None
    again, done = record.step - after.first_step, record.step - record.first_step
    computing = [(start, stop) for kind, start, stop in parts if kind == "compute"]
    if again <= 0 or done <= 0 or not computing:
        return None
    seconds = sum(stop - start for start, stop in computing) * min(1.0, again / done)
    for start, stop in reversed(computing):
        if stop - start >= seconds:
            return stop - seconds
        seconds -= stop - start
    return computing[0][0]


def _before(place: int, history: History, accounting: Sequence[Record]) -> list[Span]:
    """Return what the nodes were held for before their ranks were started."""
    record = history.generations[place]
    before = history.generations[place - 1] if place else None
    waited, row = history.held_before(place), _row(record.job, accounting)
    if before is not None and before.job == record.job:
        return [Span(*waited, "between", record.number)] if waited else []
    begin = row.start if row is not None else waited[0] if waited else None
    if begin is None or begin >= record.start:
        return []
    if before is None or before.end is None:
        return [Span(begin, record.start, record.nodes, "between", record.number)]
    side = min(record.start, max(begin, before.end))
    return [
        Span(begin, side, record.nodes, "handover", record.number),
        Span(side, record.start, record.nodes, "between", record.number),
    ]


def _afterwards(record: GenerationRecord, end: float, accounting: Sequence[Record]) -> list[Span]:
    row = _row(record.job, accounting)
    if row is None or row.end is None or row.end <= end or record.end is None:
        return []
    return [Span(end, row.end, record.nodes, "leave", record.number)]


def _row(job: str | None, accounting: Sequence[Record]) -> Record | None:
    """Return a job's row; the last one, where a job that gave nodes back has several."""
    rows = [each for each in accounting if job is not None and each.job == job and each.start is not None]
    return rows[-1] if rows else None


def held_levels(found: Sequence[Span]) -> tuple[Level, ...]:
    """Return how many nodes were held from when on."""
    changes: dict[float, int] = {}
    for span in found:
        changes[span.start] = changes.get(span.start, 0) + span.nodes
        changes[span.end] = changes.get(span.end, 0) - span.nodes
    levels: list[Level] = []
    nodes = 0
    for time in sorted(changes):
        nodes += changes[time]
        if not levels or levels[-1].nodes != nodes:
            levels.append(Level(time, nodes))
    return tuple(levels)


def requested_levels(history: History, events: Events, end: float) -> tuple[Level, ...]:
    """Return how many nodes the run wanted from when on: those of the newest request, else those it has."""
    changes: list[tuple[float, int]] = []
    for each in history.generations:
        changes.append((each.start, each.nodes))
        if each.end is not None and each.why in FINAL:
            changes.append((each.end, 0))
    sizes = {each.number: each.nodes for each in history.generations}
    for event in events:
        name, time, generation = event.get("event"), float(event["time"]), int(event.get("generation", 0))
        if name == "submitted" and event.get("job") is None or name == "resized":
            changes.append((time, int(event["nodes"][1])))
        elif name == "cancelled" and generation in sizes:
            changes.append((time, sizes[generation]))
        elif name == "requested" and event.get("action") == "resize" and event.get("nodes"):
            changes.append((time, int(event["nodes"])))
    levels: list[Level] = []
    for time, nodes in sorted(changes, key=lambda each: each[0]):
        if time <= end and (not levels or levels[-1].nodes != nodes):
            levels.append(Level(time, nodes))
    return tuple(levels)
