"""``dmr model``: what is known of programs from their earlier runs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...resize import words
from . import fail, format_size, json_option, print_json, print_table
from .completing import complete_learned, complete_run

if TYPE_CHECKING:
    from ...resize.phases.knowledge import Book, Key


@click.group()
def model() -> None:
    """What earlier runs taught of a program: speeds by phase and size, durations, what comes next.

    It is kept in the user's data folder ($DMR_MODEL_DIR), a file a run, by program, input and machine.

    \b
    Examples:
      dmr model show                     all programs
      dmr model show app.py --json
      dmr model export -o model.json     to hand on
      dmr model import model.json        what others measured, beside the own
      dmr model forget app.py
    """


@model.command()
@click.argument("program", required=False, shell_complete=complete_learned)
@json_option
def show(program: str | None, as_json: bool) -> None:
    """Tell what is known of PROGRAM, or of all."""
    book = _read(program)
    if as_json:
        print_json(_summary(book))
        return
    if not book.entries:
        click.echo(f"nothing is known of {program} yet" if program else "nothing is known yet: no run has ended")
        return
    for number, each in enumerate(_summary(book)):
        if number:
            click.echo()
        where = " on " + each["machine"] if each["machine"] else ""
        runs = words.count(len(each["runs"]), "run")
        click.echo(f"{each['program']}{where}, input {each['input'] or 'none'}: {runs}")
        rows = [("PHASE", "NODES", "S/STEP", "90 % FROM", "TO", "MEMORY", "CONFIDENCE")]
        for phase in each["phases"]:
            for size in phase["sizes"]:
                rows.append(
                    (phase["phase"], str(size["nodes"]), f"{size['seconds_per_step']:.3g}", f"{size['low']:.3g}",
                     f"{size['high']:.3g}", "-" if size["memory"] is None else format_size(size["memory"]),
                     f"{size['confidence']:.0%}")
                )  # fmt: skip
        print_table(rows, right="lrrrrrr")
        if each["order"]:
            order = [f"{name} ({words.count(steps, 'step')})" for name, steps in each["order"]]
            click.echo("comes as: " + ", ".join(order))


@model.command()
@click.argument("program", required=False, shell_complete=complete_learned)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="File.  [default: printed]")
def export(program: str | None, output: Path | None) -> None:
    """Write what is known of PROGRAM, or of all, as JSON."""
    book = _read(program)
    if not book.entries:
        fail(f"nothing is known of {program}" if program else "nothing is known yet")
    text = json.dumps(book.to_json(), indent=2)
    if output is None:
        click.echo(text)
        return
    try:
        output.write_text(text + "\n")
    except OSError as error:
        fail(f"can't write {output}: {error.strerror}")
    click.echo(f"{words.count(sum(len(each.runs) for each in book.entries.values()), 'run')} written to {output}")


@model.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def import_(files: tuple[Path, ...]) -> None:
    """Take in what FILES (of 'dmr model export') know, beside what is known already."""
    from ..models.store import ModelError, ModelStore, read_file

    try:
        books = [read_file(path) for path in files]
        count = sum(ModelStore.default().merge(book) for book in books)
    except ModelError as error:
        fail(str(error))
    click.echo(f"{words.count(count, 'run')} taken in")


@model.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", shell_complete=complete_run)
@click.option("--as", "input_class", metavar="CLASS", help="The class of their input.  [default: the arguments]")
def learn(runs: tuple[str, ...], input_class: str | None) -> None:
    """Learn from RUNS that were not learnt from when they ended."""
    from dataclasses import replace

    from ..models.store import ModelError, ModelStore
    from ..run.finding import find_run
    from ..timeline.analysis import analyse
    from ..timeline.sources import read_sources

    store = ModelStore.default()
    for name in runs:
        found = analyse(read_sources(find_run(name).folder))
        if not found.record.phases:
            click.echo(f"{name}: no step was measured, nothing to learn")
            continue
        key = replace(found.key, input=input_class) if input_class is not None else found.key
        try:
            store.add(key, found.record)
        except ModelError as error:
            fail(str(error))
        click.echo(f"{name}: learnt {', '.join(found.record.phases)} for {key}")


@model.command()
@click.argument("program", required=False, shell_complete=complete_learned)
@click.option("--all", "everything", is_flag=True, help="All programs.")
@click.option("--input", "input_class", metavar="CLASS", help="Only with this class of input.")
@click.option("--machine", help="Only on this machine.")
def forget(program: str | None, everything: bool, input_class: str | None, machine: str | None) -> None:
    """Forget what is known of PROGRAM."""
    from ..models.store import ModelStore

    if (program is None) != everything:
        raise click.UsageError("name a PROGRAM, or --all")
    keys = [
        key
        for key in _read(program).entries
        if input_class in (None, key.input) and machine in (None, key.machine)
    ]
    count = ModelStore.default().forget(keys)
    if not count:
        fail("nothing is known of that")
    click.echo(f"{words.count(count, 'run')} forgotten")


def _read(program: str | None) -> Book:
    from ...resize.phases.knowledge import Book
    from ..models.store import ModelStore

    book, damaged = ModelStore.default().read()
    for each in damaged:
        click.echo(f"dmr model: passed over: {each}", err=True)
    return Book({key: each for key, each in book.entries.items() if program in (None, key.program)})


def _summary(book: Book) -> list[dict[str, Any]]:
    now = time.time()
    found = []
    for key, entry in book.entries.items():
        phases = []
        for name in entry.phases:
            sizes = []
            for nodes in entry.sizes(name):
                predicted = entry.predict(name, nodes, now)
                if predicted is None:
                    continue
                memory = [at.memory for run in entry.runs for at in run.phases.get(name, ()) if at.nodes == nodes]
                known = [each for each in memory if each is not None]
                sizes.append(
                    {
                        "nodes": nodes, "seconds_per_step": predicted.estimate.value, "low": predicted.estimate.low,
                        "high": predicted.estimate.high, "memory": max(known, default=None),
                        "confidence": predicted.confidence, "caveats": list(predicted.caveats),
                    }
                )  # fmt: skip
            phases.append({"phase": name, "sizes": sizes})
        newest = entry.runs[-1]
        found.append(
            {
                **_key(key), "runs": [{"run": each.run, "time": each.time} for each in entry.runs], "phases": phases,
                "order": [(each.phase, each.end - each.start) for each in newest.order[:20]],
            }
        )  # fmt: skip
    return found


def _key(key: Key) -> dict[str, str]:
    return {"program": key.program, "input": key.input, "machine": key.machine}
