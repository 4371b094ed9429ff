"""What the numbers of a run say should be done, in plain sentences with the numbers behind. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ...resize.phases.usage import PhaseSummary, PhaseUse
from ..timeline.analysis import Analysis, total_net
from . import words

Kind = Literal["do", "know", "doubt"]

WORTH = 0.05
"""Advice that would not change time or node-hours by this share is not given."""
MUCH_OVERHEAD = 0.1
MUCH_MEMORY = 0.5
TRIFLE = 0.9
"""Of a program that leaves more of the memory than this untouched nobody thinks that it needs nodes for that."""
IDLE = 0.5


@dataclass(frozen=True)
class Advice:
    """One sentence or two. ``do`` is something to do, ``know`` a finding, ``doubt`` what limits the rest."""

    kind: Kind
    text: str


def advise(found: Analysis) -> tuple[Advice, ...]:
    """Return what is to be said, the most useful first."""
    made = [*_plan(found), *_phases(found), *_changes(found), *_overhead(found), *_machine(found), *_doubts(found)]
    order = {"do": 0, "know": 1, "doubt": 2}
    return tuple(sorted(made, key=lambda each: order[each.kind]))


def _plan(found: Analysis) -> list[Advice]:
    plan = found.plan
    if plan is None or plan.base_seconds <= 0 or plan.base_node_hours <= 0:
        return []
    faster, fewer = 1 - plan.seconds / plan.base_seconds, 1 - plan.node_hours / plan.base_node_hours
    if max(faster, fewer) < WORTH or len(set(plan.sizes.values())) < 2:
        return []
    sizes = words.list_of([f"{phase} on {nodes}" for phase, nodes in plan.sizes.items()])
    measured = {(each.phase, use.nodes) for each in found.summaries for use in each.uses}
    guessed = [f"{phase} on {nodes}" for phase, nodes in plan.sizes.items() if (phase, nodes) not in measured]
    text = (
        f"With {sizes} nodes the same steps take {words.seconds(plan.seconds)} and {words.hours(plan.node_hours)} "
        f"node-hours, changes of size included: {_less(fewer, 'node-hours')} and {_less(faster, 'time')} against "
        f"{words.count(plan.base, 'node')} throughout ({words.seconds(plan.base_seconds)}, "
        f"{words.hours(plan.base_node_hours)} node-hours). Let the next run ask by itself: dmr-launch --policy phases."
    )
    if guessed:
        verbs = ("was", "follows") if len(guessed) == 1 else ("were", "follow")
        text += f" {words.list_of(guessed)} {verbs[0]} not measured but {verbs[1]} from the speeds that were."
    return [Advice("do", text)]


def _less(share: float, what: str) -> str:
    if abs(share) < 0.005:
        return f"the same {what}"
    return f"{abs(share):.0%} {'fewer' if what == 'node-hours' else 'less'} {what}" if share > 0 else (
        f"{abs(share):.0%} more {what}"
    )


def _phases(found: Analysis) -> list[Advice]:
    total = math.fsum(each.seconds for each in found.summaries)
    made = []
    for each in found.summaries:
        if total <= 0 or each.seconds / total < WORTH or each.right is None:
            continue
        use = max(each.uses, key=lambda one: one.seconds)
        made.extend(_size_of(each, use, each.seconds / total, found))
    return made


def _size_of(summary: PhaseSummary, use: PhaseUse, part: float, found: Analysis) -> list[Advice]:
    right = summary.right
    assert right is not None
    where = f"{summary.phase} took {part:.0%} of the computing time, most of it on {words.count(use.nodes, 'node')}"
    efficiency = ""
    if use.efficiency is not None and use.base != use.nodes:
        efficiency = f" at {words.share(use.efficiency)} efficiency against {use.base}"
    span = f"{right.low} to {right.high}" if right.low != right.high else f"{right.nodes}"
    sure = f"from {right.low} to {right.high} with 90 % certainty" if right.low != right.high else "with 90 % certainty"
    if right.measured < 2:
        others = [size for size in found.sizes if size != use.nodes]
        if not others:
            return []
        return [
            Advice(
                "do",
                f"{where}. At one size alone its right size can't be told ({span} is possible): "
                "dmr experiment measures a few steps at others, and a next run with --policy phases tries one.",
            )
        ]
    if right.low <= use.nodes <= right.high and use.nodes != right.nodes:
        best = words.count(right.nodes, "node")
        return [Advice("know", f"{where}{efficiency}: not told apart from the best, {best} ({sure}).")]
    if use.nodes == right.nodes:
        return [Advice("know", f"{where}{efficiency}: the right size ({sure}).")]
    speeds = {one.nodes: one.seconds_per_step for one in summary.uses}
    there, here = speeds.get(right.nodes), use.seconds_per_step
    effect = ""
    if there is not None and here is not None:
        cost = right.nodes * there / (use.nodes * here)
        effect = f": {there / here:.2g} × the time, {cost:.2g} × the node-hours a step"
    why = " (fewer would not hold its data in memory)" if right.memory_bound else ""
    word = "fewer" if right.nodes < use.nodes else "more"
    return [
        Advice(
            "do",
            f"{where}{efficiency}. It does better with {word}: {words.count(right.nodes, 'node')}{why} "
            f"({sure}){effect}.",
        )
    ]


def _changes(found: Analysis) -> list[Advice]:
    made = []
    by_word: dict[str, int] = {}
    for each in found.verdicts:
        by_word[each.word] = by_word.get(each.word, 0) + 1
    if by_word:
        seconds, hours = total_net(found.verdicts)
        verbs = {word: "was" if number == 1 else "were" for word, number in by_word.items()}
        counted = words.list_of([f"{number} {verbs[word]} {word}" for word, number in by_word.items()])
        one = len(found.verdicts) == 1
        head = f"Of {len(found.verdicts)} requests for another size, {counted}, each against the size before it"
        if one:
            head = f"The one request for another size was {found.verdicts[0].word}"
        saved = ["saved" if each >= 0 else "cost" for each in (seconds, hours)]
        again = "" if saved[0] == saved[1] else f"{saved[1]} "
        net = f"{saved[0]} {words.seconds(abs(seconds))} and {again}{words.hours(abs(hours))} node-hours"
        whole = _against_one_size(found)
        tail = f" {'It' if one else 'Together they'} {net} against staying." if one or not whole else ""
        made.append(Advice("know", f"{head}.{tail}{whole}"))
    late = [each for each in found.verdicts if each.word == "late" and each.lead is not None]
    if late:
        lead = max(each.lead or 0.0 for each in late)
        phases = words.list_of(sorted({each.request.phase or "a phase" for each in late}))
        made.append(
            Advice(
                "do",
                f"{words.count(len(late), 'request')} for {phases} came too late: from the request to the first step "
                f"passed up to {words.seconds(lead)}. Ask that much ahead, as --policy phases does.",
            )
        )
    return made


def _against_one_size(found: Analysis) -> str:
    """Return what the run took beside what it would have taken at its first size, where that is known."""
    plan, line = found.plan, found.timeline
    if plan is None or not line.computing:
        return ""
    first = line.computing[0][0]
    hours = math.fsum(each.node_hours for each in line.spans if each.start >= first)
    return (
        f" From its first step on the run took {words.seconds(line.end - first)} and {words.hours(hours)} node-hours; "
        f"on {words.count(plan.base, 'node')} throughout the same steps take {words.seconds(plan.base_seconds)} and "
        f"{words.hours(plan.base_node_hours)}, by the speeds measured."
    )


def _overhead(found: Analysis) -> list[Advice]:
    hours = found.timeline.node_hours
    total = math.fsum(hours.values())
    spent = total - hours["compute"]
    if total <= 0 or spent / total < MUCH_OVERHEAD:
        return []
    names = {
        "lost": "work done again", "save": "saving", "launch": "starting", "load": "loading", "leave": "ending",
        "handover": "waiting for the handover", "between": "held between starts",
    }  # fmt: skip
    parts = sorted((hours[kind], names[kind]) for kind in hours if kind in names and hours[kind] > 0.01 * total)[::-1]
    listed = words.list_of([f"{words.hours(value)} for {name}" for value, name in parts])
    text = f"{spent / total:.0%} of the node-hours ({words.hours(spent)} of {words.hours(total)})"
    return [Advice("know", f"{text} were not for computing: {listed}.")]


def _takes_more_than_it_needs(found: Analysis) -> bool:
    """Whether fewer nodes are advised for some phase, so that somebody may ask whether they hold the data."""
    return any(
        each.right is not None and use.nodes > each.right.nodes for each in found.summaries for use in each.uses
    )


def _machine(found: Analysis) -> list[Advice]:
    made = []
    uses = [use for each in found.summaries for use in each.uses]
    held = [use for use in uses if use.memory_headroom is not None]
    if held:
        least = min(use.memory_headroom or 0.0 for use in held)
        fullest = max(held, key=lambda use: (use.memory_peak or 0.0) / (use.memory_held or 1.0))
        if MUCH_MEMORY <= least <= TRIFLE and _takes_more_than_it_needs(found):
            made.append(
                Advice(
                    "know",
                    f"No node used more than {words.size(fullest.memory_peak)}B of its "
                    f"{words.size(fullest.memory_held)}B of memory: {least:.0%} were never touched, so memory is no "
                    "reason for more nodes.",
                )
            )
        elif least < 0.1:
            made.append(
                Advice(
                    "know",
                    f"{fullest.phase} on {words.count(fullest.nodes, 'node')} used {1 - least:.0%} of a node's memory "
                    f"({words.size(fullest.memory_peak)}B of {words.size(fullest.memory_held)}B): fewer nodes would "
                    "not do.",
                )
            )
    idle = [use for use in uses if use.cpu is not None and use.gpu is None and use.cpu < IDLE and use.node_hours > 0]
    total = math.fsum(use.node_hours for use in uses)
    wasted = math.fsum(use.idle_node_hours or 0.0 for use in idle)
    if total > 0 and wasted / total > MUCH_OVERHEAD:
        which = words.list_of(sorted({f"{use.phase} on {use.nodes} ({use.cpu:.0%} busy)" for use in idle}))
        made.append(
            Advice(
                "know",
                f"Processors stood idle in {which}: {words.hours(wasted)} of {words.hours(total)} node-hours were held "
                "and not used.",
            )
        )
    waiting = [use for use in uses if use.waiting is not None and use.waiting > 0.25]
    for use in waiting:
        made.append(
            Advice(
                "know",
                f"In {use.phase} on {words.count(use.nodes, 'node')} ranks waited for one another {use.waiting:.0%} of "
                "the time: the work is spread unevenly, or its parts are too small for so many.",
            )
        )
    return made


def _doubts(found: Analysis) -> list[Advice]:
    made = [Advice("doubt", f"{each[0].upper()}{each[1:]}.") for each in found.notes]
    if "cpu" not in found.timeline.columns:
        made.append(
            Advice(
                "doubt",
                "There is no telemetry, so that what was used of the nodes is not known, and only phases that the "
                "program declared are told.",
            )
        )
    elif not any(each.name for each in found.timeline.phases) and len(found.summaries) > 1:
        made.append(
            Advice(
                "doubt",
                "The phases were found from what the nodes did, and a next run with --policy phases recognises them by "
                "that as it goes. run.phase('name') in the program names them, exactly.",
            )
        )
    return made
