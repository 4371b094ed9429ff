"""From a run's timeline to what is to be said of it: phases, their use, verdicts, costs, advice."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...resize.phases.changes import PhasesError
from ...resize.phases.detect import Declared, Held, find_phases
from ...resize.phases.knowledge import AtSize, Book, Entry, Key, Occurrence, RunRecord, record_of
from ...resize.phases.looks import WHOLE, Look, looks_of, named_as_known
from ...resize.phases.plan import Part, SizePlan, plan
from ...resize.phases.signals import Signals
from ...resize.phases.usage import PhaseSummary, Usage, counted_steps, rates, summarise
from ...resize.phases.verdict import Verdict, judge
from ...resize.speed import Estimate, Speed
from ...resize.view import CostSample, Rate
from ..models.key import key_of
from ..run.history import GenerationRecord, History, read_history
from .data import Timeline
from .demands import for_a_phase, requests
from .fuse import fuse
from .signals import signals_of
from .sources import Sources


@dataclass(frozen=True)
class Analysis:
    """All that is known of a run."""

    timeline: Timeline
    history: History
    sizes: tuple[int, ...]
    usage: Usage
    summaries: tuple[PhaseSummary, ...]
    verdicts: tuple[Verdict, ...]
    rates: tuple[Rate, ...]
    key: Key
    record: RunRecord
    plan: SizePlan | None = None
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        return self.timeline.end - self.timeline.start

    @property
    def steps(self) -> int | None:
        last = self.history.last
        if last is not None and last.step is not None:
            return last.step
        return int(self.timeline.step_counts[-1]) if self.timeline.step_counts.size else None


class Speeds:
    """Speeds by phase and size, from this run and earlier ones."""

    def __init__(self, found: Sequence[Rate], earlier: Sequence[Rate] = ()) -> None:
        self._rates, self._earlier = tuple(found), tuple(earlier)
        self._known: dict[str | None, Speed] = {}

    def at(self, phase: str | None, nodes: int) -> Estimate | None:
        if phase not in self._known:
            own = [each for each in self._rates if each.phase == phase]
            past = [each for each in self._earlier if each.phase == phase]
            self._known[phase] = Speed(own, phase, past)
        return self._known[phase].at(nodes)


def analyse(sources: Sources, book: Book | None = None, now: float | None = None) -> Analysis:
    """Analyse a run.

    Parameters
    ----------
    book
        What is known from earlier runs, see `dmr.launcher.models.store`.
    now
        The present; default: the clock's.
    """
    now = time.time() if now is None else now
    fused = fuse(sources, now)
    key = key_of(sources, str(fused.facts.get("machine", "")))
    entry = _earlier(book, key, run_name(sources))
    earlier = entry.rates()
    timeline, looks, notes = with_phases(fused, sources.events, entry.looks(now))
    history = read_history(sources.events)
    usage = usage_of(timeline)
    found = rates(timeline.phases, usage) or _rates_of_generations(history)
    sizes = sources.options.sizes if sources.options is not None else ()
    sizes = sizes or tuple(sorted({each.nodes for each in history.generations}))
    summaries = summarise(timeline.phases, usage, sizes, earlier)
    speeds = Speeds(found, earlier)
    asked = requests(history, sources.events, timeline.phases, usage, timeline.end)
    verdicts = tuple(judge(each, speeds) for each in asked)
    record = _record(sources, timeline, history, usage, summaries, looks)
    planned = _plan(timeline, usage, history, sizes, speeds)
    return Analysis(
        timeline, history, sizes, usage, summaries, verdicts, found, key, record, planned, timeline.notes + notes
    )


def with_phases(
    timeline: Timeline, events: Sequence[Mapping[str, Any]], known: Sequence[Look] = ()
) -> tuple[Timeline, tuple[Look, ...], tuple[str, ...]]:
    """Return the timeline with its phases, what those look like that were found, and what is to be said of that.

    Parameters
    ----------
    known
        What the phases of earlier runs look like: the same ones get the same names.
    """
    declared = _declared(events, timeline)
    signals = signals_of(timeline, bool(declared))
    apart = for_a_phase(read_history(events), events)
    held = [
        Held(start, end, nodes, number not in apart) for start, end, nodes, number in timeline.computing if end > start
    ]
    notes: tuple[str, ...] = ()
    try:
        found = find_phases(signals, held, declared, split=False)
    except PhasesError as error:
        signals = Signals(np.zeros(0), {})
        found = find_phases(signals, held, declared)
        notes = (f"phases were not looked for, only those that the program declared are told: {error}",)
    if {each.label for each in found} == {"phase 1"}:
        found = tuple(dataclasses.replace(each, label=WHOLE) for each in found)
    free = [each for each in found if each.name is None]
    floors = {name: signals.floor(name) for name in signals.values}
    found = named_as_known(found, looks_of(free, signals), known, floors)
    looks = looks_of([each for each in found if each.name is None], signals)
    return dataclasses.replace(timeline, phases=found), looks, notes


def usage_of(timeline: Timeline) -> Usage:
    columns = timeline.columns
    return Usage(
        timeline.times, timeline.step_times, timeline.step_counts, columns.get("cpu"), columns.get("memory"),
        columns.get("memory_held"), columns.get("gpu"), columns.get("waiting"),
    )  # fmt: skip


def run_name(sources: Sources) -> str:
    """Return what tells this run from any other, also one of its name."""
    created = next((each for each in sources.events if each.get("event") == "created"), None)
    return f"{sources.run}@{int(created['time']) if created else 0}"


def _declared(events: Sequence[Mapping[str, Any]], timeline: Timeline) -> list[Declared]:
    found: list[Declared] = []
    ends = {number: end for _, end, _, number in timeline.computing}
    for number in ends:
        own = [e for e in events if e.get("event") == "phase" and e.get("generation") == number]
        for place, event in enumerate(own):
            end = float(own[place + 1]["time"]) if place + 1 < len(own) else max(ends[number], float(event["time"]))
            if event.get("phase"):
                found.append(Declared(str(event["phase"]), float(event["time"]), end))
    # A generation tells its phase when it gets there, the launcher sees it computing a moment earlier or later.
    first = {number: start for start, _, _, number in timeline.computing}
    for number, start in first.items():
        own = [e for e in events if e.get("event") == "phase" and e.get("generation") == number]
        if own and own[0].get("phase") and abs(float(own[0]["time"]) - start) < 5.0:
            found = [
                dataclasses.replace(each, start=min(each.start, start)) if each.start == float(own[0]["time"]) else each
                for each in found
            ]
    return found


def _rates_of_generations(history: History) -> tuple[Rate, ...]:
    return tuple(
        Rate(each.nodes, seconds, steps, phase) for each in history.generations for phase, seconds, steps in each.rates
    )


def _earlier(book: Book | None, key: Key, run: str) -> Entry:
    """Return what other runs of the program taught."""
    found = book.nearest(key) if book is not None else None
    if found is None:
        return Entry(key)
    entry, _ = found
    return Entry(entry.key, tuple(each for each in entry.runs if each.run != run))


def _record(
    sources: Sources, timeline: Timeline, history: History, usage: Usage, summaries: Sequence[PhaseSummary],
    looks: Sequence[Look],
) -> RunRecord:
    seen = {(each.phase, each.nodes): each for each in looks}
    phases = {
        summary.phase: [
            AtSize(
                use.nodes, use.seconds_per_step, max(1, round(use.steps)), use.cpu, use.memory_peak,
                *_seen(seen.get((summary.phase, use.nodes))),
            )
            for use in summary.uses
            if use.seconds_per_step is not None and use.steps
        ]
        for summary in summaries
    }
    order = _order(timeline, usage)
    last = history.last
    steps = last.step if last is not None and last.why == "finished" else None
    costs = []
    for before, after in zip(history.generations, history.generations[1:], strict=False):
        if after.launch is not None and before.why in ("expand", "shrink", "moved"):
            size = _bytes(sources.events, before)
            costs.append(CostSample(after.nodes, size, before.save, after.launch, after.load))
    return record_of(
        run_name(sources), timeline.end, {name: each for name, each in phases.items() if each}, order, steps=steps,
        costs=costs, waits=history.waits,
    )  # fmt: skip


def _seen(look: Look | None) -> tuple[dict[str, tuple[float, float]], int]:
    if look is None:
        return {}, 0
    return {name: (mean, look.spread[name]) for name, mean in look.mean.items()}, look.samples


def _bytes(events: Sequence[Mapping[str, Any]], generation: GenerationRecord) -> int:
    sizes = [
        int(e.get("bytes", 0)) for e in events if e.get("event") == "saved" and e.get("generation") == generation.number
    ]
    return sizes[-1] if sizes else 0


def _order(timeline: Timeline, usage: Usage) -> list[Occurrence]:
    """Return the phases as they came by steps; one that a change of size cut in two is one."""
    found: list[Occurrence] = []
    if timeline.step_times.size < 2:
        return found
    for each in timeline.phases:
        start, end = np.interp([each.start, each.end], timeline.step_times, timeline.step_counts)
        first, last = int(round(float(start))), int(round(float(end)))
        if found and found[-1].phase == each.label:
            found[-1] = Occurrence(each.label, found[-1].start, max(found[-1].end, last))
        elif last > first:
            if found:  # no step between two phases belongs to neither
                found[-1] = Occurrence(found[-1].phase, found[-1].start, max(found[-1].start, first))
            found.append(Occurrence(each.label, first, last))
    return [each for each in found if each.end > each.start]


def _plan(
    timeline: Timeline, usage: Usage, history: History, sizes: Sequence[int], speeds: Speeds
) -> SizePlan | None:
    """Return the sizes that would have been right, beside the size that the run began with."""
    parts: list[Part] = []
    for each in timeline.phases:
        steps = counted_steps(usage, each.start, each.end)
        if steps and round(steps) > 0:
            if parts and parts[-1].phase == each.label:
                parts[-1] = Part(each.label, parts[-1].steps + round(steps))
            else:
                parts.append(Part(each.label, round(steps)))
    spent: dict[int, float] = {}
    for start, end, nodes, _ in timeline.computing:
        spent[nodes] = spent.get(nodes, 0.0) + end - start
    if not spent or len({part.phase for part in parts}) < 2:
        return None
    base = history.generations[0].nodes if history.generations else max(spent, key=lambda nodes: spent[nodes])
    largest = max(each.nodes for each in timeline.phases)

    def seconds(phase: str, nodes: int) -> float | None:
        estimate = speeds.at(phase, nodes)
        return None if estimate is None else estimate.value

    allowed = [size for size in sizes if size <= 2 * largest]
    typical = _change_seconds(history)
    return plan(parts, allowed or sizes, seconds, base, change=lambda size: typical)


def _change_seconds(history: History) -> float:
    """Return what a change of size took, by half of them, as seen or else assumed."""
    seen = sorted(
        (before.save or 0.0) + (after.launch or 0.0) + (after.load or 0.0)
        for before, after in zip(history.generations, history.generations[1:], strict=False)
        if after.launch is not None
    )
    launches = [each.launch for each in history.generations if each.launch is not None]
    return seen[len(seen) // 2] if seen else launches[0] if launches else 5.0


def total_net(verdicts: Sequence[Verdict]) -> tuple[float, float]:
    """Return seconds and node-hours that all changes of size together saved."""
    seconds = math.fsum(each.net for each in verdicts if each.net is not None)
    hours = math.fsum(each.node_hours for each in verdicts if each.node_hours is not None)
    return seconds, hours

