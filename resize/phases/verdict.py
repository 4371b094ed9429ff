"""Whether a request for another size did good, with the arithmetic.

Lead time is what lay between a request and its use: acquisition (the allocation had to be had), synchronisation (the
application had to reach a safe point) and redistribution (save, start and load). Without computing passes the time from
the stop of the old ranks to the first step of the new ones. What the steps done afterwards would have taken at
the old size comes from the speed measured there, with its interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from .. import words
from ..speed import Estimate

Word = Literal["effective", "late", "useless", "harmful", "open"]


class SpeedOf(Protocol):
    """Speeds by phase and size."""

    def at(self, phase: str | None, nodes: int) -> Estimate | None:
        """Return seconds a step, None where nothing is known."""


@dataclass(frozen=True)
class Work:
    """What was done at the new size in one phase."""

    phase: str | None
    steps: float
    seconds: float


@dataclass(frozen=True)
class Request:
    """One request for another size, and what became of it. Unix seconds; None where it did not come so far.

    Attributes
    ----------
    time, by, reason
        When, by whom and why it was made.
    before, after
        Nodes held, and nodes asked for.
    granted
        The nodes were there: the successor's allocation began; for a change in place, the request itself.
    asked
        The application was told to save and leave.
    stopped
        The old ranks stopped computing.
    computing
        The new ranks took up the first step.
    until
        The new size ended, or the present.
    outcome
        ``applied``; ``given up`` when it was cancelled or refused; ``open`` while it may still come.
    phase, phase_end
        The phase that it was for, and the end of that.
    targeted
        Whether it was made for that phase, rather than just in it.
    work
        Done at the new size.
    """

    time: float
    by: str
    reason: str
    before: int
    after: int
    outcome: Literal["applied", "given up", "open"]
    granted: float | None = None
    asked: float | None = None
    stopped: float | None = None
    computing: float | None = None
    until: float | None = None
    phase: str | None = None
    phase_end: float | None = None
    targeted: bool = False
    work: tuple[Work, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The verdict on a request. Seconds and node-hours; positive is good, None is unknown.

    ``gained`` is the computing time saved (for a shrink as a rule negative), ``lost`` the time without computing,
    ``net`` their difference, ``error`` half of its 90 % interval. ``node_hours`` are those saved against the
    old size, the change itself and both allocations standing side by side counted in; ``node_hours_error`` half of
    their interval.
    """

    request: Request
    word: Word
    reason: str
    acquisition: float | None = None
    synchronisation: float | None = None
    redistribution: float | None = None
    gained: float | None = None
    lost: float | None = None
    net: float | None = None
    error: float | None = None
    node_hours: float | None = None
    node_hours_error: float | None = None

    @property
    def lead(self) -> float | None:
        """Seconds from the request to the first step at the new size."""
        parts = (self.acquisition, self.synchronisation, self.redistribution)
        known = [each for each in parts if each is not None]
        return sum(known) if known else None


def judge(request: Request, speeds: SpeedOf) -> Verdict:
    """Return the verdict on one request."""
    acquisition = _between(request.time, request.granted)
    synchronisation = _between(request.asked, request.stopped)
    redistribution = _between(request.stopped, request.computing)
    parts = (acquisition, synchronisation, redistribution)
    if request.outcome == "open":
        return Verdict(request, "open", "it may still come", *parts)
    if request.outcome == "given up":
        waited = "" if request.until is None else f" after {request.until - request.time:.0f} s"
        return Verdict(request, "useless", f"it never came: given up{waited}", *parts)
    if request.computing is None or request.until is None or not any(each.steps > 0 for each in request.work):
        return _without_steps(request, parts)
    lost = _between(request.stopped, request.computing) or 0.0
    stayed = [(each, speeds.at(each.phase, request.before)) for each in request.work if each.steps > 0]
    if any(estimate is None for _, estimate in stayed):
        reason = f"the speed on {words.nodes(request.before)} was not measured"
        return Verdict(request, "open", reason, *parts, lost=lost)
    known = [(each, estimate) for each, estimate in stayed if estimate is not None]
    would = sum(each.steps * estimate.value for each, estimate in known)
    spread = math.sqrt(sum((each.steps * (estimate.high - estimate.low) / 2) ** 2 for each, estimate in known))
    took = sum(each.seconds for each, _ in known)
    gained, net = would - took, would - took - lost
    spent = request.after * (took + lost + _side_by_side(request))
    hours, hours_error = (request.before * would - spent) / 3600, request.before * spread / 3600
    word, reason = _word(request, net, spread, hours, hours_error)
    return Verdict(request, word, reason, *parts, gained, lost, net, spread, hours, hours_error)


def _word(request: Request, net: float, error: float, hours: float, hours_error: float) -> tuple[Word, str]:
    grows = request.after > request.before
    value, doubt, unit = (net, error, "s") if grows else (hours, hours_error, "node-hours")
    text = f"{abs(value):.3g} {unit}" if abs(value) < 1000 else f"{abs(value):.0f} {unit}"
    missed = request.phase_end is not None and request.computing is not None and request.computing >= request.phase_end
    if missed and (request.targeted or value <= doubt):
        assert request.phase_end is not None and request.computing is not None
        after = request.computing - request.phase_end
        return "late", f"in use {after:.0f} s after the end of {request.phase or 'the phase'}, which it was for"
    if value > doubt:
        return "effective", f"it saved {text}"
    if value < -doubt:
        return "harmful", f"it cost {text} more than staying at {words.nodes(request.before)}"
    return "useless", f"{text} {'saved' if value >= 0 else 'lost'} is within the error of {doubt:.2g} {unit}"


def _without_steps(request: Request, parts: Sequence[float | None]) -> Verdict:
    acquisition, synchronisation, redistribution = parts
    lost = redistribution
    if lost is None and request.stopped is not None and request.until is not None:
        lost = max(0.0, request.until - request.stopped)
    missed = request.phase_end is not None and request.until is not None and request.until >= request.phase_end
    word: Word = "late" if missed and request.targeted else "harmful" if lost else "useless"
    reason = f"no step was done at {words.nodes(request.after)}"
    if lost:
        reason += f", and {lost:.0f} s went without computing"
    return Verdict(
        request, word, reason, acquisition, synchronisation, redistribution, 0.0, lost, None if lost is None else -lost
    )


def _side_by_side(request: Request) -> float:
    """Return the seconds for which old and new allocation were held together."""
    if request.granted is None or request.stopped is None or request.granted <= request.time:
        return 0.0
    return max(0.0, request.stopped - request.granted)


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else max(0.0, end - start)
