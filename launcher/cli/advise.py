"""``dmr advise``: what should be asked for, when and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from ...resize import words
from . import EXIT_USAGE, fail, format_time, json_option, print_json, print_table
from .completing import complete_run
from .policies import read_options

ENDS = {
    "finished": "has finished", "failed": "has failed", "stopped": "was stopped",
    "lost": "is lost, its launcher gives no sign of life",
}  # fmt: skip
LONGEST_TURN = 20
"""Phases that come in turn are looked for up to so many."""


@click.command()
@click.argument("run", shell_complete=complete_run)
@click.option("--policy-option", "pairs", multiple=True, metavar="KEY=VALUE", help="An option of the policy phases.")
@json_option
def advise(run: str, pairs: tuple[str, ...], as_json: bool) -> None:
    """Tell what RUN should ask for, when and why, by what earlier runs and it itself taught. Asks for nothing.

    For a run that is alive: what the policy phases would do now, and its plan for the phases to come. For one that
    ended: what the next one should do. 'dmr resize' carries it out.

    \b
    Examples:
      dmr advise heat
      dmr advise heat --policy-option aim=time --json
    """
    from ...resize.policy import PolicyError
    from ..models.advising import advise_now, how_it_ended
    from ..run.finding import find_run

    options = read_options(pairs)
    run_dir = find_run(run)
    state = how_it_ended(run_dir)
    if state is not None:
        _afterwards(run_dir.folder, state, as_json)
        return
    try:
        found = advise_now(run_dir, options)
    except PolicyError as error:
        fail(str(error), EXIT_USAGE)
    data = found.to_json()
    if as_json:
        print_json({**data, "state": "running"})
        return
    click.echo(f"{data['run']} is at step {data['step']}{_where(data)} on {words.nodes(data['nodes'])}")
    click.echo(f"now: {found.decision.action} ({words.nodes(found.decision.nodes)}): {found.decision.reason}")
    for caveat in data["caveats"]:
        click.echo(f"mind: {caveat}")
    _table(data["schedule"])


def _where(data: dict[str, Any]) -> str:
    from ...resize.phases.online import SURE

    phase, sure = data["phase"], data["phase_confidence"]
    if sure is None:
        return f" in {_called(phase)}" if phase else ""
    if not phase:
        return " in none of its known phases"
    if sure < SURE:
        return f", perhaps in {_called(phase)} ({sure:.0%} sure),"
    return f" in {_called(phase)} (recognised, {sure:.0%} sure)"


def _called(phase: str) -> str:
    return phase if phase.startswith(("phase ", "whole ")) else f"phase {phase}"


def _table(schedule: list[dict[str, Any]]) -> None:
    if not schedule:
        click.echo("what comes is not known: no earlier run of this program, or one without phases (dmr model show)")
        return
    rows = [("PHASE", "STEPS", "BEGINS IN", "NODES", "ASK IN", "TAKES", "MEASURED AT", "AND AGAIN")]
    for place, length, times in blocks([(each["phase"], each["nodes"]) for each in schedule]):
        for each in schedule[place : place + length]:
            last = schedule[place + length * times - 1]["end"]
            rows.append(
                (each["phase"], f"{each['start']}-{each['end']}", format_time(each["begins_in"]), str(each["nodes"]),
                 format_time(each["ask_in"]) if each["lead"] else "-",
                 format_time(each["lead"]) if each["lead"] else "-", ", ".join(map(str, each["known"])),
                 f"{words.count(times - 1, 'time')}, until step {last}" if times > 1 else "")
            )  # fmt: skip
    print_table(rows, right="lrrrrrll")


def blocks(rows: Sequence[Any]) -> Iterator[tuple[int, int, int]]:
    """Yield where rows begin that come in turn, how many they are, and how often in a row they come."""
    place = 0
    while place < len(rows):
        length, times = 1, 1
        for period in range(1, min(LONGEST_TURN, (len(rows) - place) // 2) + 1):
            turn, found = rows[place : place + period], 1
            while rows[place + found * period : place + (found + 1) * period] == turn:
                found += 1
            if found > 1 and found * period > length * times:
                length, times = period, found
        yield place, length, times
        place += length * times


def _afterwards(folder: Any, state: str, as_json: bool) -> None:
    from ..models.store import ModelStore
    from ..report.advice import advise as sentences
    from ..timeline.analysis import analyse
    from ..timeline.sources import read_sources

    found = analyse(read_sources(folder), ModelStore.default().read()[0])
    texts = [{"kind": each.kind, "text": each.text} for each in sentences(found)]
    if as_json:
        plan = None
        if found.plan is not None:
            plan = {
                "sizes": dict(found.plan.sizes), "seconds": found.plan.seconds, "node_hours": found.plan.node_hours,
                "base": found.plan.base, "base_seconds": found.plan.base_seconds,
                "base_node_hours": found.plan.base_node_hours,
            }  # fmt: skip
        print_json({"run": found.timeline.run, "state": state, "plan": plan, "advice": texts})
        return
    click.echo(f"{found.timeline.run} {ENDS.get(state, f'is {state}')}; for the next run:")
    for each in texts:
        click.echo(f"- {each['text']}")
