"""``dmr simulate``: what policies would do to a whole workload."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...resize import words
from . import EXIT_USAGE, TIME, fail, format_time, json_option, print_json, print_table
from .completing import complete_policy, complete_workload, one_of
from .policies import make_policy, read_options

if TYPE_CHECKING:
    from ...resize.simulate.experiment import Interval, Regime, Result
    from ...resize.simulate.workload import Workload

GENERATORS = ("amdahl", "lublin")
SHOWN_PROBLEMS = 5
HEAD = (
    "MAKESPAN", "TURNAROUND", "WAIT", "SLOWDOWN", "UTILISATION", "COMPUTING", "NODE-HOURS", "RIGID JOBS", "OF CENTRAL"
)  # fmt: skip


class _Share(click.ParamType):
    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        text = str(value)
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = math.nan
        if not 0 <= share <= 1:
            self.fail(f"{text!r} is no share: write it as 0.5 or 50%", param, ctx)
        return share


@click.command(
    epilog="WORKLOAD is a file in the Standard Workload Format (also .gz), the output of 'sacct -P', or one of the "
    "generators amdahl and lublin. Jobs of a file that are made malleable get an Amdahl law with which the size that "
    "they asked for lies between 80% and 50% parallel efficiency. UTILISATION are the nodes held, COMPUTING those that "
    "computed."
)
@click.argument("workload", shell_complete=complete_workload)
@click.option("--nodes", type=click.IntRange(1), help="Size of the machine.  [default: the workload's, else 128]")
@click.option("--malleable", type=_Share(), default=1.0, show_default=True, help="Share of jobs that are malleable.")
@click.option(
    "--policy", "policies", multiple=True, metavar="NAME", help="Compare these.  [default: queue]",
    shell_complete=complete_policy,
)  # fmt: skip
@click.option("--policy-option", "pairs", multiple=True, metavar="KEY=VALUE", help="An option of every policy.")
@click.option(
    "--scheduler",
    type=click.Choice(["easy", "backfill", "conservative", "fcfs", "slurm"]),
    default="easy",
    show_default=True,
    help="slurm: reservations node by node, as Slurm's backfill makes them; slower.",
)
@click.option("--central/--no-central", default=True, help="Add a scheduler that resizes by itself, as a reference.")
@click.option("--seeds", type=click.IntRange(1), default=10, show_default=True, help="How many draws; 2 for intervals.")
@click.option("--seed", type=int, default=0, show_default=True, help="The first of them.")
@click.option("--jobs", type=click.IntRange(1), help="Only so many jobs.  [default: all; generators: 300]")
@click.option("--load", type=click.FloatRange(0, min_open=True), help="Stretch the arrivals to this offered load.")
@click.option(
    "--start",
    default="range",
    show_default=True,
    metavar="SIZE",
    shell_complete=one_of("least", "preferred", "asked", "largest", "range"),
    help="What a malleable job asks for: least, preferred, asked, largest, or range (as much as is free).",
)
@click.option(
    "--start-most", type=click.FloatRange(1), metavar="TIMES", help="A range goes up to TIMES its least size only."
)
@click.option(
    "--time-min",
    type=_Share(),
    default=1.0,
    metavar="SHARE",
    help="To what share of its time limit a backfill scheduler may cut a malleable job's (sbatch --time-min).",
)
@click.option("--interval", type=TIME, default="60", show_default=True, help="Time between looks at the queue.")
@click.option("--save", type=TIME, default="3", show_default=True, help="Time to save the state.")
@click.option("--launch", type=TIME, default="4", show_default=True, help="Time to start the program.")
@click.option("--load-time", type=TIME, default="3", show_default=True, help="Time to load the state.")
@click.option("--cycle", type=TIME, default="0", show_default=True, help="Time between passes of the scheduler.")
@click.option("--processors-per-node", type=click.IntRange(1), default=1, show_default=True, help="For SWF.")
@click.option("--strict", is_flag=True, help="Refuse a file with malformed lines.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw it: FILE.png, .svg or .pdf.")
@json_option
def simulate(workload: str, as_json: bool, **given: Any) -> None:
    """Simulate malleable jobs on a workload, against the same jobs rigid.

    \b
    Examples:
      dmr simulate amdahl --nodes 128 --malleable 0.5
      dmr simulate KTH-SP2.swf.gz --jobs 5000 --policy queue --policy dmr
      sacct -P -a -X -S 2026-01-01 -o JobIDRaw,Submit,Start,End,NNodes,Timelimit,State > jobs
      dmr simulate jobs --nodes 400 --malleable 20% --json
    """
    from ...resize.simulate.experiment import compare

    make, nodes, first = _workload(workload, given)
    regimes = _regimes(given)
    seeds = range(given["seed"], given["seed"] + given["seeds"])
    try:
        results = compare(make, nodes, regimes, seeds)
    except ValueError as error:
        fail(f"can't simulate {workload}: {error}")
    if given["plot"]:
        from .simulate_plot import draw

        draw(given["plot"], make(seeds[0]), nodes, regimes, seeds[0])
    if as_json:
        print_json(_as_json(first, nodes, given, results))
        return
    load = first.load(nodes)
    click.echo(
        f"{words.count(len(first.jobs), 'job')} ({first.source}), {words.nodes(nodes)}, "
        f"offered load {load:.2f}, {given['scheduler']}, {words.count(given['seeds'], 'seed')}"
    )
    _show_problems(first)
    _show(results)
    if given["plot"]:
        click.echo(f"drawn to {given['plot']}")


def _workload(name: str, given: dict[str, Any]) -> tuple[Callable[[int], Workload], int, Workload]:
    """Return the workload of each seed, the machine's size, and the first workload."""
    from ...resize.simulate.generate import amdahl, lublin

    count, load = given["jobs"], given["load"]
    if name in GENERATORS:
        nodes = given["nodes"] or 128

        def make(seed: int) -> Workload:
            if name == "amdahl":
                return amdahl(count or 300, nodes, seed, load=load or 1.5)
            drawn = lublin(count or 300, nodes, seed)
            return drawn.scaled(load, nodes) if load else drawn

        return make, nodes, make(given["seed"])
    found = _read(Path(name), given).first(count)
    nodes = given["nodes"] or found.nodes or 128
    found = found.fitting(nodes)
    if not found.jobs:
        fail(f"{name} has no job that ran and fits on {words.nodes(nodes)}")
    if given["strict"] and any(each.what.startswith("asks for") for each in found.problems):
        fail(f"{name} has jobs that are larger than {words.nodes(nodes)}; leave --strict out to pass over them")
    found = found.scaled(load, nodes) if load else found
    return (lambda seed: found), nodes, found


def _read(path: Path, given: dict[str, Any]) -> Workload:
    from ...resize.simulate import sacct, swf

    try:
        lines = list(_lines(path))
    except FileNotFoundError:
        fail(f"there is no file {path}; the generators are {', '.join(GENERATORS)}", EXIT_USAGE)
    except (OSError, EOFError) as error:
        fail(f"can't read {path}: {error}")
    try:
        top = next((line for line in lines if line.strip()), "")
        if "|" in top:
            return sacct.parse(lines, strict=given["strict"], source=path.name)
        trace = swf.parse(lines, strict=given["strict"])
        return swf.to_workload(trace, given["processors_per_node"], path.name, given["nodes"])
    except swf.TraceError as error:
        fail(f"{path}: {error}")


def _lines(path: Path) -> Iterator[str]:
    import gzip

    with open(path, "rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        data = gzip.GzipFile(fileobj=raw) if packed else raw
        for line in data:
            yield line.decode("utf-8", errors="replace")


def _regimes(given: dict[str, Any]) -> list[Regime]:
    from ...resize.simulate.experiment import Regime
    from ...resize.simulate.malleable import Launcher

    share, scheduler, cycle = given["malleable"], given["scheduler"], given["cycle"]
    regimes = [Regime("rigid", "rigid", 0.0, scheduler, None, cycle)]
    for name in given["policies"] or ("queue",):
        policy = make_policy(name, read_options(given["pairs"]))
        try:
            launcher = Launcher(
                policy, given["interval"], given["save"], given["launch"], given["load_time"], given["start"],
                given["start_most"] or math.inf, given["time_min"],
            )  # fmt: skip
        except ValueError as error:
            fail(str(error), EXIT_USAGE)
        regimes.append(Regime(f"policy {name}", "user", share, scheduler, launcher, cycle))
    if given["central"]:
        regimes.append(Regime("central", "central", share, scheduler, None, cycle))
    return regimes


def _show_problems(workload: Workload) -> None:
    skipped = [each for each in workload.problems if each.skipped]
    corrected = len(workload.problems) - len(skipped)
    if not workload.problems:
        return
    counts: dict[str, int] = {}
    for each in workload.problems:
        counts[each.what] = counts.get(each.what, 0) + 1
    click.echo(f"{words.count(len(skipped), 'line')} passed over, {corrected} corrected:")
    kinds = sorted(counts.items(), key=lambda item: -item[1])
    for what, count in kinds[:SHOWN_PROBLEMS]:
        example = next(each for each in workload.problems if each.what == what)
        where = f"line {example.line}: {example.text}" if example.line else example.text
        click.echo(f"  {count} × {what} ({where})")
    if len(kinds) > SHOWN_PROBLEMS:
        click.echo(f"  and {len(kinds) - SHOWN_PROBLEMS} other kinds; --json has them all")


def _show(results: list[Result]) -> None:
    rows = [("", *HEAD)]
    for each in results:
        value = each.values
        rows.append(
            (
                each.name,
                _both(each, "makespan"),
                _both(each, "turnaround"),
                format_time(value["wait"].mean),
                f"{value['slowdown'].mean:.1f}",
                _percent(value["utilisation"]),
                _percent(value["computing"]),
                _ratio(each.ratios["node_hours"]),
                _ratio(each.rigid_effect),
                _percent(each.share_of_central),
            )
        )
    print_table(rows, right="lrrrrrrrrr")
    click.echo("in brackets, NODE-HOURS and RIGID JOBS (turnaround of jobs that stay rigid): times those of all rigid")


def _both(result: Result, name: str) -> str:
    return f"{format_time(result.values[name].mean)} ({_ratio(result.ratios[name])})"


def _ratio(value: Interval) -> str:
    if math.isnan(value.mean):
        return "-"
    return f"{value.mean:.2f}" + ("" if math.isnan(value.half) else f"±{value.half:.2f}")


def _percent(value: Interval) -> str:
    if math.isnan(value.mean):
        return "-"
    return f"{value.mean:.0%}" + ("" if math.isnan(value.half) else f"±{100 * value.half:.0f}")


def _as_json(workload: Workload, nodes: int, given: dict[str, Any], results: list[Result]) -> dict[str, Any]:
    def plain(value: Interval) -> dict[str, float | int | None]:
        return {"mean": _number(value.mean), "half": _number(value.half), "count": value.count}

    return {
        "source": workload.source,
        "jobs": len(workload.jobs),
        "nodes": nodes,
        "load": _number(workload.load(nodes)),
        "scheduler": given["scheduler"],
        "malleable": given["malleable"],
        "start": given["start"],
        "start_most": given["start_most"],
        "time_min": given["time_min"],
        "seeds": given["seeds"],
        "problems": [vars(each) for each in workload.problems],
        "regimes": [
            {
                "name": each.name,
                "values": {key: plain(value) for key, value in each.values.items()},
                "ratios": {key: plain(value) for key, value in each.ratios.items()},
                "rigid_effect": plain(each.rigid_effect),
                "share_of_central": plain(each.share_of_central),
            }
            for each in results
        ],
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
