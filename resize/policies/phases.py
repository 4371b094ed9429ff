"""Asks for what each phase needs, ahead of it, by what earlier runs and this one taught."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from statistics import median

from .. import words
from ..cost import cost
from ..phases.knowledge import LATE_SHARE, LATE_STEPS
from ..phases.online import SURE
from ..phases.plan import Aim, Part, SizePlan, merit, plan
from ..policy import Proposal
from ..situation import Rules, Situation
from ..speed import Estimate, Speed
from ..view import Ahead, Rate, RunView
from .queue import Queue

REACH = 4
"""Sizes this many times beyond those measured are not planned with."""
SCHEDULER_SECONDS = 3.0
"""Until a job starts for which there is room, where no wait was seen yet."""
NEAR = 2
"""Up to so many times the largest size measured the likely speed is planned with."""
CHANGE_WORTH = 3.0
"""A change for the present phase is made only if that lasts this many times longer than the change takes."""
HURRY_WORTH = 0.1
"""Share of the time to be saved by more nodes that cost more node-hours."""
TRIAL_WORTH = 10.0
"""A phase of which one size is known is tried at another if it lasts this many times longer than a change of size."""
LOOK = 2.0
"""Seconds until the next look while a phase is being measured."""

_speed = lru_cache(maxsize=4096)(Speed)


@dataclass(frozen=True)
class Planned:
    """A phase to come: its steps, the size planned for it, and when.

    ``begins_in`` are the seconds until it begins if all goes as planned, ``ask_in`` those until its size is to be asked
    for, ``lead`` what lies between asking and having. ``known`` are the sizes at which its speed was measured.
    """

    phase: str
    start: int
    end: int
    nodes: int
    begins_in: float
    ask_in: float
    lead: float
    known: tuple[int, ...]


@dataclass(frozen=True)
class Phases:
    """Plans a size for each phase to come, and asks ahead by what it takes to have it.

    With the speeds of each phase at each size (measured in this run or in earlier ones), and the order and lengths
    of the phases from earlier runs, it takes the plan with the fewest node-hours that is hardly slower than the size
    the run began with, or the fastest that costs no more node-hours. What was gained so far may be spent. A phase
    of which only one size is known is tried at another if it is long enough: at half the nodes, or with the aim
    ``time`` at what the ``queue`` policy chooses. A program of which nothing is known is left to the ``queue`` policy,
    as is one whose phase, that it does not declare, can't be recognised.

    Attributes
    ----------
    aim
        ``hours``: fewest node-hours. ``time``: least time.
    slower
        With the aim ``hours``: how many times the time at the first size it may take.
    more
        With the aim ``time``: how many times the node-hours at the first size it may take.
    trust
        Forecasts of phases with less confidence than this are not used.
    least_gain
        A plan that is not better than keeping the present size by this share is not worth a change.
    """

    aim: Aim = "hours"
    slower: float = 1.03
    more: float = 1.0
    trust: float = 0.2
    least_gain: float = 0.05
    rules: Rules = Rules()
    name: str = "phases"

    def __post_init__(self) -> None:
        if self.aim not in ("hours", "time"):
            raise ValueError(f"aim={self.aim!r} is neither 'hours' nor 'time'")

    def propose(self, situation: Situation) -> Proposal:
        run = situation.run
        known = Known(run)
        ahead = self._ahead(run)
        if run.phase_confidence is not None:
            if run.phase is None:
                return self._queue(situation, "what the program does is like none of its known phases")
            if run.phase_confidence < SURE:
                why = f"whether it is in {run.phase} is not sure yet"
                return self._stay(run, run.pending or run.nodes, why, {}, LOOK)
        if not ahead and self._is_ending(run):
            return self._stay(run, run.pending or run.nodes, f"{run.phase} is about to end", {}, LOOK)
        if not ahead:
            return self._queue(situation, "the phases to come are not known")
        here = ahead[0].phase
        if run.nodes not in known.sizes(here) and len(known.sizes(here)) < 2:
            return self._stay(run, run.nodes, f"measuring {here} on {words.nodes(run.nodes)}", {}, LOOK)
        found = self._plan(situation, known, ahead)
        if found is None:
            return self._queue(situation, "the speeds of the phases to come are not known")
        if len(known.sizes(here)) < 2 and found.sizes[here] == run.nodes:
            return self._explore(situation, known, here)
        return self._follow(situation, known, ahead, found)

    # -- what is to come

    def outlook(self, situation: Situation) -> tuple[Planned, ...]:
        """Return what is planned for each phase to come; empty where the phases or their speeds are not known."""
        run, known = situation.run, Known(situation.run)
        ahead = self._ahead(run)
        found = self._plan(situation, known, ahead) if ahead else None
        if found is None:
            return ()
        rows, time, before = [], 0.0, run.nodes
        for each in ahead:
            nodes = found.sizes[each.phase]
            waits = nodes > before and not run.in_place
            lead = 0.0 if nodes == before else self.lead(situation, nodes) if waits else cost(run, nodes).total
            start = max(run.step, each.start)
            ask = max(0.0, time - lead) if waits else time
            rows.append(Planned(each.phase, start, each.end, nodes, time, ask, lead, known.sizes(each.phase)))
            time += (each.end - start) * (known.seconds(each.phase, nodes) or 0.0) + (0.0 if waits else lead)
            before = nodes
        return tuple(rows)

    def _ahead(self, run: RunView) -> list[Ahead]:
        """Return the present phase and those that follow, as far as they are trusted."""
        found = [each for each in run.ahead if each.end > run.step]
        if not found or (run.phase is not None and found[0].phase != run.phase):
            return []
        return [each for place, each in enumerate(found) if place == 0 or each.confidence >= self.trust]

    def _is_ending(self, run: RunView) -> bool:
        """Whether the present phase is over by the steps, and the program has not said so yet."""
        over = [each for each in run.ahead if each.end <= run.step]
        if not over or over[-1].phase != run.phase:
            return False
        return run.step - over[-1].end <= max(LATE_STEPS, LATE_SHARE * (over[-1].end - over[-1].start))

    def _plan(self, situation: Situation, known: Known, ahead: list[Ahead]) -> SizePlan | None:
        run = situation.run
        base = self.rules.preferred or run.first_nodes or run.nodes
        parts = [Part(each.phase, each.end - max(run.step, each.start)) for each in ahead]
        allowed = {phase: known.reach(phase, situation.sizes) for phase in {part.phase for part in parts}}
        seconds, hours = known.spare(base, self.slower, self.more)

        def best(sizes: Mapping[str, tuple[int, ...]]) -> SizePlan | None:
            return plan(
                parts, sizes, known.seconds, base, change=lambda size: cost(run, size).total, slower=self.slower,
                more=self.more, aim=self.aim, spare_seconds=seconds, spare_node_seconds=hours, now=run.nodes,
            )  # fmt: skip

        found = best({phase: sizes or (run.nodes,) for phase, sizes in allowed.items()})
        stay = best(dict.fromkeys(allowed, (run.nodes,)))
        if found is not None and stay is not None and self._not_worth(found, stay, seconds, hours):
            return stay
        return found

    def _not_worth(self, found: SizePlan, stay: SizePlan, seconds: float, hours: float) -> bool:
        """Whether keeping the present size is allowed, and nearly as good."""
        keep = 1 - self.least_gain
        if self.aim == "hours":
            allowed = stay.seconds <= self.slower * stay.base_seconds + seconds
        else:
            allowed = stay.node_hours <= self.more * stay.base_node_hours + hours / 3600
        return allowed and merit(found.seconds, found.node_hours, self.aim) > keep * merit(
            stay.seconds, stay.node_hours, self.aim
        )

    # -- what to do

    def _follow(self, situation: Situation, known: Known, ahead: list[Ahead], found: SizePlan) -> Proposal:
        run = situation.run
        here = ahead[0]
        sizes = ", ".join(f"{phase} on {nodes}" for phase, nodes in found.sizes.items())
        facts: dict[str, float | str] = {
            "plan": sizes, "plan_seconds": found.seconds, "plan_node_hours": found.node_hours, "plan_base": found.base,
        }  # fmt: skip
        caveats = "; ".join(run.caveats)
        if caveats:
            facts["caveats"] = caveats
        wanted = found.sizes[here.phase]
        coming = next((each for each in ahead[1:] if found.sizes[each.phase] != run.nodes), None)
        following = found.sizes[ahead[1].phase] if len(ahead) > 1 else None
        if wanted != run.nodes and self._pays(situation, known, here, wanted, following):
            facts["for_phase"] = here.phase
            best = words.nodes(wanted)
            return Proposal(wanted, f"{here.phase} does best on {best}; the plan is {sizes}", facts=facts)
        if coming is not None:
            nodes = found.sizes[coming.phase]
            until = self._until(known, ahead, coming, run)
            lead = self.lead(situation, nodes)
            facts.update({"next_phase": coming.phase, "next_nodes": nodes, "next_in": until, "lead": lead})
            if nodes > run.nodes and not run.in_place and until <= lead:
                facts["for_phase"] = coming.phase
                when = f"{coming.phase} begins in {until:.0f} s at step {coming.start}"
                return Proposal(nodes, f"{when}, and to have {words.nodes(nodes)} takes {lead:.0f} s", facts=facts)
            again = until - lead if nodes > run.nodes and not run.in_place else until
            return self._stay(run, nodes, f"as planned: {sizes}", facts, max(LOOK, again))
        return self._stay(run, run.nodes, f"as planned: {sizes}", facts, None)

    def _stay(
        self, run: RunView, next_nodes: int, why: str, facts: Mapping[str, float | str], again: float | None
    ) -> Proposal:
        unwanted = run.pending is not None and run.pending != next_nodes
        return Proposal(run.nodes, why, cancel=unwanted, facts=facts, again=again)

    def _pays(self, situation: Situation, known: Known, here: Ahead, nodes: int, following: int | None) -> bool:
        """Whether a change for what is left of the present phase pays, with what the next phase needs then."""
        run = situation.run
        left = here.end - max(run.step, here.start)
        seconds_left = left * (known.seconds(here.phase, run.nodes) or 0.0)
        if CHANGE_WORTH * self.lead(situation, nodes) >= seconds_left:
            return False
        # What the next phase was asked for may have come early: given back it would have to be had again at once.
        if following == run.nodes and seconds_left < CHANGE_WORTH * (cost(run, run.nodes).total + SCHEDULER_SECONDS):
            return False

        def spent(size: int) -> tuple[float, float]:
            computing = left * (known.seconds(here.phase, size) or 0.0)
            row = [run.nodes, size, *([] if following is None else [following])]
            changes = [(cost(run, b).total, (a + b) / 2) for a, b in zip(row, row[1:], strict=False) if a != b]
            seconds = computing + sum(each for each, _ in changes)
            return seconds, size * computing + sum(each * held for each, held in changes)

        stay, go = spent(run.nodes), spent(nodes)
        # A plan that is bounded by time may want more nodes than this alone would; not for a few seconds, though.
        hurries = nodes > run.nodes and go[0] < (1 - HURRY_WORTH) * stay[0]
        return hurries or merit(*go, self.aim) < (1 - self.least_gain) * merit(*stay, self.aim)

    def lead(self, situation: Situation, nodes: int) -> float:
        """Return the seconds from a request to the first step at this size: acquisition and redistribution."""
        change = cost(situation.run, nodes).total
        run = situation.run
        if nodes <= run.nodes or run.in_place:
            return change
        lower, _ = situation.wait(nodes)
        seen = [seconds for size, seconds in run.waits if size >= nodes] or [seconds for _, seconds in run.waits]
        usual = median(seen) if seen else SCHEDULER_SECONDS
        return change + max(lower if math.isfinite(lower) else 0.0, usual)

    def _until(self, known: Known, ahead: list[Ahead], coming: Ahead, run: RunView) -> float:
        """Return the seconds until a phase begins at the present size."""
        total = 0.0
        for each in ahead:
            if each is coming:
                break
            total += (each.end - max(run.step, each.start)) * (known.seconds(each.phase, run.nodes) or 0.0)
        return total

    # -- while too little is known

    def _explore(self, situation: Situation, known: Known, phase: str) -> Proposal:
        run = situation.run
        why = f"{phase} was measured on {words.nodes(run.nodes)} alone"
        if not self._long_enough(situation, known, phase):
            return self._stay(run, run.nodes, f"{why}, and is too short for a trial", {}, None)
        smaller = [size for size in situation.sizes if size <= run.nodes / 2]
        found = self._queue(situation, why)
        if smaller and (self.aim == "hours" or found.nodes == run.nodes):
            return Proposal(smaller[-1], f"to see how {phase} scales: {why}", facts={"for_phase": phase})
        return found

    def _long_enough(self, situation: Situation, known: Known, phase: str) -> bool:
        """Whether enough of the phase is left for a trial at another size to pay."""
        run = situation.run
        left = sum(each.end - max(run.step, each.start) for each in self._ahead(run) if each.phase == phase)
        seconds = left * (known.seconds(phase, run.nodes) or 0.0)
        return seconds > TRIAL_WORTH * situation.cost(run.nodes).total

    def _queue(self, situation: Situation, why: str) -> Proposal:
        found = Queue(rules=self.rules).propose(situation)
        return replace(found, reason=f"{found.reason} ({why}: as the policy queue)", again=None)


@dataclass(frozen=True)
class Known:
    """The speeds of a run's phases, its own and those of earlier runs."""

    run: RunView
    _speeds: dict[str, Speed] = field(default_factory=dict)

    def speed(self, phase: str) -> Speed:
        """Return the speed of a phase from measurements of it alone."""
        if phase not in self._speeds:
            own, earlier = (
                tuple(each for each in rates if each.phase == phase) for rates in (self.run.rates, self.run.earlier)
            )
            self._speeds[phase] = _speed(own, phase, earlier)
        return self._speeds[phase]

    def sizes(self, phase: str) -> tuple[int, ...]:
        """Return the sizes at which a phase was measured."""
        return tuple(self.speed(phase).samples)

    def reach(self, phase: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Return the allowed sizes that a phase is planned with: those measured, and those near.

        With one measured these are the next at half and at twice of it: where a plan goes there, it teaches something.
        """
        measured = self.sizes(phase)
        if len(measured) >= 2:
            low, high = min(measured) / REACH, max(measured) * REACH
            return tuple(size for size in sizes if low <= size <= high)
        if not measured:
            return ()
        smaller = [size for size in sizes if size <= measured[0] / 2][-1:]
        larger = [size for size in sizes if size >= measured[0] * 2][:1]
        return tuple(size for size in sizes if size in (*smaller, *measured, *larger))

    def seconds(self, phase: str, nodes: int) -> float | None:
        """Return seconds a step; far above the sizes measured a cautious value, half way to the upper bound."""
        estimate = self.speed(phase).at(nodes)
        if estimate is None:
            return None
        measured = self.sizes(phase)
        # With one size nothing is known of the others: hope is what makes them be tried.
        near = len(measured) < 2 or nodes <= NEAR * max(measured)
        return estimate.value if near else _cautious(estimate)

    def spare(self, base: int, slower: float, more: float) -> tuple[float, float]:
        """Return seconds and node-seconds gained so far against ``base``; zeros where nothing was, or it can't be told.

        What was lost is lost: to make up for it would cost more.
        """
        run = self.run
        if run.started is None:
            return 0.0, 0.0
        done = 0.0
        for rate in run.rates:
            seconds = self._base_seconds(rate, base)
            if seconds is None:
                return 0.0, 0.0
            done += rate.steps * seconds
        # The first start is no loss: one size throughout has it as well.
        elapsed = max(0.0, run.time - run.started - (run.costs.launch or 0.0))
        return max(0.0, slower * done - elapsed), max(0.0, more * base * done - 3600 * run.node_hours)

    def _base_seconds(self, rate: Rate, base: int) -> float | None:
        if rate.phase is None:
            return None
        return self.seconds(rate.phase, base)


def _cautious(estimate: Estimate) -> float:
    return (estimate.value + estimate.high) / 2
