"""What a run asked for in size, and what became of each request. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ...resize.phases.recurring import Stretch
from ...resize.phases.usage import Usage, counted_steps
from ...resize.phases.verdict import Request, Work
from ..run.history import GenerationRecord, History, SuccessorRecord

AT_ONCE = 1.0
"""Seconds within which the old ranks may have stopped before the request was written down."""

Events = Sequence[Mapping[str, Any]]


def requests(
    history: History, events: Events, phases: Sequence[Stretch], usage: Usage, now: float
) -> tuple[Request, ...]:
    """Return the requests for another size, in order of time.

    Those by which a run merely moves on at its size (time limit, restart) are none.
    """
    found = [_by_successor(each, history, events, now) for each in history.successors]
    found += [_in_place(event, history, events, now) for event in events if _asks_here(event, history)]
    kept = [each for each in found if each is not None and each[0].after != each[0].before]
    completed = [_with_phase(request, following, events, phases, usage) for request, following in kept]
    return tuple(sorted(completed, key=lambda each: each.time))


def _asks_here(event: Mapping[str, Any], history: History) -> bool:
    """Whether an event asks the application for a change that needs no other job."""
    if event.get("event") != "requested" or event.get("action") != "resize" or not event.get("nodes"):
        return False
    if event.get("by") == "successor":
        return False
    generation, time = int(event.get("generation", 0)), float(event["time"])
    chains = [each for each in history.successors if each.after is not None and each.end != "cancelled"]
    return not any(each.submitted_by == generation and each.submitted <= time for each in chains)


def _by_successor(
    successor: SuccessorRecord, history: History, events: Events, now: float
) -> tuple[Request, GenerationRecord | None] | None:
    before = _generation(history, successor.submitted_by)
    if before is None:
        return None
    first = next(
        (e for e in events if e.get("event") == "submitted" and e.get("token") == successor.token and e.get("by")), {}
    )
    following = next((each for each in history.generations if each.token == successor.token), None)
    # The one that was running when it took over need not be the one that asked for it.
    last = history.generations[history.generations.index(following) - 1] if following is not None else before
    asked = _last_event(events, last.number, "requested", successor.started if successor.after is None else None)
    nodes = following.nodes if following is not None else successor.nodes[1]
    made = Request(
        successor.submitted, str(first.get("by", "")), str(first.get("reason", successor.reason)), before.nodes, nodes,
        _outcome(successor.end, following), successor.started, _time(asked),
        until=None if following is not None else _given_up(events, successor.token, now),
    )  # fmt: skip
    return _applied(made, last, following, events, now), following


def _in_place(
    event: Mapping[str, Any], history: History, events: Events, now: float
) -> tuple[Request, GenerationRecord | None] | None:
    number, time, nodes = int(event.get("generation", 0)), float(event["time"]), int(event["nodes"])
    before = _generation(history, number)
    if before is None:
        return None
    following = _generation(history, number + 1)
    went = before.why in ("expand", "shrink") and following is not None and following.nodes == nodes
    made = Request(
        time, str(event.get("by", "")), str(event.get("reason", "")), before.nodes, nodes,
        "applied" if went else "open" if before.end is None else "given up", time, time,
        until=before.end if before.end is not None and not went else None,
    )  # fmt: skip
    taken = following if went else None
    return _applied(made, before, taken, events, now), taken


def _outcome(end: str | None, following: GenerationRecord | None) -> Any:
    if following is not None:
        return "applied"
    return "open" if end is None else "given up"


def _applied(
    made: Request, before: GenerationRecord, following: GenerationRecord | None, events: Events, now: float
) -> Request:
    if following is None:
        return made
    loaded = _last_event(events, following.number, "loaded", None)
    computing = _time(loaded)
    until = following.end if following.end is not None else now
    return dataclasses.replace(
        made, stopped=_stopped(before, events), computing=computing, until=until, asked=made.asked or before.end
    )


def _stopped(before: GenerationRecord, events: Events) -> float | None:
    """Return when the old ranks stopped computing: when their last save began, where they left by one."""
    saves = [e for e in events if e.get("event") == "checkpoint" and e.get("generation") == before.number]
    if not saves or before.why in ("crashed", "hung"):
        return before.end
    return float(saves[-1]["time"]) - float(saves[-1].get("seconds") or 0.0)


def _with_phase(
    request: Request,
    following: GenerationRecord | None,
    events: Events,
    phases: Sequence[Stretch],
    usage: Usage,
) -> Request:
    target = _target(request, events)
    here = None
    if target is not None:
        here = next((each for each in phases if each.label == target and each.end >= request.time - AT_ONCE), None)
    elif request.by.startswith("policy"):
        here = next((each for each in phases if each.start <= request.time <= each.end + AT_ONCE), None)
    name = target if target is not None else here.label if here is not None else None
    # What nobody asked for a phase can't come too late for it.
    end = _end_of(here, phases) if here is not None and target is not None else None
    work = []
    if following is not None and request.computing is not None and request.until is not None:
        for each in phases:
            start, stop = max(each.start, request.computing), min(each.end, request.until)
            steps = counted_steps(usage, start, stop) if stop > start else None
            if steps:
                work.append(Work(each.label, steps, stop - start))
    return dataclasses.replace(request, phase=name, phase_end=end, targeted=target is not None, work=tuple(work))


def _end_of(here: Stretch, phases: Sequence[Stretch]) -> float:
    """Return when a phase ends; one that goes on after a change of size is still the same."""
    end = here.end
    for each in sorted(phases, key=lambda each: each.start):
        if each.start >= end - 1e-6 and each.label != here.label:
            break
        if each.label == here.label and each.end > end:
            end = each.end
    return end


def for_a_phase(history: History, events: Events) -> frozenset[int]:
    """Return the generations whose size was asked for because another phase was to begin."""
    asked = [
        e for e in events
        if e.get("event") in ("requested", "submitted") and e.get("by") not in (None, "successor")
    ]  # fmt: skip
    found = set()
    for each in history.generations:
        before = [
            e for e in asked
            if float(e["time"]) <= each.start + 1e-6 and int(e.get("generation", 0)) < each.number
            and _size_of(e) == each.nodes
        ]  # fmt: skip
        if before and str(before[-1]["by"]) == "policy phases":
            found.add(each.number)
    return frozenset(found)


def _size_of(event: Mapping[str, Any]) -> int | None:
    nodes = event.get("nodes")
    return int(nodes[-1]) if isinstance(nodes, (list, tuple)) and nodes else int(nodes) if nodes else None


def _target(request: Request, events: Events) -> str | None:
    """Return the phase that the policy made the request for, where it says so."""
    decided = [e for e in events if e.get("event") == "decided" and float(e["time"]) <= request.time + 1e-6]
    if not decided or not request.by.startswith("policy"):
        return None
    decision = decided[-1].get("decision") or {}
    target = (decision.get("facts") or {}).get("for_phase")
    return str(target) if target and decision.get("nodes") == request.after else None


def _generation(history: History, number: int) -> GenerationRecord | None:
    return next((each for each in history.generations if each.number == number), None)


def _last_event(events: Events, generation: int, name: str, since: float | None) -> Mapping[str, Any] | None:
    found = [
        e
        for e in events
        if e.get("generation") == generation and e.get("event") == name and float(e["time"]) >= (since or 0.0) - 1.0
    ]
    return found[-1] if found else None


def _given_up(events: Events, token: str, now: float) -> float:
    return next((float(e["time"]) for e in events if e.get("event") == "cancelled" and e.get("token") == token), now)


def _time(event: Mapping[str, Any] | None) -> float | None:
    return None if event is None else float(event["time"])
