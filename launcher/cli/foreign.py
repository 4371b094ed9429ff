"""``dmr ckpt`` for the checkpoints of programs that write their own."""

from __future__ import annotations

import time
from pathlib import Path

import click

from . import format_size, print_json, print_table


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
        state = "good" if each.bad is None else f"bad: {each.bad}"
        size = format_size(each.bytes)
        rows.append((str(each.step), str(each.generation), str(each.ranks), size, saved, each.name, files, state))
    print_table(rows, right="rrrr")


def verify_records(checkpoints: Path, step: int | None, as_json: bool) -> bool:
    """Compare files with their records; returns whether all are whole."""
    from ..foreign.catalogue import Catalogue
    from ..run.options import RunOptions
    from ..run.rundir import RunDir

    catalogue = Catalogue(checkpoints, Path(RunOptions.of_run(RunDir(checkpoints.parent)).folder))
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
