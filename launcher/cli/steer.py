"""``dmr resize``, ``stop``, ``checkpoint`` and ``resume``: act on a run from outside."""

from __future__ import annotations

import getpass
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ...resize import words
from . import TIME, fail
from .completing import complete_run

if TYPE_CHECKING:
    from ..run.requests import Requests
    from ..run.rundir import RunDir

ANSWER = 60.0
"""Seconds in which a live launcher takes up a request. It looks at none while it ends ranks and starts others, or waits
for a scheduler that is slow."""
LOOK = 1.0
"""Seconds between two looks whether the launcher lives."""

wait_option = click.option("--wait", is_flag=True, help="Return when it is done.")
timeout_option = click.option("--timeout", type=TIME, default="1h", show_default=True, help="How long --wait waits.")


@click.command()
@click.argument("run", shell_complete=complete_run)
@click.option("--nodes", "-N", type=click.IntRange(1), required=True, metavar="N", help="The size to go to.")
@click.option("--keep", metavar="NODELIST", help="Nodes that are not given back, as n[3-4,7].")
@wait_option
@timeout_option
def resize(run: str, nodes: int, keep: str | None, wait: bool, timeout: float) -> None:
    """Ask the live RUN for another size, one that its --nodes allows.

    Fewer nodes are given back at the next safe point; more have to be had from the queue first. The node that
    dmr-launch runs on is always kept.

    \b
    Examples:
      dmr resize heat-4711 --nodes 4
      dmr resize dmr-runs/heat-4711 -N 8 --wait --timeout 30m
      dmr resize heat-4711 -N 4 --keep n[5-7]
    """
    _post(run, "resize", wait, timeout, nodes=nodes, keep=_names(keep, nodes))


def _names(keep: str | None, most: int) -> tuple[str, ...]:
    """Return the nodes of a list in Slurm's words."""
    from ..slurm.parse import expand_hosts

    if keep is None:
        return ()
    names = expand_hosts(keep)
    if not names:
        fail(f"--keep {keep}: this names no node", 2)
    if len(names) > most:
        fail(f"--keep {keep}: these are {words.nodes(len(names))}, more than --nodes {most}", 2)
    return names


@click.command()
@click.argument("run", shell_complete=complete_run)
@click.option("--now", is_flag=True, help="Without waiting for a save: steps since the last checkpoint may be lost.")
@wait_option
@timeout_option
def stop(run: str, now: bool, wait: bool, timeout: float) -> None:
    """Save and end the live RUN, its pending successor included. `dmr resume` continues it.

    \b
    Examples:
      dmr stop heat-4711 --wait
    """
    from ..run.finding import find_run
    from ..run.status import read_status

    name = find_run(run)
    _post(run, "stop", False, timeout, now=now)
    until = time.monotonic() + timeout
    while wait and (state := read_status(name).state) not in ("stopped", "finished", "failed", "lost"):
        if time.monotonic() > until:
            fail(f"the run is still {state}")
        time.sleep(0.2)
    if wait:
        click.echo(f"done: {state}")


@click.command()
@click.argument("run", shell_complete=complete_run)
@wait_option
@timeout_option
def checkpoint(run: str, wait: bool, timeout: float) -> None:
    """Ask the live RUN to save at its next safe point, and to go on.

    \b
    Examples:
      dmr checkpoint heat-4711 --wait
    """
    from ..run.finding import find_run

    run_dir = find_run(run)
    answer = _post(run, "checkpoint", False, timeout)
    request = int(answer.get("text", "request 0").rpartition(" ")[2])
    until = time.monotonic() + timeout
    while wait:
        progress = run_dir.read_progress()
        if progress is not None and progress.acknowledged >= request:
            if progress.error:
                fail(f"the save failed: {progress.error}")
            click.echo(progress.checkpoint.name if progress.checkpoint else "saved")
            return
        if time.monotonic() > until:
            fail("the application has not saved yet")
        _must_be_alive(run_dir)
        time.sleep(0.2)


def _post(run: str, action: str, wait: bool, timeout: float, **fields: Any) -> dict[str, Any]:
    from ..run.finding import find_run
    from ..run.requests import Requests

    run_dir = find_run(run)
    _must_be_alive(run_dir)
    requests = Requests(run_dir)
    name = requests.post(action, by=_user(), **fields)
    answer = _answer(run_dir, requests, name, max(ANSWER, timeout) if wait else ANSWER)
    until = time.monotonic() + timeout
    while wait and answer.get("state") == "accepted":
        if time.monotonic() > until:
            fail(f"not done yet: {answer.get('text')}")
        time.sleep(0.2)
        answer = requests.answer_to(name) or answer
        _must_be_alive(run_dir)
    if answer.get("state") == "refused":
        fail(str(answer.get("text")))
    click.echo(f"{answer.get('state')}: {answer.get('text')}")
    return answer


def _answer(run_dir: RunDir, requests: Requests, name: str, seconds: float) -> dict[str, Any]:
    """Return the first answer to a request; fails when none comes in time, or when the launcher is gone."""
    began = looked = time.monotonic()
    while (answer := requests.answer_to(name)) is None:
        now = time.monotonic()
        if now - looked > LOOK:
            looked = now
            if (problem := _why_not_alive(run_dir)) and (answer := requests.answer_to(name)) is None:
                requests.withdraw(name)
                fail(problem)
        if now - began > seconds:
            requests.withdraw(name)
            fail(
                f"the launcher of {run_dir.folder} lives, but has not taken this up within {seconds:.0f} s; "
                f"see 'dmr status {run_dir.folder}'"
            )
        time.sleep(0.05)
    return answer


def _must_be_alive(run_dir: RunDir) -> None:
    if problem := _why_not_alive(run_dir):
        fail(problem)


def _why_not_alive(run_dir: RunDir) -> str:
    from ..run.status import read_status

    state = read_status(run_dir).state
    if state in ("finished", "failed", "stopped"):
        return f"{run_dir.folder} is not running: it {'was' if state == 'stopped' else 'has'} {state}"
    if state == "lost":
        return f"the launcher of {run_dir.folder} is gone; continue the run with 'dmr resume {run_dir.folder}'"
    return ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


@click.command()
@click.argument("run", shell_complete=complete_run)
@click.option("--nodes", "-N", type=click.IntRange(1), metavar="N", help="Size to go on with.  [default: as before]")
@click.option("--here", is_flag=True, help="On this machine (local engine), wherever it ran before.")
@click.option("-q", "--quiet", is_flag=True, help="Tell only of trouble.")
@click.option("-v", "--verbose", is_flag=True, help="Tell every decision.")
@click.pass_context
def resume(ctx: click.Context, run: str, nodes: int | None, here: bool, quiet: bool, verbose: bool) -> None:
    """Continue RUN, whose launcher is gone, from its last checkpoint.

    Within a job or on the local engine it goes on in the foreground; for a run that used Slurm, outside of a job,
    a job is submitted. Refused while the run is alive, or when it has finished.

    \b
    Examples:
      dmr resume heat-4711
      dmr resume dmr-runs/heat-4711 --nodes 4
    """
    from ..run.finding import find_run
    from ..run.options import RunOptions
    from ..supervise.begin import Refused, forget_claim, own_claim, resume_by_job
    from ..supervise.begin import resume as go_on
    from ..supervise.console import NORMAL, QUIET, VERBOSE, Console
    from .launch import current_job, make_engine

    run_dir = find_run(run)
    console = Console(QUIET if quiet else VERBOSE if verbose else NORMAL)
    options = RunOptions.of_run(run_dir)
    if nodes is not None and nodes not in options.sizes:
        fail(f"{words.nodes(nodes)} is not an allowed size of this run: {', '.join(map(str, options.sizes))}", 2)
    if here:
        options = replace(options, engine="local")
    elif "SLURM_JOB_ID" not in os.environ and run_dir.description().get("engine_used") == "slurm":
        from ..slurm.saved import engine_from_saved

        job = resume_by_job(run_dir, options, engine_from_saved(run_dir.folder), console, nodes)
        click.echo(f"submitted job {job}, which continues {run_dir.folder}")
        return
    try:
        own_claim(os.environ, current_job())
    except (Refused, OSError):
        forget_claim(os.environ)
    ctx.exit(go_on(run_dir, options, make_engine(options), console, nodes=nodes))
