"""``dmr-launch``: run a malleable program, in a job script or on this machine.

Exit statuses: see `dmr.launcher.supervise.exits`.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ...resize import words
from . import EXIT_USAGE, TIME, fail, parse_time, run_command
from .completing import complete_app, complete_command, complete_folder, complete_mpi, complete_policy, one_of

if TYPE_CHECKING:
    from ..engines.engine import Allocation, Engine
    from ..run.options import RunOptions
    from ..supervise.console import Console

EXAMPLES = """\
\b
Examples:
  dmr-launch --nodes 2:16 -- python app.py --size 8192
  dmr-launch --nodes 1,2,4,8 --policy queue --dwell 5m -- ./solver.sh
  dmr-launch --local-nodes 4 --nodes 1:4 --start 2 -- python app.py
  dmr-launch --nodes 1:8 --app lammps -- lmp -in in.melt

In a job script it uses the nodes of the job, and resizes through Slurm; elsewhere this machine's cores are the
nodes. The program's output goes through; a copy is kept in the run directory.
"""


def _every(text: str) -> str:
    if re.fullmatch(r"[1-9]\d* *steps?", text.strip()):
        return text.strip()
    word, slash, failures = text.strip().partition("/")
    if word == "auto":
        return f"auto/{_every(failures)}" if slash else "auto"
    seconds = parse_time(text)
    if seconds <= 0:
        raise ValueError(f"{text!r} is no time above 0")
    return f"{seconds:g}"


class _Every(click.ParamType):
    name = "time|steps|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return _every(value)
        except ValueError as error:
            self.fail(f"{error}; or as a number of steps, 500steps; or auto, auto/12h", param, ctx)


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "allow_interspersed_args": False},
    epilog=EXAMPLES,
    no_args_is_help=True,
)
@click.option("--nodes", metavar="MIN:MAX", help="Sizes: 4, 2:16, 2:16:2, 4,8,16, 1:16:pow2.  [default: those held]")
@click.option("--start", type=click.IntRange(1), metavar="N", help="Nodes to begin with.")
@click.option("--ntasks-per-node", type=click.IntRange(1), metavar="N", help="Ranks a node.  [default: the job's, 1]")
@click.option("--policy", default="queue", show_default=True, metavar="NAME", help="A name, or module:Class.",
              shell_complete=complete_policy)  # fmt: skip
@click.option("--policy-option", "policy_options", multiple=True, metavar="KEY=VALUE", help="An option of the policy.")
@click.option("--dwell", type=TIME, help="How long a size is kept at least.  [default: the policy's]")
@click.option("--query-interval", type=TIME, default="60", show_default=True, help="Between two looks at the queue.")
@click.option("--engine", type=click.Choice(["auto", "slurm", "local", "held"]), default="auto", show_default=True,
              help="held: within this job, on any part of its nodes, without the queue.")  # fmt: skip
@click.option("--mpi", default="auto", show_default=True, metavar="NAME", help="srun-pmix, mpirun, mpiexec, a path.",
              shell_complete=complete_mpi)  # fmt: skip
@click.option("--local-nodes", type=click.IntRange(1), metavar="N", help="Nodes that this machine counts for.")
@click.option("--app", metavar="FILE", help="A program that writes its own restart files: its TOML file, or a profile.",
              shell_complete=complete_app)  # fmt: skip
@click.option("--run-dir", type=click.Path(file_okay=False, path_type=Path), help="Default: dmr-runs/PROGRAM-JOB")
@click.option("--checkpoint-every", type=_Every(), help="Save that often: 15m, 1:30:00, 500steps, auto.")
@click.option("--keep", type=click.IntRange(1), metavar="N", help="Checkpoints to keep.  [default: 2]")
@click.option("--background", is_flag=True, help="Compute on while a checkpoint is written; takes a copy of the state.")
@click.option("--fast-dir", metavar="DIR", help="Save to this folder of the node first, copy from there: /dev/shm.",
              shell_complete=complete_folder)  # fmt: skip
@click.option("--compress", metavar="CODEC", help="Compress checkpoints: zstd, zlib, zstd:3; none: as they are.",
              shell_complete=one_of("zstd", "zlib", "none"))  # fmt: skip
@click.option("--driver", type=click.Choice(["auto", "mpio", "direct"]), help="How checkpoints are written.")
@click.option("--grace", type=TIME, default="120", show_default=True, help="For a save, before the ranks are killed.")
@click.option("--max-restarts", type=click.IntRange(0), default=3, show_default=True, metavar="N", help="Crashes.")
@click.option("--hang-after", type=TIME, help="Without progress it is taken for hung.  [default: learned; 0: never]")
@click.option("--start-within", type=TIME, help="To the program's first report.  [default: learned; 0: no bound]")
@click.option("--max-generations", type=click.IntRange(1), default=1000, show_default=True, metavar="N", help="Starts.")
@click.option(
    "--after-handover",
    type=click.Choice(["cancel", "exit"]),
    help="When the run goes on in another job: cancel this one, or exit 0.  [default: cancel in a batch job]",
)
@click.option("--telemetry/--no-telemetry", default=True, help="Sample processors, memory and I/O.  [default: yes]")
@click.option("--time-comm", is_flag=True, help="Measure how long ranks wait for one another.")
@click.option("--learn/--no-learn", default=True, help="Keep what the run teaches (dmr model).  [default: yes]")
@click.option("--input-class", metavar="NAME", help="What the run is compared with.  [default: its arguments]")
@click.option("--dry-run", is_flag=True, help="Tell what would be done, and do nothing.")
@click.option("-q", "--quiet", is_flag=True, help="Tell only of trouble.")
@click.option("-v", "--verbose", is_flag=True, help="Tell every decision.")
@click.version_option(package_name="dmr-malleable", prog_name="dmr-launch")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, shell_complete=complete_command)
def launch(command: tuple[str, ...], **given: Any) -> int:
    """Run COMMAND as a malleable MPI program: its size may change while it runs."""
    from ..engines.program import doubled
    from ..run.options import RunOptions
    from ..supervise.begin import arrive, own_claim
    from ..supervise.console import NORMAL, QUIET, VERBOSE, Console

    console = Console(QUIET if given["quiet"] else VERBOSE if given["verbose"] else NORMAL)
    if int(os.environ.get("SLURM_HET_SIZE", "1") or 1) > 1:
        fail("a heterogeneous job can't change its size: submit it without ':' between components", EXIT_USAGE)
    if (why := doubled(() if given["app"] else command)) is not None:
        fail(why, EXIT_USAGE)
    claim = own_claim(os.environ, current_job())
    if claim is not None:
        options = RunOptions.of_run(claim.run)
        return arrive(claim, command, options, make_engine(options), console)
    return _fresh(command, given, console)


def current_job() -> str | None:
    from ..slurm.held import job_id

    return job_id(os.environ) if "SLURM_JOB_ID" in os.environ else None


def make_engine(options: RunOptions) -> Engine:
    """Return the engine that a run's options name."""
    from ..engines.choose import find_engine

    return find_engine(
        options.engine, local_nodes=options.local_nodes, tasks_per_node=options.tasks_per_node, mpi=options.mpi
    )


def _fresh(command: tuple[str, ...], given: dict[str, Any], console: Console) -> int:
    from ..run.finding import RUNS, free_folder, run_name
    from ..run.options import RunOptions
    from ..run.rundir import RunDir
    from ..supervise.begin import arrive, begin, requeued
    from ..supervise.leave import in_batch_job
    from ..supervise.owner import slurm_restarts
    from ..telemetry.sampler import machine_name

    _check_mpi(given["mpi"])
    policy_options = _policy(given["policy"], given["policy_options"], given["dwell"])
    after = given["after_handover"] or ("cancel" if in_batch_job(os.environ) else "exit")
    options = RunOptions(
        run="", command=command, folder=os.getcwd(), sizes=(1,), start=given["start"],
        tasks_per_node=given["ntasks_per_node"], policy=given["policy"], policy_options=policy_options,
        query_interval=max(1.0, given["query_interval"]), engine=given["engine"], mpi=given["mpi"],
        local_nodes=given["local_nodes"], checkpoint_every=given["checkpoint_every"], keep=given["keep"],
        driver=given["driver"], background=given["background"], fast_dir=_fast_dir(given["fast_dir"]),
        compress=_compress(given["compress"]),
        grace=given["grace"], max_restarts=given["max_restarts"], hang_after=given["hang_after"],
        start_within=given["start_within"], max_generations=given["max_generations"],
        after_handover=after, telemetry=given["telemetry"],
        time_comm=given["time_comm"], learn=given["learn"], input_class=given["input_class"],
        machine=machine_name(os.environ),
    )  # fmt: skip
    if given["app"] is not None:
        options = _foreign(options, given["app"])
    _check_program(options)
    engine = make_engine(options)
    allocation = engine.allocation()
    name = run_name(command, allocation.job, time.time())
    folder = (given["run_dir"] or RUNS / name).absolute()
    if slurm_restarts() and (folder / "run.json").exists():
        claim = requeued(RunDir(folder), allocation.job, slurm_restarts())
        if claim is not None:
            return arrive(claim, command, RunOptions.of_run(claim.run), engine, console)
    if given["run_dir"] is None:
        folder = free_folder(RUNS.absolute(), name)
    sizes = _sizes(given, engine, allocation, console)
    if options.app is not None:
        sizes = _sizes_of_app(options, sizes, allocation.tasks_per_node, console)
    options = replace(options, run=folder.name, sizes=sizes)
    _check_start(options, len(allocation.nodes))
    if given["dry_run"]:
        _dry_run(folder, options, engine, allocation)
        return 0
    return begin(folder, options, engine, allocation, console)


def _policy(name: str, pairs: tuple[str, ...], dwell: float | None) -> dict[str, str]:
    """Return the policy's options, after making sure that there is such a policy with such options."""
    from .policies import make_policy, read_options

    options = read_options(pairs)
    if dwell is not None:
        options["dwell"] = f"{dwell:g}"
    make_policy(name, options)
    return options


def _fast_dir(given: str | None) -> str | None:
    """Return the folder as the ranks are to expand it, after a look at it where this is one of their nodes."""
    if given is None:
        return None
    from ...ckpt.twolevel.fast import expand, refusal

    if problem := refusal(expand(given)):
        fail(f"--fast-dir: {problem}", EXIT_USAGE)
    return given


def _compress(given: str | None) -> str | None:
    """Return the compression, after making sure that there is such a one here."""
    from ...ckpt import Unsupported
    from ...ckpt.storage.codec import parse

    try:
        parse(given)
    except Unsupported as error:
        fail(f"--compress: {error}", EXIT_USAGE)
    return given


def _check_program(options: RunOptions) -> None:
    from ..engines.program import missing

    if options.app is not None:
        from ..foreign.load import described

        if described(options.app).start.command:  # it says itself what is run
            return
    if (why := missing(options.command, options.folder)) is not None:
        fail(why, EXIT_USAGE)


def _check_mpi(choice: str) -> None:
    from ..engines.engine import EngineError
    from ..engines.mpi import check_choice

    try:
        check_choice(choice)
    except EngineError as error:
        fail(f"--mpi: {error}", EXIT_USAGE)


def _sizes(given: dict[str, Any], engine: Engine, allocation: Allocation, console: Console) -> tuple[int, ...]:
    from ...resize.sizes import SizesError, parse_sizes

    text = given["nodes"]
    if text is None:
        return (len(allocation.nodes),)
    view = engine.observe()
    if view is None:
        console.warn("the scheduler did not answer: whether these sizes can be had is not known")
    # A node that is down now may be up again when its turn comes.
    most = None if view is None else view.configured or view.total
    limit = most if view is None or most is None or view.max_nodes is None else min(most, view.max_nodes)
    try:
        return parse_sizes(text, limit)
    except SizesError as error:
        # How many cores this machine has is nobody's choice: a job script can be tried out on a smaller one.
        fitting = _up_to(text, limit) if engine.name == "local" and given["local_nodes"] is None else ()
        if not fitting:
            beyond = "can be had" in str(error) or text.rstrip().endswith(":")
            hint = " (see --local-nodes)" if engine.name == "local" and beyond else ""
            fail(f"--nodes: {error}{hint}", EXIT_USAGE)
    assert limit is not None, "sizes can be too large for a limit alone"
    console.say(f"this machine counts for {words.nodes(limit)} (see --local-nodes): larger sizes are left out")
    return fitting


def _foreign(options: RunOptions, choice: str) -> RunOptions:
    from ..foreign.choice import choose
    from ..foreign.errors import ForeignError

    source = click.get_current_context().get_parameter_source("grace")
    try:
        return choose(options, choice, grace_given=source is not click.core.ParameterSource.DEFAULT)
    except ForeignError as error:
        fail(str(error), EXIT_USAGE)


def _sizes_of_app(
    options: RunOptions, sizes: tuple[int, ...], tasks_per_node: int, console: Console
) -> tuple[int, ...]:
    from ...resize.sizes import format_sizes
    from ..foreign.errors import ForeignError
    from ..foreign.load import described
    from ..foreign.sizes import allowed

    assert options.app is not None
    app = described(options.app)
    try:
        kept = allowed(app, sizes, tasks_per_node)
    except ForeignError as error:
        fail(str(error), EXIT_USAGE)
    if left_out := [size for size in sizes if size not in kept]:
        text = f"{app.name} takes {app.processes.text} processes"
        console.say(f"{text}: these sizes are left out: {format_sizes(tuple(left_out))} nodes")
    return kept


def _up_to(text: str, limit: int | None) -> tuple[int, ...]:
    from ...resize.sizes import SizesError, parse_sizes

    try:
        return tuple(size for size in parse_sizes(text) if limit is not None and size <= limit)
    except SizesError:
        return ()


def _check_start(options: RunOptions, held: int) -> None:
    if options.start is not None and options.start not in options.sizes:
        fail(f"--start {options.start} is not one of the sizes that --nodes allows", EXIT_USAGE)
    if options.start is not None and options.start > held:
        fail(f"--start {options.start} is more than the {words.nodes(held)} held here", EXIT_USAGE)
    if options.sizes[0] > held:
        fail(f"--nodes takes {words.nodes(options.sizes[0])} at least, but this job has {held}", EXIT_USAGE)


def _dry_run(folder: Path, options: RunOptions, engine: Engine, allocation: Allocation) -> None:
    import shlex

    from ...resize.sizes import format_sizes

    fitting = [size for size in options.sizes if size <= len(allocation.nodes)]
    start = options.start or fitting[-1]
    rows = {
        "run directory": str(folder),
        "engine": engine.name + (f", job {allocation.job}" if allocation.job else ""),
        "sizes": f"{format_sizes(options.sizes)} nodes, begins with {start}",
        "ranks": f"{allocation.tasks_per_node} a node",
        "policy": " ".join([options.policy, *(f"{key}={value}" for key, value in options.policy_options.items())]),
        "growth": "by a successor job" if engine.can_submit else "in place",
        "command": shlex.join(options.command),
    }
    if options.fast_dir is not None:
        rows["checkpoints"] = f"to {options.fast_dir} of the node while all ranks are on one, copied from there"
    if options.compress is not None:
        rows["compression"] = options.compress
    if options.app is not None:
        from ..foreign.load import described

        app = described(options.app)
        rows["program"] = f"{app.name}, asked by {app.request.kind}, takes {app.processes.text} processes"
    if engine.can_submit and (line := _submission(options, engine, folder)):
        rows["successor"] = line
    for key, value in rows.items():
        click.echo(f"{key + ':':15}{value}")
    click.echo(_first_decision(options, engine, allocation, start))


def _submission(options: RunOptions, engine: Engine, folder: Path) -> str:
    """Return the command line that a successor of the largest size would be submitted by."""
    import shlex

    from ..engines.engine import EngineError, Submission
    from ..run.rundir import ENV_GENERATION, ENV_RUN_DIR, ENV_TOKEN
    from ..slurm.engine import SlurmEngine

    assert isinstance(engine, SlurmEngine)
    largest = options.sizes[-1]
    claim = {ENV_RUN_DIR: str(folder), ENV_GENERATION: "2", ENV_TOKEN: "TOKEN"}
    submission = Submission(2, "TOKEN", f"dmr:{options.run}:2:TOKEN", (largest, largest), claim)
    try:
        found = engine.prepare(submission)
    except EngineError as error:
        return f"not known: {error}"
    claimed = [f"{key}={value}" for key, value in claim.items()]
    return shlex.join([*claimed, *found.argv, found.name, *found.arguments])


def _first_decision(options: RunOptions, engine: Engine, allocation: Allocation, nodes: int) -> str:
    """Return what the policy would say now, of a run whose speed is not known yet."""
    from ...resize.decide import decide
    from ...resize.explain import explain
    from ...resize.policy import PolicyError, load_policy
    from ...resize.view import RunView

    cluster = engine.observe()
    if cluster is None:
        return "the scheduler did not answer: nothing can be decided"
    run = RunView(
        cluster.time, options.run, 1, nodes, options.sizes, since=cluster.time - 86400, job=allocation.job,
        end=allocation.end, in_place=not engine.can_submit,
    )  # fmt: skip
    try:
        return explain(decide(run, cluster, load_policy(options.policy, dict(options.policy_options))))
    except PolicyError as error:
        return f"nothing can be decided: {error}"


def main() -> NoReturn:
    """Entry point of the program ``dmr-launch``."""
    run_command(launch, "dmr-launch")
