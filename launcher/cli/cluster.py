"""``dmr cluster``: a private, real Slurm on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import click

from ...resize import words
from ..cluster import ClusterError, PrivateCluster
from ..cluster.ending import sweep
from ..cluster.private import Status
from .completing import complete_cluster, complete_command

_DEFAULT = "default"


@click.group()
def cluster() -> None:
    """A private, real Slurm on this machine, without root.

    \b
    dmr cluster up --nodes 8            start it
    eval "$(dmr cluster env)"           turn this shell towards it
    sbatch job.sh; squeue               use it
    dmr cluster down                    end it, without a trace
    dmr cluster run -- srun hostname    all of this for one command
    """


def _shape(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        [
            click.option("--nodes", type=click.IntRange(1, 4096), default=8, show_default=True, help="Virtual nodes."),
            click.option(
                "--cpus-per-node",
                type=click.IntRange(1, 1024),
                default=2,
                show_default=True,
                help="Processors that each node says it has.",
            ),
            click.option(
                "--partition",
                "partitions",
                multiple=True,
                metavar="'NAME [KEY=VALUE …]'",
                help="A partition, in slurm.conf's words; may be given again. [default: main, with all nodes]",
            ),
            click.option(
                "--config", multiple=True, metavar="KEY=VALUE", help="A line of slurm.conf; may be given again."
            ),
            click.option("--accounting", is_flag=True, help="With slurmdbd and a database, so that sacct works."),
            click.option(
                "--deadline",
                type=click.FloatRange(min=1),
                default=60.0,
                show_default=True,
                metavar="SECONDS",
                help="Until all nodes have to be idle.",
            ),
        ]
    ):
        command = option(command)
    return command


_named = click.option(
    "--name", default=_DEFAULT, show_default=True, help="The cluster's name.", shell_complete=complete_cluster
)


@cluster.command()
@_named
@_shape
def up(
    name: str,
    nodes: int,
    cpus_per_node: int,
    partitions: tuple[str, ...],
    config: tuple[str, ...],
    accounting: bool,
    deadline: float,
) -> None:
    """Start a cluster, and wait until all its nodes are idle.

    \b
    dmr cluster up --nodes 100 --cpus-per-node 4
    dmr cluster up --name low --partition main --partition 'low PriorityTier=0' \\
        --config PreemptType=preempt/partition_prio --config PreemptMode=REQUEUE
    """
    begun = time.monotonic()
    with _spoken(), _terminated_softly():
        made = PrivateCluster(
            nodes,
            name,
            cpus_per_node=cpus_per_node,
            partitions=partitions or ("main",),
            config=config,
            accounting=accounting,
        )
        made.up(deadline)
    option = "" if name == _DEFAULT else f" --name {name}"
    click.echo(f"cluster '{name}': {words.nodes(nodes)} idle after {time.monotonic() - begun:.1f} s")
    click.echo(f'to use it: eval "$(dmr cluster env{option})"; to end it: dmr cluster down{option}')


@cluster.command()
@click.option("--name", help="Only this one.", shell_complete=complete_cluster)
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
def status(name: str | None, as_json: bool) -> None:
    """Show this user's clusters; exit status 1 when there is none."""
    with _spoken():
        every = PrivateCluster.every() if name is None else [_found(name)]
        seen = [each.status() for each in every]
    if as_json:
        click.echo(json.dumps([_plain(each) for each in seen], indent=1))
    elif not seen:
        click.echo("no cluster is up")
    else:
        for each in seen:
            click.echo(_line(each))
    if not seen:
        sys.exit(1)


@cluster.command()
@_named
@click.option("--all", "everything", is_flag=True, help="All clusters of this user.")
def down(name: str, everything: bool) -> None:
    """End a cluster with its jobs, and remove all its files. Works on what a crash left, too."""
    with _spoken():
        which = PrivateCluster.every() if everything else [_found(name)]
        for each in which:
            each.down()
            click.echo(f"cluster '{each.name}' is gone")
        sweep()


@cluster.command()
@_named
def env(name: str) -> None:
    """Print shell exports that turn a shell towards a cluster.

    \b
    eval "$(dmr cluster env)"
    """
    with _spoken():
        found = _found(name)
    for variable in ("SLURM_CLUSTERS", "SBATCH_CLUSTERS"):
        if variable in os.environ:
            click.echo(f"unset {variable}")
    for variable, value in found.exports.items():
        click.echo(f"export {variable}={shlex.quote(value)}")


@cluster.command(context_settings={"ignore_unknown_options": True})
@click.option(
    "--name", help="Inside this cluster, that is up; without it in one that lasts as long as the command.",
    shell_complete=complete_cluster,
)  # fmt: skip
@_shape
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, shell_complete=complete_command)
def run(
    name: str | None,
    nodes: int,
    cpus_per_node: int,
    partitions: tuple[str, ...],
    config: tuple[str, ...],
    accounting: bool,
    deadline: float,
    command: tuple[str, ...],
) -> None:
    """Run one command inside a cluster; its exit status is passed on.

    \b
    dmr cluster run --nodes 4 -- srun -N4 hostname
    dmr cluster run --name default -- sbatch job.sh
    """
    with _spoken(), _terminated_softly():
        if name is not None:
            sys.exit(_execute(_found(name), command))
        made = PrivateCluster(
            nodes,
            cpus_per_node=cpus_per_node,
            partitions=partitions or ("main",),
            config=config,
            accounting=accounting,
        )
        made.up(deadline, owned=True)
        try:
            code = _execute(made, command)
        finally:
            made.down()
        sys.exit(code)


def _execute(inside: PrivateCluster, command: tuple[str, ...]) -> int:
    try:
        started = subprocess.Popen(command, env=inside.env)
    except OSError as error:
        raise ClusterError(f"can't run '{command[0]}': {error.strerror}") from None
    while True:
        try:
            code = started.wait()
            return code if code >= 0 else 128 - code
        except KeyboardInterrupt:
            # The terminal sent it to the command as well, which decides.
            continue
        except SystemExit:
            started.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.wait(10)
            started.kill()
            raise


def _found(name: str) -> PrivateCluster:
    found = PrivateCluster.find(name)
    if found is None:
        option = "" if name == _DEFAULT else f" --name {name}"
        raise ClusterError(f"there is no cluster '{name}'; start it with 'dmr cluster up{option}'")
    return found


def _line(each: Status) -> str:
    states: dict[str, int] = {}
    for state in each.nodes.values():
        states[state] = states.get(state, 0) + 1
    nodes = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    gone = f"; not running: {', '.join(each.missing)}" if each.missing else ""
    return f"{each.name}  {each.condition}  {nodes or 'no nodes known'}{gone}  {each.folder}"


def _plain(each: Status) -> dict[str, Any]:
    return {
        "name": each.name,
        "condition": each.condition,
        "folder": str(each.folder),
        "nodes": dict(each.nodes),
        "missing": list(each.missing),
        "created": each.created,
    }


@contextlib.contextmanager
def _spoken() -> Iterator[None]:
    try:
        yield
    except ClusterError as error:
        raise click.ClickException(str(error)) from None


@contextlib.contextmanager
def _terminated_softly() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind, so that what was started is ended."""

    def unwind(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, unwind) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
