"""``dmr doctor``: what this place allows, and what to do about the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import json_option, print_json

if TYPE_CHECKING:
    from ..doctor.finding import Finding

MARKS = {"ok": "ok  ", "note": "-   ", "warn": "WARN", "fail": "FAIL"}
COLOURS = {"ok": "green", "note": None, "warn": "yellow", "fail": "red"}


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), default=".")
@click.option("--quick", is_flag=True, help="Start no ranks.")
@json_option
def doctor(folder: Path, quick: bool, as_json: bool) -> None:
    """Look at Python, MPI, HDF5, Slurm, and the file system of FOLDER, where runs are to be kept.

    Run it in a job to see which ways to start MPI work there. Exit status 1 when something that dmr is for can't work.

    \b
    Examples:
      dmr doctor
      dmr doctor /scratch/me --json
      srun --nodes 2 --pty dmr doctor
    """
    found: list[Finding] = []
    for finding in _examine(folder, quick):
        found.append(finding)
        if not as_json:
            _show(finding, first=len(found) == 1 or found[-2].area != finding.area)
    if as_json:
        print_json(found)
    elif not any(each.verdict in ("warn", "fail") for each in found):
        click.echo("all is well")
    click.get_current_context().exit(any(each.verdict == "fail" for each in found))


def _examine(folder: Path, quick: bool) -> Iterator[Finding]:
    from ..doctor.files import check_files
    from ..doctor.packages import check_packages
    from ..doctor.scheduler import check_scheduler
    from ..doctor.starts import check_starts

    yield from check_packages()
    if not quick:
        yield from check_starts()
    yield from check_scheduler()
    yield from check_files(folder)


def _show(finding: Finding, *, first: bool) -> None:
    if first:
        click.secho(finding.area, bold=True)
    mark = click.style(MARKS[finding.verdict], fg=COLOURS[finding.verdict])
    click.echo(f"  {mark}  {finding.what}: {finding.found}")
    if finding.advice:
        click.echo(f"          {finding.advice}")
