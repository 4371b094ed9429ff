"""Policies that want something of their own: a deadline, few node-hours, little energy, an efficiency."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .. import words
from ..policy import PolicyError, Proposal
from ..situation import Rules, Situation
from .simple import parse_duration


def available(situation: Situation, size: int, *, patient: bool) -> str:
    """Return why a size can't be asked for; nothing when it can.

    A patient policy queues for growth like any other job; others take only nodes that nobody waits for.
    """
    row = situation.row(size)
    if size <= situation.run.nodes:
        return ""
    if row.wait is not None and not math.isfinite(row.wait[0]):
        return "can't be had as far as limits tell"
    if patient:
        return ""
    need, done = situation.beside(size), math.inf if row.finish is None else row.finish
    free = situation.outlook.unwanted(done)
    return "" if need <= free else f"needs {words.count(need, 'idle node')} that nobody waits for, there are {free}"


def keep(situation: Situation, reason: str, remarks: dict[int, str] | None = None, *, cancel: bool = True) -> Proposal:
    """Return the proposal to stay; a successor that waits is given up."""
    run = situation.run
    return Proposal(run.nodes, reason, cancel=cancel and run.pending is not None, remarks=remarks or {})


@dataclass(frozen=True)
class Efficiency:
    """Keeps the parallel efficiency in a band, as DMR's policy on communication efficiency does.

    The efficiency at n nodes is T(m)·m / (T(n)·n), m being the smallest allowed size. Below ``low`` the run shrinks,
    above ``high`` it grows into nodes that nobody waits for, each time to the size whose efficiency is nearest to the
    middle of the band.
    """

    low: float = 0.7
    high: float = 0.9
    rules: Rules = Rules()
    name: str = "efficiency"

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high <= 1:
            raise PolicyError(f"low={self.low:g}, high={self.high:g} is no band of efficiencies between 0 and 1")

    def propose(self, situation: Situation) -> Proposal:
        run = situation.run
        found = {size: self._efficiency(situation, size) for size in (*situation.sizes, run.nodes)}
        here = found[run.nodes]
        if here is None:
            return keep(situation, "no speed measured yet", cancel=False)
        remarks = {size: f"efficiency {value:.2f}" for size, value in found.items() if value is not None}
        if self.low <= here <= self.high:
            return keep(situation, f"efficiency {here:.2f} is in the band", remarks)
        middle = (self.low + self.high) / 2
        best: tuple[float, int] | None = None
        for size in situation.sizes:
            value = found[size]
            if value is None or (size < run.nodes) != (here < self.low) or size == run.nodes:
                continue
            refusal = available(situation, size, patient=False)
            if refusal:
                remarks[size] += f", but {refusal}"
            elif best is None or abs(value - middle) < best[0]:
                best = (abs(value - middle), size)
        if best is None or best[0] >= abs(here - middle):
            return keep(situation, f"efficiency {here:.2f}, no better size can be had", remarks)
        return Proposal(best[1], f"efficiency {here:.2f} is outside of {self.low:g} to {self.high:g}", remarks=remarks)

    def _efficiency(self, situation: Situation, size: int) -> float | None:
        least = situation.sizes[0]
        one, many = situation.speed.at(least), situation.speed.at(size)
        return None if one is None or many is None else one.value * least / (many.value * size)


@dataclass(frozen=True)
class Deadline:
    """Takes the fewest nodes with which the run will be done in time, waiting and cost counted.

    Where none will do, the size that ends first. Growth queues like any other job.

    Attributes
    ----------
    within
        Time from the run's begin, as ``2:00:00`` or in seconds; without it the run's own deadline counts.
    sure
        Whether the slow end of the interval has to be in time, not only the likely value.
    """

    within: str = ""
    sure: bool = True
    rules: Rules = Rules()
    name: str = "deadline"

    def __post_init__(self) -> None:
        if self.within and parse_duration(self.within) is None:
            raise PolicyError(f"within={self.within!r} is no time; write it as 2:00:00, 90m or in seconds")

    def propose(self, situation: Situation) -> Proposal:
        run = situation.run
        seconds = parse_duration(self.within) if self.within else None
        began = run.started if run.started is not None else run.since
        deadline = run.deadline if seconds is None else began + seconds
        if deadline is None:
            return keep(situation, "no deadline is set; give one with within=TIME", cancel=False)
        if situation.seconds_left(run.nodes) is None:
            return keep(situation, "the remaining work is unknown", cancel=False)
        remarks: dict[int, str] = {}
        ends: dict[int, float] = {}
        for size in sorted({*situation.sizes, run.nodes}):
            refusal = available(situation, size, patient=True)
            latest = self._latest(situation, size)
            if refusal or latest is None:
                remarks[size] = refusal or "ends before it could be had"
                continue
            ends[size] = latest
            late = latest - deadline
            remarks[size] = f"{late:.0f} s late" if late > 0 else f"{-late:.0f} s in hand"
        in_time = [size for size in ends if ends[size] <= deadline]
        if run.nodes in in_time and (len(in_time) == 1 or min(in_time) == run.nodes):
            # What is in hand wobbles as more is measured: by less than a change costs it is not worth giving up.
            scarce = run.pending is not None and deadline - ends[run.nodes] <= situation.cost(run.pending).total
            return keep(situation, "in time with the fewest nodes", remarks, cancel=not scarce)
        if in_time:
            size = min(in_time)
            if size < run.nodes and run.nodes in in_time and self._saves_little(situation, size):
                return keep(situation, "in time, and fewer nodes would save less than the change costs", remarks)
            return Proposal(size, f"the fewest nodes that end {deadline - ends[size]:.0f} s in time", remarks=remarks)
        size = min(ends, key=lambda each: ends[each], default=run.nodes)
        if size == run.nodes or ends[run.nodes] - ends[size] <= self.rules.margin * situation.cost(size).total:
            return keep(situation, "no size is in time, and none is much sooner", remarks, cancel=False)
        return Proposal(size, f"no size is in time; this one is {ends[size] - deadline:.0f} s late", remarks=remarks)

    def _latest(self, situation: Situation, size: int) -> float | None:
        """Return when a size ends, by the slow end of the interval where that is asked for."""
        row = situation.row(size)
        if row.finish is None:
            return None
        if not self.sure:
            return row.finish
        if size == situation.run.nodes:
            left = situation.seconds_left(size)
            return row.finish if left is None else situation.run.time + left.high
        return row.finish + (row.gain_error or 0.0)

    def _saves_little(self, situation: Situation, size: int) -> bool:
        """Whether the nodes freed are worth fewer node-seconds than the change takes."""
        here, there = situation.row(situation.run.nodes).node_hours, situation.row(size).node_hours
        return here is not None and there is not None and there >= here


def _cheapest(
    situation: Situation, price: Callable[[float, float], float], unit: str, slower: float, rules: Rules
) -> Proposal:
    """Return the size with the least price among those that end at most ``slower`` times as late as the fastest.

    ``price`` is a function of node-hours and seconds, both from now on.
    """
    run = situation.run
    left = situation.seconds_left(run.nodes)
    if left is None:
        return keep(situation, "the remaining work is unknown", cancel=False)
    rows = {size: situation.row(size) for size in sorted({*situation.sizes, run.nodes})}
    finishes = [row.finish for row in rows.values() if row.finish is not None]
    latest = run.time + (min(finishes) - run.time) * slower
    remarks: dict[int, str] = {}
    best: tuple[float, int] | None = None
    values: dict[int, float] = {}
    for size, row in rows.items():
        refusal = available(situation, size, patient=False)
        if row.node_hours is None or row.finish is None or refusal:
            remarks[size] = refusal or "can't be had in time"
            continue
        value = price(row.node_hours - run.node_hours, row.finish - run.time)
        remarks[size] = f"{value:.3g} {unit}"
        if row.finish <= latest:
            values[size] = value
        if row.finish > latest:
            remarks[size] += f", but ends later than {slower:g} times the fastest"
        elif best is None or value < best[0]:
            best = (value, size)
    here = price(run.nodes * left.value / 3600, left.value)

    def worth(size: int) -> float:
        """Return what a change to this size has to save."""
        change = situation.cost(size).total
        return rules.margin * price(size * change / 3600, change)

    if best is None or best[1] == run.nodes:
        pending = values.get(run.pending) if run.pending is not None else None
        lasting = pending is not None and run.pending is not None and pending - here <= worth(run.pending)
        return keep(situation, f"costs least: {remarks[run.nodes]}", remarks, cancel=not lasting)
    least = worth(best[1])
    if here - best[0] <= least and run.time + left.value <= latest:
        return keep(
            situation, f"{words.nodes(best[1])} would save less than {least:.2g} {unit}", remarks,
            cancel=best[1] != run.pending,
        )  # fmt: skip
    return Proposal(best[1], f"{best[0]:.3g} instead of {here:.3g} {unit}", remarks=remarks)


@dataclass(frozen=True)
class Cheapest:
    """Takes the fewest node-hours for the whole run, its changes of size counted.

    Attributes
    ----------
    slower
        The run may end at most this many times as late, from now, as at the fastest size; inf for no bound.
    """

    slower: float = math.inf
    rules: Rules = Rules()
    name: str = "cheapest"

    def __post_init__(self) -> None:
        if not self.slower >= 1:
            raise PolicyError(f"slower={self.slower:g} is less than 1: no size ends sooner than the fastest")

    def propose(self, situation: Situation) -> Proposal:
        return _cheapest(situation, lambda hours, seconds: hours, "node-hours", self.slower, self.rules)


@dataclass(frozen=True)
class Energy:
    """Takes the least energy for the rest of the run.

    Attributes
    ----------
    watts
        Power of one node that computes.
    base
        Power that is drawn as long as the run lasts whatever its size, such as its share of file servers and
        cooling. It is what makes a larger size save energy.
    slower
        As for `Cheapest`.
    """

    watts: float = 400.0
    base: float = 0.0
    slower: float = math.inf
    rules: Rules = Rules()
    name: str = "energy"

    def __post_init__(self) -> None:
        if self.watts <= 0 or self.base < 0:
            raise PolicyError(f"watts={self.watts:g}, base={self.base:g} is no power of a computer")
        if not self.slower >= 1:
            raise PolicyError(f"slower={self.slower:g} is less than 1: no size ends sooner than the fastest")

    def propose(self, situation: Situation) -> Proposal:
        def kilowatt_hours(hours: float, seconds: float) -> float:
            return (hours * self.watts + seconds / 3600 * self.base) / 1000

        return _cheapest(situation, kilowatt_hours, "kWh", self.slower, self.rules)


@dataclass(frozen=True)
class Window:
    """Asks for as much as possible early, for half as much each time the remaining time halves, at last for nothing.

    The window is the time that the run has left at its present size, against what the whole run would take: in the
    first half it asks for its largest size, in the next quarter for half of that, and so on, as long as that
    is more than it has and brings more than it costs. Growth queues like any other job; the size that
    it queues for follows the window.
    """

    rules: Rules = Rules()
    name: str = "window"

    def propose(self, situation: Situation) -> Proposal:
        run, left = situation.run, situation.seconds_left(situation.run.nodes)
        if left is None or run.steps is None or situation.steps_left is None:
            return keep(situation, "the remaining work is unknown", cancel=False)
        share = situation.steps_left / run.steps if run.steps else 0.0
        if share <= 0:
            return keep(situation, "at the end")
        halved = max(0, math.ceil(-math.log2(share)) - 1)
        target = situation.sizes[-1] >> halved
        wanted = max((size for size in situation.sizes if size <= target), default=situation.sizes[0])
        reason = f"{share:.0%} left: asks for at most {words.nodes(target)}"
        if wanted <= run.nodes:
            return keep(situation, f"{reason}, and has as many")
        remarks: dict[int, str] = {}
        for size in sorted((each for each in situation.sizes if run.nodes < each <= wanted), reverse=True):
            row = situation.row(size)
            refusal = available(situation, size, patient=True)
            pays = row.gain is None or row.gain > self.rules.margin * (row.cost or 0.0)
            if pays and not refusal:
                return Proposal(size, reason, remarks=remarks)
            remarks[size] = refusal or f"brings {row.gain or 0.0:.0f} s, too little"
        return keep(situation, f"{reason}, but none pays any more", remarks)
