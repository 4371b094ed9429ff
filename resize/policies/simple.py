"""Policies that need no model: keep the size, go round, follow a timetable, DMR's own rule."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from .. import words
from ..policy import PolicyError, Proposal
from ..situation import Rules, Situation


@dataclass(frozen=True)
class Static:
    """Keeps the size that the run has."""

    rules: Rules = Rules()
    name: str = "static"

    def propose(self, situation: Situation) -> Proposal:
        return Proposal(situation.run.nodes, "the policy is to keep the size")


@dataclass(frozen=True)
class Round:
    """Goes through all sizes, one after the other, and from the largest back to the smallest. For tests."""

    rules: Rules = Rules()
    name: str = "round"

    def propose(self, situation: Situation) -> Proposal:
        run, sizes = situation.run, situation.sizes
        if run.pending is not None:
            return Proposal(run.pending, "the next size in turn")
        following = next((size for size in sizes if size > run.nodes), sizes[0])
        return Proposal(following, "the next size in turn")


@dataclass(frozen=True)
class Schedule:
    """Follows a timetable of sizes.

    Attributes
    ----------
    at
        ``TIME=NODES`` separated by commas, times since the run began: ``0=4,30:00=8,2:00:00=2``. A time is in seconds,
        minutes and seconds, or hours, minutes and seconds; ``90m`` and ``2h`` are understood, too.
    """

    at: str = ""
    rules: Rules = Rules()
    name: str = "schedule"

    def __post_init__(self) -> None:
        parse_timetable(self.at)

    def propose(self, situation: Situation) -> Proposal:
        run = situation.run
        began = run.started if run.started is not None else run.since
        passed = run.time - began
        due = [entry for entry in parse_timetable(self.at) if entry[0] <= passed]
        if not due:
            return Proposal(run.nodes, "before the first time of the timetable")
        when, nodes = due[-1]
        if nodes not in situation.sizes:
            return Proposal(run.nodes, f"the timetable says {words.nodes(nodes)}, which is not an allowed size here")
        reason = f"the timetable says {words.nodes(nodes)} from {when:.0f} s on"
        return Proposal(nodes, reason, cancel=nodes <= run.nodes)


def parse_timetable(text: str) -> tuple[tuple[float, int], ...]:
    """Return (seconds, nodes) in order of time.

    Raises
    ------
    PolicyError
        When the text is malformed.
    """
    found = []
    for item in "".join(text.split()).split(","):
        when, equals, nodes = item.partition("=")
        seconds = parse_duration(when)
        if not equals or seconds is None or not nodes.isdigit() or int(nodes) < 1:
            raise PolicyError(
                f"{item!r} in the timetable {text!r} is not TIME=NODES; write it as at=0=4,30:00=8,2:00:00=2"
            )
        found.append((seconds, int(nodes)))
    return tuple(sorted(found))


def parse_duration(text: str) -> float | None:
    """Return the seconds of ``90``, ``30:00``, ``1:30:00``, ``90m``, ``2h`` or ``1d``; None when it is none of them."""
    unit = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h|d)?", text)
    if unit:
        return float(unit[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[unit[2] or "s"]
    clock = re.fullmatch(r"(?:(\d+):)?(\d+):(\d+)", text)
    if clock:
        return 3600.0 * int(clock[1] or 0) + 60.0 * int(clock[2]) + int(clock[3])
    return None


@dataclass(frozen=True)
class Dmr:
    """The rule that DMR publishes, for comparison: it looks at nodes and at the queue, not at cost.

    Below the preferred size it expands to it; else, when jobs wait, it shrinks by a power of two if that lets one
    start; else it expands by a power of two as far as idle nodes go. Jobs that the scheduler can start by itself go
    first.
    """

    rules: Rules = Rules()
    name: str = "dmr"

    def propose(self, situation: Situation) -> Proposal:
        run, outlook = situation.run, situation.outlook
        preferred = self.rules.preferred if self.rules.preferred is not None else situation.sizes[0]
        idle = outlook.room
        if run.nodes < preferred:
            return self._expand(situation, preferred, idle, "below the preferred size")
        if outlook.now.head is not None:
            smaller = tuple(size for size in situation.sizes if _is_power(run.nodes, size) and size < run.nodes)
            found = outlook.helped(run.nodes, smaller)
            if found is None:
                return Proposal(run.nodes, "jobs wait, and no shrink lets one start", cancel=run.pending is not None)
            return Proposal(found[1], f"job {found[0].job} can start", cancel=run.pending is not None)
        return self._expand(situation, situation.sizes[-1], idle, "nobody waits")

    def _expand(self, situation: Situation, most: int, idle: int, why: str) -> Proposal:
        run = situation.run
        found = [
            size
            for size in situation.sizes
            if run.nodes < size <= most
            and situation.beside(size) <= idle
            and (_is_power(size, run.nodes) or size == most)
        ]
        if not found:
            return Proposal(run.nodes, f"{why}, but no larger size is free", cancel=run.pending is not None)
        return Proposal(found[-1], why)


def _is_power(larger: int, smaller: int) -> bool:
    """Whether the larger size is the smaller one times a power of two."""
    factor, rest = divmod(larger, smaller)
    return rest == 0 and factor & (factor - 1) == 0 and math.log2(factor) >= 0
