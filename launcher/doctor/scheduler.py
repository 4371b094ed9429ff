"""What this Slurm lets an ordinary user do."""

from __future__ import annotations

import getpass
import os
import re
import time
from collections.abc import Iterator, Mapping

from ..engines.engine import EngineError, Unanswered
from ..slurm.commands import CommandFailed, Commands
from ..slurm.environment import without_scheduler
from ..slurm.parse import version
from ..slurm.site import read_site
from .finding import Finding

OLDEST, NEWEST = (22, 5), (26, 5)
"""Releases that the parsers were written for."""
SECONDS = 15.0
SLOW = 2.0
SHORT_KILL_WAIT = 30


def check_scheduler(environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Ask the controller; some five requests, each with a time-out."""
    commands = Commands(without_scheduler(environ), SECONDS)
    began = time.monotonic()
    try:
        text = commands.query(["scontrol", "show", "config"]).out
    except EngineError as error:
        advice = "outside of Slurm the local engine takes its place"
        yield Finding("slurm", "controller", "note", unanswered(error), advice)
        return
    seconds = time.monotonic() - began
    values = dict(re.findall(r"^([\w/]+)\s*= (.*?)\s*$", text, re.MULTILINE))
    yield Finding(
        "slurm", "controller", "ok" if seconds < SLOW else "warn", f"answers in {seconds:.2f} s",
        "" if seconds < SLOW else "it is busy: give --query-interval 5m",
    )  # fmt: skip
    yield check_release(values.get("SLURM_VERSION", ""))
    yield from check_config(values)
    no_shrink = read_site(text).no_shrink(shrunk=False)
    yield Finding(
        "slurm", "shrink in place", "warn" if no_shrink else "ok", no_shrink or "a job may give nodes back",
        "shrinking goes by a successor, through the queue" if no_shrink else "",
    )  # fmt: skip
    yield from _partitions(commands)
    yield from _limits(commands, values, environ)


def unanswered(error: EngineError) -> str:
    """Return in a sentence why there was no answer; Slurm's own words are a chain of what its functions failed at."""
    text = str(error)
    if "configuration source" in text or "fetch config" in text:
        return "none: Slurm's commands are here, and find no configuration of a Slurm"
    if isinstance(error, (CommandFailed, Unanswered)):
        return "Slurm's commands are here, and its controller did not answer"
    return text


def check_release(text: str) -> Finding:
    """Judge the release of Slurm."""
    release = version(text)
    known = OLDEST <= release <= NEWEST
    return Finding(
        "slurm", "version", "ok" if known else "warn", text or "unknown",
        "" if known else "written for {}.{:02d} to {}.{:02d}: please report what fails".format(*OLDEST, *NEWEST),
    )  # fmt: skip


def check_config(values: Mapping[str, str]) -> Iterator[Finding]:
    """Judge the controller's configuration. Pure."""
    wait = int((re.findall(r"\d+", values.get("KillWait", "30")) or ["30"])[0])
    yield Finding(
        "slurm", "time to save when told to end", "ok" if wait >= SHORT_KILL_WAIT else "warn", f"KillWait {wait} s",
        "" if wait >= SHORT_KILL_WAIT else "save often (--checkpoint-every): a save may be cut off",
    )  # fmt: skip
    backfill = "backfill" in values.get("SchedulerType", "")
    yield Finding("slurm", "scheduler", "ok" if backfill else "note", values.get("SchedulerType", "unknown"))
    if "rl_enable" in values.get("SlurmctldParameters", ""):
        yield Finding("slurm", "rate limit", "note", "requests are rationed", "keep --query-interval at 60 or more")
    age = "ACCRUE_ALWAYS" in values.get("PriorityFlags", "")
    if "multifactor" in values.get("PriorityType", ""):
        yield Finding(
            "slurm", "age of dependent jobs", "ok" if age else "note",
            "counts from the submission" if age else "counts only once they could start",
            "" if age else "a chain (old and new don't fit side by side) waits longer than a successor",
        )  # fmt: skip
    mode = values.get("PreemptMode", "OFF")
    if "OFF" not in mode.split(","):
        yield Finding("slurm", "preemption", "note", mode, "runs that are preempted go on by a requeue or a successor")
    requeue = values.get("JobRequeue", "1") == "1"
    if requeue:
        yield Finding("slurm", "requeue", "ok", "jobs are requeued after a lost node")
    else:
        advice = "with sbatch --requeue a run survives the loss of its first node"
        yield Finding("slurm", "requeue", "note", "off by default", advice)


def _partitions(commands: Commands) -> Iterator[Finding]:
    try:
        rows = commands.query(["sinfo", "-h", "-o", "%P|%a|%D|%l|%s"]).out.splitlines()
    except EngineError as error:
        yield Finding("slurm", "partitions", "warn", str(error))
        return
    for row in rows:
        name, up, nodes, limit, size = (row.split("|") + [""] * 5)[:5]
        yield Finding(
            "slurm", f"partition {name.rstrip('*')}", "ok" if up == "up" else "warn",
            f"{nodes} nodes, jobs of {size} nodes, up to {limit}" + ("" if up == "up" else f", {up}"),
        )  # fmt: skip


def _limits(commands: Commands, values: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[Finding]:
    storage = values.get("AccountingStorageType", "")
    if "slurmdbd" not in storage:
        yield Finding("slurm", "accounting", "note", "none", "reports do without Slurm's own records")
        return
    user = environ.get("USER") or getpass.getuser()
    columns = "format=account,maxjobs,maxsubmit,grptres,maxtres"
    argv = ["sacctmgr", "-nP", "show", "assoc", "where", f"user={user}", columns]
    try:
        rows = commands.query(argv).out.splitlines()
    except EngineError as error:
        yield Finding("slurm", "accounting", "warn", str(error))
        return
    for row in rows:
        account, running, submitted, group, each = (row.split("|") + [""] * 5)[:5]
        few = submitted.isdigit() and int(submitted) < 2
        limits = {"jobs": running, "submitted": submitted, "in all": group, "a job": each}
        text = ", ".join(f"{key} {value}" for key, value in limits.items() if value) or "no limits"
        yield Finding(
            "slurm", f"account {account}", "warn" if few else "ok", text,
            "a successor can't be submitted beside the job: growth is refused" if few else "",
        )  # fmt: skip
