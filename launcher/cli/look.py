"""``dmr status`` and ``dmr history``: what runs do and did."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...resize import words
from . import format_remaining, format_size, format_time, json_option, print_json, print_table
from .completing import complete_run

if TYPE_CHECKING:
    from ..run.status import RunStatus


@click.command(epilog="Without RUN: those below ./dmr-runs and this folder, and live ones wherever they are.")
@click.argument("run", required=False, shell_complete=complete_run)
@json_option
@click.option("--openmetrics", "as_metrics", is_flag=True, help="Print OpenMetrics, for node_exporter's text files.")
def status(run: str | None, as_json: bool, as_metrics: bool) -> None:
    """State, step, size and pending successor of RUN, or of all runs here.

    \b
    Examples:
      dmr status                       this folder's, and live ones elsewhere
      dmr status dmr-runs/heat-4711 --json
      dmr status --openmetrics > dmr.prom.new && mv dmr.prom.new dmr.prom
    """
    from ..run.finding import find_run
    from ..run.status import read_status

    if run is not None:
        one = read_status(find_run(run))
        if as_metrics:
            _metrics([one])
        elif as_json:
            print_json(one)
        else:
            _show(one)
        return
    found = _all_here()
    if as_metrics:
        _metrics(found)
        return
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("no runs below dmr-runs/ or in this folder, and none that is live elsewhere")
        return
    rows = [("RUN", "STATE", "GEN", "NODES", "STEP", "S/STEP", "LEFT", "PENDING", "QUERIES")]
    for each in found:
        rows.append(
            (_called(each), each.state, str(each.generation), _or_dash(each.nodes), _steps(each),
             _rate(each.seconds_per_step), format_remaining(each.remaining, each.remaining_steps, short=True),
             _pending(each) or "-", str(each.queries))
        )  # fmt: skip
    print_table(rows, right="llrrrrrlr")


def _all_here() -> list[RunStatus]:
    """Return the runs below ``dmr-runs`` and this folder, and the live ones elsewhere."""
    from ..run.finding import RUNS
    from ..run.registry import all_runs
    from ..run.rundir import RunDirError
    from ..run.status import LIVE, read_status

    found, here = [], Path.cwd().resolve()
    for run in all_runs(RUNS):
        try:
            status = read_status(run)
        except (RunDirError, OSError) as error:
            click.echo(f"dmr status: {error}", err=True)
            continue
        if status.state in LIVE or run.folder.resolve().is_relative_to(here):
            found.append(status)
    return found


def _called(one: RunStatus) -> str:
    """Return how a run can be named here: by its name, else by its folder."""
    from ..run.finding import RUNS

    folder, here = Path(one.folder), Path.cwd().resolve()
    if folder.parent in (here, here / RUNS) and folder.name == one.run:
        return one.run
    return str(folder.relative_to(here)) if folder.is_relative_to(here) else one.folder


def _metrics(runs: list[RunStatus]) -> None:
    from ..run.openmetrics import openmetrics

    click.echo(openmetrics(runs), nl=False)


def _show(one) -> None:  # type: ignore[no-untyped-def]  # the class is imported late
    from ..run.status import phase_words

    ranks = f", {words.count(one.ranks, 'rank')}" if one.ranks else ""
    rows = [
        ("run", one.run),
        ("folder", one.folder),
        ("state", one.state),
        *([("trouble", one.error)] if one.error else []),
        ("generation", f"{one.generation} on {_nodes(one.nodes)}{ranks}"),
        ("launcher", f"{one.host or '-'}" + (f", job {one.job}" if one.job else "")),
        ("step", _steps(one) + (f", {_rate(one.seconds_per_step)} s a step" if one.seconds_per_step else "")),
        ("left", format_remaining(one.remaining, one.remaining_steps)),
        ("phase", phase_words(one.phase, one.phase_confidence)),
        ("checkpoint", _checkpoint(one)),
        ("pending", _pending(one) or "-"),
        ("changes", _changes(one)),
        ("queries", f"{one.queries} to the scheduler" if one.engine == "slurm" else f"{one.queries}, to no scheduler"),
    ]
    print_table([(key + ":", value) for key, value in rows])


@click.command()
@click.argument("run", shell_complete=complete_run)
@json_option
def history(run: str, as_json: bool) -> None:
    """One line a generation of RUN: size, times, steps, why it ended, and what the change cost in seconds.

    Node-hours are those that the run held by its own records; dmr report adds what sacct knows beside them.

    \b
    Examples:
      dmr history heat-4711
      dmr history dmr-runs/heat-4711 --json
    """
    import dataclasses

    from ..run.finding import find_run
    from ..run.status import history_now, read_status

    run_dir = find_run(run)
    found = history_now(run_dir)
    if as_json:
        print_json(
            {
                "run": run_dir.description().get("run"),
                "generations": [{**dataclasses.asdict(each), "steps": each.steps} for each in found.generations],
                "successors": found.successors,
                "changes": found.changes(),
                "node_hours": read_status(run_dir).node_hours,
                "resizes": found.resizes,
                "crashes": found.crashes,
                "queries": found.queries,
            }
        )
        return
    head = "GEN NODES JOB CAUSE START END STEPS S/STEP SAVE WAIT LAUNCH LOAD ENDED"
    rows = [tuple(head.split())]
    for each in found.generations:
        rows.append(
            (str(each.number), str(each.nodes), each.job or "-", each.cause, _clock(each.start), _clock(each.end),
             _or_dash(each.steps), _rate(each.seconds_per_step), _seconds(each.save), _seconds(each.wait),
             _seconds(each.launch), _seconds(each.load), _why(each.why, each.exit))
        )  # fmt: skip
    print_table(rows, right="rrllllrrrrrrl")
    click.echo(
        f"{words.count(found.resizes, 'change')} of size, {words.count(found.crashes, 'crash', 'crashes')}, "
        f"{read_status(run_dir).node_hours:.3g} node-hours held, "
        f"{words.count(found.queries, 'query')}"
    )


def _why(why: str | None, status: int | None) -> str:
    if why is None:
        return "-"
    return f"{why} ({status})" if status and why in ("crashed", "failed") else why


def _clock(moment: float | None) -> str:
    return "-" if moment is None else time.strftime("%m-%d %H:%M:%S", time.localtime(moment))


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def _changes(one) -> str:  # type: ignore[no-untyped-def]
    crashes = words.count(one.crashes, "crash", "crashes")
    return f"{one.resizes} of size, {crashes}, {one.node_hours:.3g} node-hours held"


def _nodes(count: int | None) -> str:
    return "- nodes" if count is None else words.count(count, "node")


def _steps(one) -> str:  # type: ignore[no-untyped-def]
    return _or_dash(one.step) + (f"/{one.steps}" if one.steps is not None else "")


def _checkpoint(one) -> str:  # type: ignore[no-untyped-def]
    found = one.checkpoint or "-"
    if one.checkpoint_compress_seconds:
        sizes = f"{format_size(one.checkpoint_bytes)} of {format_size(one.checkpoint_raw_bytes)}"
        found += f", {sizes}, compressed in {one.checkpoint_compress_seconds:.2g} s of {one.checkpoint_seconds:.2g} s"
    return found + (", on its node alone so far" if one.checkpoint_fast else "")


def _pending(one) -> str:  # type: ignore[no-untyped-def]
    if one.pending_nodes is None:
        return ""
    since = f" for {format_time(time.time() - one.pending_since, unit=' s')}" if one.pending_since else ""
    return f"{_nodes(one.pending_nodes)}{since}" + (f" (job {one.pending_job})" if one.pending_job else "")
