"""``dmr ckpt`` for the checkpoints of programs that write their own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...resize import words
from . import fail, format_size, print_json, print_table

if TYPE_CHECKING:
    from ..foreign.catalogue import Catalogue, Record


UNKNOWN = "not known bad"
"""State of what nobody found damaged: `dmr ckpt verify` finds out."""


def is_foreign(checkpoints: Path) -> bool:
    """Whether a folder of checkpoints records those of a program's own."""
    from ..foreign.catalogue import FILE

    return (checkpoints / FILE).exists()


def list_records(checkpoints: Path, as_json: bool) -> None:
    """List what is recorded, newest first."""
    from ..foreign.catalogue import Catalogue

    found = Catalogue(checkpoints, checkpoints).records()
    if as_json:
        print_json(found)
        return
    rows = [("STEP", "GEN", "RANKS", "SIZE", "SAVED", "NAME", "FILES", "STATE")]
    for each in found:
        saved = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each.time))
        files = each.roots[0] + (f" and {len(each.roots) - 1} more" if len(each.roots) > 1 else "")
        state = UNKNOWN if each.bad is None else f"bad: {each.bad}"
        size = format_size(each.bytes)
        rows.append((str(each.step), str(each.generation), str(each.ranks), size, saved, each.name, files, state))
    print_table(rows, right="rrrr")


def show_record(checkpoints: Path, step: int | None, as_json: bool) -> None:
    """Show one record: that of the step, else the newest that is not known to be bad."""
    catalogue = _catalogue(checkpoints)
    found = catalogue.records()
    chosen = [each for each in found if (each.bad is None if step is None else each.step == step)]
    if not chosen:
        held = ", ".join(str(each.step) for each in found) or "none"
        which = "" if step is None else f" of step {step}"
        fail(f"no checkpoint{which} recorded in {checkpoints}; steps there: {held}")
    record: Record = chosen[0]
    if as_json:
        print_json(record)
        return
    saved = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.time))
    click.echo(f"{record.name}: a record of the program's own files; what they hold, only the program knows")
    click.echo(
        f"step {record.step}, generation {record.generation}, written by {words.count(record.ranks, 'rank')}, "
        f"{format_size(record.bytes)}, {saved}, {UNKNOWN if record.bad is None else f'bad: {record.bad}'}"
    )
    rows = [("FILE", "SIZE", "DIGEST", "LIES IN")]
    for part in record.parts:
        path = catalogue.where(part)
        rows.append((path.name, format_size(part.bytes), part.digest or "-", str(path.parent)))
    print_table(rows, right="lr")


def refuse(checkpoints: Path, what: str) -> None:
    """End a command that can do nothing with the files of a program's own."""
    if is_foreign(checkpoints):
        fail(
            f"{checkpoints} holds records of files that the program itself writes (dmr-launch --app): {what}; "
            "'dmr ckpt show' names the files, 'dmr ckpt verify' checks them"
        )


def _catalogue(checkpoints: Path) -> Catalogue:
    from ..foreign.catalogue import Catalogue
    from ..run.options import RunOptions
    from ..run.rundir import RunDir

    return Catalogue(checkpoints, Path(RunOptions.of_run(RunDir(checkpoints.absolute().parent)).folder))


def verify_records(checkpoints: Path, step: int | None, as_json: bool) -> bool:
    """Compare files with their records; returns whether all are whole."""
    catalogue = _catalogue(checkpoints)
    report = []
    for each in catalogue.records():
        if step is not None and each.step != step:
            continue
        problem = catalogue.problem(each)
        if problem is not None and each.bad is None:
            catalogue.mark_bad(each, problem)
        report.append({"name": each.name, "good": problem is None, "bytes": each.bytes, "problem": problem})
        if not as_json:
            said = "good" if problem is None else f"BAD: {problem}"
            click.echo(f"{each.name}: {said} ({format_size(each.bytes)})")
    if as_json:
        print_json(report)
    return all(each["good"] for each in report)
