"""``dmr report``: what runs were worth."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from . import fail, json_option, print_json
from .completing import complete_run


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", shell_complete=complete_run)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write a page (HTML).")
@click.option("--text", "as_text", is_flag=True, help="Print the report.  [default without -o]")
@json_option
@click.option("--columns/--no-columns", default=True, help="With the figures over time in JSON.  [default: yes]")
@click.option("--sacct", type=click.Path(exists=True, path_type=Path), help="Output of sacct -P to go with it.")
@click.option("--jobcomp", type=click.Path(exists=True, path_type=Path), help="A file of Slurm's jobcomp/filetxt.")
@click.option("--profile", "profiles", multiple=True, type=click.Path(exists=True, path_type=Path),
              help="A file of Slurm's acct_gather_profile/hdf5.")  # fmt: skip
@click.option("--data", "extras", multiple=True, type=click.Path(exists=True, path_type=Path),
              help="CSV or JSONL with columns of your own over time.")  # fmt: skip
def report(
    runs: tuple[str, ...],
    output: Path | None,
    as_text: bool,
    as_json: bool,
    columns: bool,
    sacct: Path | None,
    jobcomp: Path | None,
    profiles: tuple[Path, ...],
    extras: tuple[Path, ...],
) -> None:
    """Tell what RUN was worth: phases, what each used of what it held, whether each change of size paid, advice.

    Several runs are compared, the first as the measure. The page needs no network.

    \b
    Examples:
      dmr report heat                      printed
      dmr report heat -o heat.html         as a page
      dmr report monday tuesday --text     compared
      dmr report heat --json --no-columns  for scripts
    """
    from ..models.store import ModelStore
    from ..report.data import report_data
    from ..run.finding import find_run
    from ..slurm.commands import Commands
    from ..slurm.records import ask_accounting, ask_running
    from ..telemetry.layout import TelemetryError
    from ..timeline.analysis import analyse
    from ..timeline.sources import POINTS, read_sources

    if len(runs) > 1 and (sacct or jobcomp or profiles or extras):
        raise click.UsageError("--sacct, --jobcomp, --profile and --data go with one run")
    commands = Commands(os.environ)
    book, damaged = ModelStore.default().read()
    for each in damaged:
        click.echo(f"dmr report: passed over: {each}", err=True)
    found: list[dict[str, Any]] = []
    for name in runs:
        try:
            sources = read_sources(
                find_run(name).folder, points=max(512, POINTS // len(runs)), sacct=sacct, jobcomp=jobcomp,
                ask=lambda jobs: ask_accounting(commands, jobs), ask_running=lambda job: ask_running(commands, job),
                profiles=profiles, columns=extras,
            )  # fmt: skip
        except TelemetryError as error:
            fail(str(error))
        found.append(report_data(analyse(sources, book), table=columns or not as_json))
    if output is not None:
        _write(output, found)
    if as_json:
        print_json(found if len(found) > 1 else found[0])
    elif as_text or output is None:
        _print(found)


def _write(output: Path, found: list[dict[str, Any]]) -> None:
    from ..report.page import PageError, page

    try:
        text = page(found)
    except PageError as error:
        fail(str(error))
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"can't write {output}: {error.strerror}")
    click.echo(f"{output}: {len(text.encode()) / 1e6:.1f} MB", err=True)


def _print(found: list[dict[str, Any]]) -> None:
    from ..report.text import print_comparison, print_report

    if len(found) > 1:
        print_comparison(found, click.echo)
        click.echo()
    for number, each in enumerate(found):
        if number:
            click.echo("\n" + "─" * 72 + "\n")
        print_report(each, click.echo)
