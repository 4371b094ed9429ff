"""From a run's ledger to its generations, successors and counts. Pure: events in, plain data out.

The launcher's events, each with ``time`` and ``generation``:

=============  =======================================================================================
``created``    the run was made: ``run``, ``nodes``
``launched``   ranks were started: ``token``, ``job``, ``nodes``, ``hosts``, ``cause``
``loaded``     they are computing: seconds of ``launch`` and ``load``, ``step``
``decided``    ``decision``, with its whole table
``requested``  of the application: ``id``, ``action``, ``nodes``, ``by``, ``reason``, ``deadline``
``saved``      what it saved for a request: ``checkpoint``, ``step``, ``seconds``, ``bytes``
``submitted``  a successor: ``token``, ``successor``, ``job`` (None while unknown), ``name``, ``nodes``, ``after``,
               ``by``
``started``    by the successor's launcher: ``token``, ``job``, ``nodes``, ``host``
``resized``    the successor asks for other ``nodes`` now: ``token``, ``by``
``released``   the run was handed to a successor: ``token``
``reclaimed``  it did not come, the generation's launcher goes on: ``token``, ``reason``
``cancelled``  a successor is not to be any more: ``token``, ``job``, ``reason``
``shrunk``     nodes were given back: ``before``, ``after``
``signalled``  to the launcher: ``signal``, ``left`` seconds of the allocation; what it means is found out after that
``stopping``   the run is to end, nothing may follow: ``by``
``failed``     something did not work, and what was done instead: ``what``
``lost``       by the launcher that follows a killed one: the ``lost`` generation, its ``last`` sign of life, ``step``
``ended``      ``why``, ``exit``, ``step``, ``first_step``, ``seconds_per_step``, ``rates``, ``queries``
=============  =======================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

CRASHED = frozenset({"crashed", "hung"})
"""Reasons of an end that count against the budget of restarts."""

LOST = "lost"
"""Reason of the end of a generation whose launcher was killed: nobody was there to record another."""

NEAR_LIMIT = 60.0
"""A signal that comes with so many seconds left of the allocation, or less, may be that of the time limit."""

FINAL = frozenset({"finished", "stopped", "failed", "fenced"})
"""Reasons of an end after which the launcher itself ends, without a generation to follow."""


@dataclass(frozen=True)
class GenerationRecord:
    """One launch at one size. Times are unix seconds, durations seconds, None where unknown or not yet.

    ``wait`` is how long its allocation queued; ``save`` what its last save for a request took. ``why`` is
    None while nothing was recorded about its end.
    """

    number: int
    token: str
    nodes: int
    start: float
    job: str | None = None
    hosts: tuple[str, ...] = ()
    cause: str = ""
    end: float | None = None
    first_step: int | None = None
    step: int | None = None
    seconds_per_step: float | None = None
    why: str | None = None
    exit: int | None = None
    save: float | None = None
    wait: float | None = None
    launch: float | None = None
    load: float | None = None
    rates: tuple[tuple[str | None, float, int], ...] = ()
    """(phase, seconds a step, steps) as measured."""
    asked_by: str = ""
    """Who asked it last to leave for another size."""

    @property
    def steps(self) -> int | None:
        """Steps done in this generation."""
        return None if self.step is None or self.first_step is None else self.step - self.first_step


@dataclass(frozen=True)
class SuccessorRecord:
    """A successor that was submitted, for whom ``by`` says; ``end`` is None while it may still take over."""

    token: str
    number: int
    submitted_by: int
    submitted: float
    nodes: tuple[int, int]
    job: str | None = None
    name: str = ""
    after: str | None = None
    started: float | None = None
    end: str | None = None
    reason: str = ""
    by: str = ""


@dataclass(frozen=True)
class AllocationChange:
    """Nodes that came to the run or left it."""

    time: float
    change: str
    nodes: int
    job: str | None


@dataclass(frozen=True)
class History:
    """All that happened to a run."""

    generations: tuple[GenerationRecord, ...] = ()
    successors: tuple[SuccessorRecord, ...] = ()
    queries: int = 0
    last_control: int = 0
    stopping: frozenset[int] = frozenset()
    """Generations in which the run was told to end."""
    signalled: frozenset[int] = frozenset()
    """Generations whose launcher was sent a signal that the time limit does not explain."""

    @property
    def last(self) -> GenerationRecord | None:
        return self.generations[-1] if self.generations else None

    @property
    def open_successor(self) -> SuccessorRecord | None:
        """The newest successor that may still take over."""
        return next((each for each in reversed(self.successors) if each.end is None), None)

    @property
    def size_by(self) -> str:
        """Who chose the size that the run has, as ``user ann`` or ``policy queue``; empty for the one it began with."""
        for before, after in reversed(list(zip(self.generations, self.generations[1:], strict=False))):
            if before.nodes != after.nodes:
                successor = next((each for each in self.successors if each.token == after.token), None)
                return before.asked_by if successor is None else successor.by
        return ""

    @property
    def resizes(self) -> int:
        pairs = zip(self.generations, self.generations[1:], strict=False)
        return sum(before.nodes != after.nodes for before, after in pairs)

    @property
    def crashes(self) -> int:
        return sum(each.why in CRASHED for each in self.generations)

    @property
    def finished(self) -> bool:
        return self.last is not None and self.last.why == "finished"

    @property
    def waits(self) -> tuple[tuple[int, float], ...]:
        """(nodes, seconds) of every successor that started."""
        return tuple((s.nodes[1], s.started - s.submitted) for s in self.successors if s.started is not None)

    def held_before(self, place: int) -> tuple[float, float, int] | None:
        """Return from when to when, and how many, nodes were held before a generation's ranks were started."""
        record = self.generations[place]
        before = self.generations[place - 1] if place else None
        if before is not None and record.job is None and record.cause == "resume":
            return None  # this machine was not kept for it
        if before is not None and before.job == record.job:
            start, nodes = record.start if before.end is None else before.end, min(before.nodes, record.nodes)
        else:
            successor = next((each for each in self.successors if each.token == record.token), None)
            if successor is None or successor.started is None:
                return None
            start, nodes = successor.started, record.nodes
        return (start, record.start, nodes) if start < record.start else None

    def node_hours(self, now: float) -> float:
        """Return the node-hours held: by all generations, between them in one job, and by successors until their start.

        A generation without an end counts until ``now``, or until the next began. What only the scheduler knows (a
        job's time before the launcher started in it) is not in it.
        """
        total = 0.0
        for index, each in enumerate(self.generations):
            following = self.generations[index + 1].start if index + 1 < len(self.generations) else now
            total += each.nodes * max(0.0, (following if each.end is None else each.end) - each.start)
            if waited := self.held_before(index):
                total += waited[2] * (waited[1] - waited[0])
        return total / 3600

    def changes(self) -> tuple[AllocationChange, ...]:
        """Return what was added and removed, in order of time."""
        found: list[AllocationChange] = []
        for before, after in zip((None, *self.generations), self.generations, strict=False):
            if before is None or before.job != after.job:
                if before is not None:
                    left = after.start if before.end is None else before.end
                    found.append(AllocationChange(left, "remove", before.nodes, before.job))
                found.append(AllocationChange(after.start, "add", after.nodes, after.job))
            elif before.nodes != after.nodes:
                change = "add" if after.nodes > before.nodes else "remove"
                found.append(AllocationChange(after.start, change, abs(after.nodes - before.nodes), after.job))
        if self.last is not None and self.last.end is not None and self.last.why in FINAL:
            found.append(AllocationChange(self.last.end, "remove", self.last.nodes, self.last.job))
        return tuple(sorted(found, key=lambda each: each.time))


def read_history(events: Iterable[Mapping[str, Any]]) -> History:
    """Fold a run's events, as `RunDir.events` returns them, into its history.

    Events that this version does not know are passed over, and so are fields.
    """
    generations: dict[int, GenerationRecord] = {}
    successors: dict[str, SuccessorRecord] = {}
    queries: dict[int, int] = {}
    stopping: set[int] = set()
    signalled: set[int] = set()
    last_control = 0
    # Times come from several machines' clocks: what follows from what is known better than that.
    for event in sorted(events, key=lambda each: _ORDER.get(str(each.get("event")), len(_ORDER))):
        name, number, time = event.get("event"), int(event.get("generation", 0)), float(event.get("time", 0.0))
        if name == "submitted":
            successors[event["token"]] = _submitted(event, number, time, successors.get(event["token"]))
        elif name == "launched":
            generations[number] = GenerationRecord(
                number, str(event.get("token", "")), int(event["nodes"]), time, event.get("job"),
                tuple(event.get("hosts", ())), str(event.get("cause", "")),
            )  # fmt: skip
        elif name == "requested":
            last_control = max(last_control, int(event.get("id", 0)))
        elif name == "stopping":
            stopping.add(number)
        elif name == "lost" and (before := generations.get(int(event.get("lost", 0)))) and before.end is None:
            generations[before.number] = replace(
                before, end=max(before.start, float(event["last"])), why=LOST, step=event.get("step") or before.step
            )
        elif name == "signalled" and (event.get("left") is None or float(event["left"]) > NEAR_LIMIT):
            signalled.add(number)
        elif name == "queried":
            queries[number] = max(queries.get(number, 0), int(event.get("count", 0)))
        if name == "ended":
            queries[number] = max(queries.get(number, 0), int(event.get("queries", 0)))
        if number in generations:
            generations[number] = _with_event(generations[number], event, time)
        token = event.get("token")
        if token in successors:
            successors[token] = _successor_with_event(successors[token], event, time)
    ordered = [generations[number] for number in sorted(generations)]
    return History(
        tuple(_with_wait(each, successors.get(each.token)) for each in ordered),
        tuple(sorted(successors.values(), key=lambda each: each.submitted)),
        sum(queries.values()),
        last_control,
        frozenset(stopping),
        frozenset(signalled),
    )


_ORDER = {name: place for place, name in enumerate(("submitted", "launched", "loaded", "saved", "ended", "lost"))}


def _submitted(
    event: Mapping[str, Any], number: int, time: float, before: SuccessorRecord | None
) -> SuccessorRecord:
    if before is not None:  # the job id came after the submission was recorded
        return replace(before, job=event.get("job") or before.job, submitted=min(before.submitted, time))
    low, high = event.get("nodes", (0, 0))
    return SuccessorRecord(
        str(event["token"]), int(event.get("successor", 0)), number, time, (int(low), int(high)),
        event.get("job"), str(event.get("name", "")), event.get("after"), by=str(event.get("by", "")),
    )  # fmt: skip


def _with_event(record: GenerationRecord, event: Mapping[str, Any], time: float) -> GenerationRecord:
    match event.get("event"):
        case "loaded":
            return replace(
                record, launch=event.get("launch"), load=event.get("load"), first_step=event.get("step"),
                step=event.get("step"),
            )  # fmt: skip
        case "requested" if event.get("action") == "resize":
            return replace(record, asked_by=str(event.get("by", "")))
        case "saved":
            return replace(record, save=event.get("seconds"), step=event.get("step", record.step))
        case "ended":
            return replace(
                record, end=time, why=event.get("why"), exit=event.get("exit"),
                step=event.get("step", record.step), seconds_per_step=event.get("seconds_per_step"),
                rates=tuple((phase, float(each), int(steps)) for phase, each, steps in event.get("rates", ())),
            )  # fmt: skip
    return record


def _successor_with_event(record: SuccessorRecord, event: Mapping[str, Any], time: float) -> SuccessorRecord:
    match event.get("event"):
        case "started":
            return replace(record, started=time, job=event.get("job") or record.job)
        case "resized":
            low, high = event["nodes"]
            return replace(record, nodes=(int(low), int(high)), by=str(event.get("by", record.by)))
        case "launched":
            return replace(record, end="taken")
        case "cancelled" | "reclaimed":
            return replace(record, end="cancelled", reason=str(event.get("reason", "")))
    return record


def _with_wait(record: GenerationRecord, successor: SuccessorRecord | None) -> GenerationRecord:
    if successor is None or successor.started is None:
        return record
    return replace(record, wait=max(0.0, successor.started - successor.submitted))
