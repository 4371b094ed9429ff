"""Fuse what was recorded into one table. Pure."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..run.history import History, read_history
from ..telemetry.extra import Record
from ..telemetry.read import NodeSeries
from . import held as holding
from .data import Array, Clock, Gap, Level, QueueView, Timeline
from .sources import NO_DIFFERENCE, POINTS, Sources

SUMS = ("read", "write", "received", "sent", "switches", "ranks", "processes", "sampler", "gpu_watts")
"""Columns of which the nodes' are added up; node-wide ones where the application's own are not known."""
MOST = ("memory", "node_memory", "busiest")
"""Columns of which the fullest node counts."""
MISSING = 3.0
"""Periods without a sample that are a gap."""
MOST_GAPS = 50


def fuse(sources: Sources, now: float) -> Timeline:
    """Return the timeline of a run.

    Parameters
    ----------
    now
        The present, for a run that has not ended.
    """
    history = _with_last_signs(sources, read_history(sources.events))
    accounting, clocks, notes = _checked(sources.accounting, history)
    spans, computing = holding.spans(history, sources.events, _last(sources, history, now), accounting)
    start, end = _ends(sources, history, spans, now)
    held = holding.held_levels(spans)
    requested = holding.requested_levels(history, sources.events, end)
    count = int(min(POINTS, max(1.0, math.ceil(end - start))))
    period = (end - start) / count if end > start else 1.0
    times = start + period * (np.arange(count) + 0.5)
    columns: dict[str, Array] = {"held": _sampled(held, times), "requested": _sampled(requested, times)}
    least, most = dict(columns), dict(columns)
    for name, found in _machines(sources.telemetry.nodes, start, period, count).items():
        columns[name], least[name], most[name] = found
    if "cpu" in columns:
        active = holding.held_levels([each for each in spans if each.kind not in ("handover", "between")])
        columns["used"] = columns["cpu"] * _sampled(active, times)
    for extra in sources.extras:
        for name, values in extra.columns.items():
            label = name if name not in columns else f"{extra.name}.{name}"
            found = _binned(extra.times, values, values, values, start, period, count)
            columns[label], least[label], most[label] = found
    step_times, step_counts = _steps(sources, history)
    known = step_times.size >= 2
    columns["step"] = np.interp(times, step_times, step_counts, np.nan, np.nan) if known else np.full(count, np.nan)
    return Timeline(
        sources.run, start, end, period, times, columns, least, most, step_times, step_counts, history.generations,
        spans, held, requested, computing, (), _queue(sources.events), sources.clocks + clocks,
        _gaps(sources, history, end), sources.notes + notes, _facts(sources),
    )  # fmt: skip


def _with_last_signs(sources: Sources, history: History) -> History:
    """Let a generation whose launcher was killed, so that nobody recorded its end, end with its last sign of life.

    It may have been resumed long after that.
    """
    found = list(history.generations)
    for place, (each, after) in enumerate(itertools.pairwise(history.generations)):
        if each.end is None:
            signs = [float(e["time"]) for e in sources.events if e.get("generation") == each.number]
            nodes = [node for node in sources.telemetry.nodes if node.generation == each.number and node.times.size]
            signs += [float(node.times[-1]) for node in nodes]
            last = max(signs, default=each.start)
            found[place] = dataclasses.replace(each, end=max(each.start, min(after.start, last)))
    return dataclasses.replace(history, generations=tuple(found))


def _last(sources: Sources, history: History, now: float) -> float:
    """Return the last time at which anybody gave a sign of life."""
    last = history.last
    if last is not None and last.end is not None:
        return last.end
    signs = [float(each["time"]) for each in sources.events]
    if sources.progress is not None:
        signs.append(sources.progress.time)
    if sources.launcher is not None:
        signs.append(sources.launcher.time)
    if sources.telemetry.span is not None:
        signs.append(sources.telemetry.span[1])
    return min(now, max(signs, default=now))


def _ends(sources: Sources, history: History, spans: Sequence[Any], now: float) -> tuple[float, float]:
    times = [each.start for each in spans] + [each.end for each in spans]
    times += [float(each["time"]) for each in sources.events]
    if not times:
        return now, now + 1.0
    return min(times), max(max(times), min(times) + 1.0)


def _checked(
    accounting: Sequence[Record], history: History
) -> tuple[tuple[Record, ...], tuple[Clock, ...], tuple[str, ...]]:
    """Hold the scheduler's times against the launchers', and put them right where they can't be."""
    starts = {each.job: each.start for each in accounting if each.start is not None}
    if not starts:
        return (), (), ()
    first: dict[str, float] = {}
    for each in history.generations:
        if each.job is not None:
            first.setdefault(each.job, each.start)
    for other in history.successors:
        if other.job is not None and other.started is not None:
            first[other.job] = min(other.started, first.get(other.job, other.started))
    shared = [(starts[job], first[job]) for job in first if job in starts]
    if not shared:
        return (), (), ("the accounting knows none of this run's jobs",)
    # A launcher can't start before its job: the scheduler's clock is ahead at least by that, up to its whole second.
    ahead = max(start - began for start, began in shared)
    ahead = ahead if ahead > 1.0 else 0.0
    missing = sorted(set(first) - set(starts))
    notes = (f"the accounting does not know job {', '.join(missing)}",) if missing else ()
    moved = tuple(
        dataclasses.replace(
            each,
            start=None if each.start is None else each.start - ahead,
            end=None if each.end is None else each.end - ahead,
        )
        for each in accounting
    )
    how = "jobs that had not begun when they ran" if ahead else "its jobs"
    return moved, (Clock("scheduler", ahead, how),), notes


def _sampled(levels: Sequence[Level], times: Array) -> Array:
    if not levels:
        return np.full(times.size, np.nan)
    place = np.searchsorted([each.time for each in levels], times, side="right") - 1
    nodes = np.array([each.nodes for each in levels], dtype=np.float64)
    return np.where(place >= 0, nodes[np.maximum(place, 0)], 0.0)


def _machines(
    nodes: Sequence[NodeSeries], start: float, period: float, count: int
) -> dict[str, tuple[Array, Array, Array]]:
    """Return the columns over all nodes: sums, shares of what is held, and the fullest node's."""
    if not nodes:
        return {}
    total: dict[str, list[Array]] = {}
    weight: dict[str, Array] = {}
    for each in nodes:
        for name in each.mean:
            found = _binned(each.times, each.mean[name], each.least[name], each.most[name], start, period, count)
            known = np.isfinite(found[0])
            if name not in total:
                total[name] = [np.full(count, np.nan) for _ in range(3)]
                weight[name] = np.zeros(count)
            weight[name] += known
            for into, values in zip(total[name], found, strict=True):
                if name in MOST or name in ("step", "seconds_per_step"):
                    np.fmax(into, values, out=into)
                else:
                    into[known] = np.where(np.isnan(into[known]), 0.0, into[known]) + values[known]
    result: dict[str, tuple[Array, Array, Array]] = {}
    for name, sums in total.items():
        if name in (*SUMS, *MOST, "seconds_per_step"):
            result[name] = (sums[0], sums[1], sums[2])
    for name, held in (("cpu", "cpus"), ("gpu", "gpus"), ("waiting", None)):
        if name not in total:
            continue
        amount = total[held][0] if held in total else weight[name] if held is None else _facts_sum(nodes, weight[name])
        with np.errstate(divide="ignore", invalid="ignore"):
            mean, low, high = (np.where(amount > 0, values / amount, np.nan) for values in total[name])
        result[name] = (np.minimum(mean, 1.5), np.minimum(low, 1.5), np.minimum(high, 1.5))
    limits = [float(each.facts["memory_held"]) for each in nodes if each.facts.get("memory_held")]
    if "memory" in result and limits:
        # One node's worth, beside the fullest node's use.
        known = np.isfinite(result["memory"][0])
        flat = np.where(known, min(limits), np.nan)
        result["memory_held"] = (flat, flat, flat)
    return result


def _facts_sum(nodes: Sequence[NodeSeries], weight: Array) -> Array:
    """Return processors held where the samples don't tell: those of the nodes' facts, or one a rank seen."""
    per_node = [float(each.facts.get("cpus") or each.mean.get("ranks", np.ones(1)).max()) for each in nodes]
    return weight * float(np.mean(per_node))


def _binned(
    times: Array, mean: Array, least: Array, most: Array, start: float, period: float, count: int
) -> tuple[Array, Array, Array]:
    """Return mean, least and most of each row; a coarser sample counts for all rows that it spans."""
    middle, low, high = (np.full(count, np.nan) for _ in range(3))
    known = np.isfinite(mean)
    place = np.floor((times - start) / period).astype(np.int64)
    known &= (place >= 0) & (place < count)
    if not known.any():
        return middle, low, high
    place = place[known]
    edges = np.flatnonzero(np.diff(place, prepend=-1))
    rows, sizes = place[edges], np.diff(edges, append=place.size)
    middle[rows] = np.add.reduceat(mean[known], edges) / sizes
    low[rows] = np.minimum.reduceat(least[known], edges)
    high[rows] = np.maximum.reduceat(most[known], edges)
    step = float(np.median(np.diff(times))) if times.size > 1 else period
    if step > period:
        _spread((middle, low, high), rows, min(math.ceil(step / period) + 1, 64))
    return middle, low, high


def _spread(found: Iterable[Array], filled: NDArray[np.int64], reach: int) -> None:
    """A sample stands for the time before it: fill the empty rows between two samples that follow one another."""
    gaps = np.diff(filled)
    for values in found:
        for place, width in zip(filled[1:], gaps, strict=True):
            if 1 < width <= reach:
                values[place - width + 1 : place] = values[place]


def _steps(sources: Sources, history: History) -> tuple[Array, Array]:
    """Return when the program was at which step: exactly from the ledger, else as the progress said."""
    times, counts = [], []
    for record in history.generations:
        exact = []
        for event in sources.events:
            if event.get("generation") == record.number and isinstance(event.get("step"), int):
                name, time = event.get("event"), float(event["time"])
                if name in ("loaded", "phase", "note"):
                    exact.append((time, float(event["step"])))
                elif name == "checkpoint":
                    exact.append((time - float(event.get("seconds") or 0.0), float(event["step"])))
        loaded = next((e for e in sources.events if _is(e, record.number, "loaded")), None)
        if loaded is None:
            continue
        if record.end is not None and record.why == "finished" and record.step is not None:
            exact.append((record.end, float(record.step)))
        begin = float(loaded["time"])
        said = [
            (float(time), float(step))
            for each in sources.telemetry.nodes
            if each.generation == record.number and "step" in each.mean
            for time, step in zip(each.times, each.mean["step"], strict=True)
            if math.isfinite(step) and time > begin
        ]
        most = -math.inf
        sure = {each[0] for each in exact}
        # What the ledger says goes first at one time: a report may be a second old, and never says more.
        for time, step in sorted([*exact, *said]):
            if step > most or (step == most and time in sure):
                times.append(time)
                counts.append(step)
                most = step
    order = np.argsort(np.array(times), kind="stable")
    moments, steps = np.array(times)[order], np.array(counts)[order]
    keep = np.concatenate([np.diff(moments) > 0, [True]]) if moments.size else np.zeros(0, dtype=bool)
    return moments[keep], steps[keep]


def _is(event: Mapping[str, Any], generation: int, name: str) -> bool:
    return event.get("generation") == generation and event.get("event") == name


def _queue(events: Iterable[Mapping[str, Any]]) -> tuple[QueueView, ...]:
    found = []
    for event in events:
        facts = (event.get("decision") or {}).get("facts") if event.get("event") == "decided" else None
        if isinstance(facts, Mapping) and "waiting" in facts:
            waiting, idle, total = (int(facts.get(name, 0)) for name in ("waiting", "idle", "total"))
            found.append(QueueView(float(event["time"]), waiting, idle, total))
    return tuple(sorted(found, key=lambda each: each.time))


def _gaps(sources: Sources, history: History, end: float) -> tuple[Gap, ...]:
    found = []
    for record in history.generations:
        stop = record.end if record.end is not None else end
        series = [each for each in sources.telemetry.nodes if each.generation == record.number]
        if not series:
            if stop - record.start > 5.0:
                found.append(Gap(record.start, stop, f"no telemetry of generation {record.number}"))
            continue
        seen = {each.node for each in series}
        silent = [host for host in record.hosts if host not in seen and not host.startswith("local")]
        if silent and len(seen) < len(record.hosts):
            names = ", ".join(silent[:5]) + (", …" if len(silent) > 5 else "")
            found.append(Gap(record.start, stop, f"no telemetry of {names} in generation {record.number}"))
        for each in series:
            limit = max(MISSING * each.period, 5.0)
            edges = np.concatenate([[max(record.start, each.times[0] - each.period)], each.times, [stop]])
            for place in np.flatnonzero(np.diff(edges) > limit):
                what = f"no samples of node {each.node} in generation {record.number}"
                found.append(Gap(float(edges[place]), float(edges[place + 1]), what))
    pairs = zip(history.generations, history.generations[1:], strict=False)
    for before, after in pairs:
        if before.end is not None and after.job != before.job and after.start - before.end > 5.0:
            found.append(Gap(before.end, after.start, "not running: between two jobs"))
    return tuple(sorted(found, key=lambda each: each.start)[:MOST_GAPS])


def _facts(sources: Sources) -> dict[str, float | str]:
    found: dict[str, float | str] = {}
    for each in sources.telemetry.nodes:
        for name in ("machine", "cpus", "memory_held"):
            if name in each.facts:
                found.setdefault(name, each.facts[name])
    if sources.telemetry.nodes:
        found["resolution"] = max(each.period for each in sources.telemetry.nodes)
        found["nodes_sampled"] = len({each.node for each in sources.telemetry.nodes})
        found["hosts_sampled"] = len({each.facts.get("host", each.node) for each in sources.telemetry.nodes})
    return found


def clock_words(clocks: Sequence[Clock]) -> tuple[str, ...]:
    """Return what is to be said of clocks: those that differ, and those of which it is not known."""
    words = [
        f"the clock of {each.who} was {abs(each.ahead):.2f} s {'ahead' if each.ahead > 0 else 'behind'} "
        f"(by {each.how}); its times were put right"
        for each in clocks
        if each.ahead is not None and abs(each.ahead) > NO_DIFFERENCE
    ]
    unknown = [each.who for each in clocks if each.ahead is None]
    if unknown:
        words.append(f"clocks that could not be compared: {', '.join(unknown[:5])}{', …' if len(unknown) > 5 else ''}")
    return tuple(words)
