"""``dmr top``: this user's runs, live."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...resize import words
from . import TIME, fail, format_remaining, format_time, print_json, print_table
from .completing import complete_run

if TYPE_CHECKING:
    from ..run.watching import Watched

COLOURS = {"running": "green", "saving": "green", "starting": "cyan", "leaving": "cyan", "queued": "yellow",
           "lost": "red", "failed": "red", "stopped": "yellow", "finished": "dim"}  # fmt: skip
HEAD = ("RUN", "STATE", "GEN", "NODES", "SIZE OVER TIME", "PHASE", "STEP", "S/STEP", "LEFT", "PENDING", "QUERIES")
ENDED = 5
"""So many of those that ended last are shown."""


@click.command()
@click.argument("runs", nargs=-1, shell_complete=complete_run)
@click.option("--interval", type=TIME, default="2", show_default=True, help="Between two looks at the files.")
@click.option("--once", is_flag=True, help="Print once, and end. So it is when the output is no terminal.")
@click.option("--all", "every", is_flag=True, help="All runs that ended, not the last five alone.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON once, for scripts.")
def top(runs: tuple[str, ...], interval: float, once: bool, every: bool, as_json: bool) -> None:
    """Show RUNS, or this user's, live: size over time, queue, last decision. Asks no scheduler.

    Runs that are alive come first, then the last few that ended.

    \b
    Examples:
      dmr top
      dmr top heat-4711 --interval 5
      dmr top --once
    """
    from ..run.finding import RUNS, find_run
    from ..run.registry import all_runs
    from ..run.watching import watch

    def look() -> tuple[list[Watched], int]:
        folders = [find_run(run) for run in runs] if runs else all_runs(Path(RUNS))
        found = [each for each in map(watch, folders) if each is not None]
        live = [each for each in found if each.live]
        ended = sorted((each for each in found if not each.live), key=lambda each: -each.changed)
        shown = ended if every or runs else ended[:ENDED]
        return [*live, *shown], len(ended) - len(shown)

    if as_json:
        print_json(look()[0])
    elif once or not sys.stdout.isatty():
        _print(*look())
    else:
        _live(look, interval)


def _cells(each: Watched) -> tuple[str, ...]:
    from ..run.status import phase_words

    status = each.status
    step = "-" if status.step is None else f"{status.step}" + (f"/{status.steps}" if status.steps else "")
    rate = f"{status.seconds_per_step:.3g}" if status.seconds_per_step else "-"
    pending = f"{status.pending_nodes} for {format_time(each.waiting)}" if status.pending_nodes else "-"
    return (
        status.run, status.state, str(status.generation), str(status.nodes or "-"), each.sizes,
        phase_words(status.phase, status.phase_confidence), step, rate,
        format_remaining(status.remaining, status.remaining_steps, short=True), pending, str(status.queries),
    )  # fmt: skip


def _print(found: list[Watched], left_out: int) -> None:
    if not found:
        click.echo("no runs")
        return
    print_table([HEAD, *map(_cells, found)], right="llrrllrrrrr")
    for each in found:
        if each.live and each.decision:
            click.echo(f"{each.status.run}: {each.decision}")
    if left_out:
        click.echo(_left_out(left_out))


def _left_out(runs: int) -> str:
    return f"{words.count(runs, 'run')} more ended before (--all)"


def _live(look: Any, interval: float) -> None:
    try:
        from rich.console import Console
        from rich.live import Live
    except ImportError:
        fail("dmr top needs the package rich for a live view (pip install rich); dmr top --once does without")
    console = Console()
    try:
        with Live(_picture(*look()), console=console, screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(interval)
                live.update(_picture(*look()), refresh=True)
    except KeyboardInterrupt:
        return


def _picture(found: list[Watched], left_out: int) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, name in enumerate(HEAD):
        table.add_column(name, justify="left" if place in (0, 1, 4, 5) else "right", no_wrap=place != 0)
    for each in found:
        name, state, *rest = _cells(each)
        table.add_row(name, Text(state, style=COLOURS.get(state, "")), *rest)
    lines = [Text(f"{each.status.run}: {each.decision}", style="dim") for each in found if each.live and each.decision]
    if left_out:
        lines.append(Text(_left_out(left_out), style="dim"))
    heading = Text(f"dmr top  {time.strftime('%H:%M:%S')}   {sum(each.live for each in found)} live    Ctrl-C ends")
    return Group(heading, Text(), table if found else Text("no runs"), Text(), *lines)
