"""``dmr experiment``: measure how a program scales, phase by phase."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from ...resize import words
from . import EXIT_USAGE, UserError, fail, json_option, print_json, print_table
from .completing import complete_command


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--nodes", required=True, metavar="SIZES", help="Sizes to measure: 1:8:pow2, 2,4,8.")
@click.option("--node-hours", type=click.FloatRange(0, min_open=True), help="Stop when these are used up.")
@click.option("--steps", type=click.IntRange(1), default=10, show_default=True, help="Steps that make a measurement.")
@click.option("--within", type=click.FloatRange(0, 1, min_open=True), default=0.1, show_default=True,
              help="Half-width of a 90 % interval that is narrow enough.")  # fmt: skip
@click.option("--phases", metavar="NAMES", help="Phases to wait for, with commas.  [default: those it comes across]")
@click.option("--run-dir", type=click.Path(file_okay=False, path_type=Path), help="Default: dmr-runs/experiment-TIME")
@click.option("--local-nodes", type=click.IntRange(1), metavar="N", help="Nodes that this machine counts for.")
@click.option("--launch-option", "launch_options", multiple=True, metavar="OPTION", help="Handed on to dmr-launch.")
@json_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, shell_complete=complete_command)
@click.pass_context
def experiment(ctx: click.Context, command: tuple[str, ...], **given: Any) -> None:
    """Measure how COMMAND scales: a few steps at each size, phase by phase, in one malleable run.

    It ends when the speeds are known well enough at all sizes, or the node-hours are used up. What it finds goes into
    the model of the program (dmr model show), which the policy phases asks by. A Slurm job keeps its nodes meanwhile:
    the run goes on any part of them, and all of them count. The program's own output goes to stderr.

    \b
    Examples:
      dmr experiment --nodes 1:8:pow2 --node-hours 0.5 -- python app.py --size 8192
      dmr experiment --nodes 1,2,4 --local-nodes 4 --steps 5 -- ./solver
    """
    from ...resize.sizes import SizesError, parse_sizes
    from ..models.experiment import Design, Experiment, job_nodes, launcher_argv
    from ..run.finding import RUNS, free_folder
    from ..run.history import read_history
    from ..run.rundir import RunDir

    try:
        sizes = parse_sizes(given["nodes"])
    except SizesError as error:
        fail(f"--nodes: {error}", EXIT_USAGE)
    if len(sizes) < 2:
        fail("--nodes: one size alone tells nothing of how the program scales", EXIT_USAGE)
    folder = (given["run_dir"] or free_folder(RUNS.absolute(), time.strftime("experiment-%m%d-%H%M%S"))).absolute()
    phases = tuple(each.strip() for each in given["phases"].split(",")) if given["phases"] else None
    held, options = job_nodes(), list(given["launch_options"])
    if given["local_nodes"] is not None:
        held = None
    if held is not None:
        options = ["--engine", "held", *options]
        if sizes[-1] > held:
            largest = words.nodes(sizes[-1])
            fail(f"--nodes: {largest} is more than the {held} of this job; submit a larger one", EXIT_USAGE)
    design = Design(sizes, given["steps"], given["within"], given["node_hours"], held, phases)
    if given["local_nodes"] is not None:
        options += ["--local-nodes", str(given["local_nodes"])]
    run = RunDir(folder)

    def say(text: str) -> None:
        click.echo(f"dmr experiment: {text}", err=True)

    made = Experiment(run, launcher_argv(folder, given["nodes"], options, command), design, say)
    status, why = made.conduct()
    if not (folder / "run.json").exists():
        raise UserError("the run could not be started", status or 1)
    _report(folder, why, made.node_hours(read_history(run.events(skip=("decided",)))), given["as_json"])
    ctx.exit(0 if made.meter.rates else status or 1)


def _report(folder: Path, why: str, hours: float, as_json: bool) -> None:
    from ...resize.speed import Speed
    from ..models.store import ModelError, ModelStore
    from ..timeline.analysis import analyse
    from ..timeline.sources import read_sources

    found = analyse(read_sources(folder), ModelStore.default().read()[0])
    if found.record.phases:
        try:
            ModelStore.default().add(found.key, found.record)
        except ModelError as error:
            fail(str(error))
    rows = []
    for summary in found.summaries:
        speed = Speed([each for each in found.rates if each.phase == summary.phase], summary.phase)
        for size in found.sizes:
            estimate = speed.at(size)
            if estimate is not None:
                rows.append(
                    {"phase": summary.phase, "nodes": size, "seconds_per_step": estimate.value, "low": estimate.low,
                     "high": estimate.high, "measured": size in speed.samples}
                )  # fmt: skip
    right = {each.phase: None if each.right is None else each.right.nodes for each in found.summaries}
    if as_json:
        print_json({"run": str(folder), "ended": why, "node_hours": hours, "speeds": rows, "right_sizes": right})
        return
    changes = found.history.resizes
    click.echo(f"{folder}: {why}; {hours:.3g} node-hours, {changes} change{'s' * (changes != 1)} of size")
    table = [("PHASE", "NODES", "S/STEP", "90 % FROM", "TO", "")]
    for row in rows:
        table.append(
            (str(row["phase"]), str(row["nodes"]), f"{row['seconds_per_step']:.3g}", f"{row['low']:.3g}",
             f"{row['high']:.3g}", "measured" if row["measured"] else "")
        )  # fmt: skip
    print_table(table if rows else [("no step was measured",)], right="lrrrrl")
    for phase, nodes in right.items():
        if nodes is not None:
            click.echo(f"right size of {phase}: {words.nodes(nodes)}")
