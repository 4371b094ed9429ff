"""Which processes belong to a private cluster, and how they end.

A process id alone proves nothing, since ids are used again: a process is known by its id and the
time it started at. Those of a cluster are found by what they show in ``/proc`` and not by files
that a crash leaves behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

_DAEMONS = frozenset({"munged", "slurmctld", "slurmscriptd", "slurmd", "slurmstepd", "slurmdbd", "mariadbd", "mysqld"})
_NODE = b"SLURMD_NODENAME="


@dataclass(frozen=True)
class Process:
    """One process; ``started`` is in clock ticks since boot (field 22 of ``/proc/PID/stat``)."""

    pid: int
    started: int


@dataclass(frozen=True)
class _Seen:
    process: Process
    parent: int
    name: str


def identify(pid: int) -> Process | None:
    """Return the living process of this id, None when there is none (a zombie is dead)."""
    seen = _look(pid)
    return None if seen is None else seen.process


def alive(process: Process) -> bool:
    """Tell whether this very process lives, and not another one under its id."""
    return identify(process.pid) == process


def belonging(folder: Path, node: str | None = None) -> dict[Process, str]:
    """Return all processes of the cluster in a folder, or of one of its nodes, with their names.

    These are its daemons, told by their program and by a working folder or environment that points
    into the folder; all that descend from one of its ``slurmd`` or ``slurmstepd``; and tasks that lost
    their ``slurmstepd``, told by the environment that Slurm gave them.
    """
    everything = {seen.process.pid: seen for seen in _all()}
    found = {pid: seen for pid, seen in everything.items() if _is_ours(seen, folder, node)}
    children: dict[int, list[_Seen]] = {}
    for seen in everything.values():
        children.setdefault(seen.parent, []).append(seen)
    todo = [pid for pid, seen in found.items()]
    while todo:
        for seen in children.get(todo.pop(), []):
            if seen.process.pid not in found:
                found[seen.process.pid] = seen
                todo.append(seen.process.pid)
    return {seen.process: seen.name for seen in found.values() if seen.process.pid != os.getpid()}


def is_daemon(name: str) -> bool:
    """Tell whether a process of this name is a part of Slurm, and not of a job."""
    return name in _DAEMONS


def send(process: Process, number: int) -> None:
    """Signal this process; quiet when it has ended."""
    if alive(process):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)


def wait_gone(processes: Iterable[Process], seconds: float) -> list[Process]:
    """Wait until all have ended; returns those that still live after ``seconds``."""
    left = list(processes)
    deadline = time.monotonic() + seconds
    while True:
        left = [each for each in left if _still_there(each)]
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(0.02)


def end(folder: Path, grace: float = 2.0, deadline: float = 15.0) -> list[str]:
    """End all processes of the cluster in a folder; returns what could not be ended.

    Jobs get SIGTERM and ``grace`` seconds to tidy up after themselves, with the daemons that could start
    more stopped before; then whatever is left is killed, until nothing is found any more.
    """
    limit = time.monotonic() + deadline
    known = belonging(folder)
    _signal_named(known, {"slurmctld", "slurmdbd"}, signal.SIGTERM)
    # An srun without its controller outlives SIGTERM for long, and has nothing to tidy up.
    tasks = [each for each, name in known.items() if not is_daemon(name) and name != "srun"]
    for each in tasks:
        send(each, signal.SIGTERM)
    wait_gone(tasks, grace)
    _signal_named(known, _DAEMONS - {"slurmstepd"}, signal.SIGTERM)
    wait_gone([each for each, name in known.items() if is_daemon(name) and name != "slurmstepd"], grace)
    return _kill_all(lambda: belonging(folder), known, limit)


def kill_node(folder: Path, node: str, deadline: float = 15.0) -> list[str]:
    """Kill all processes of one virtual node at once; returns what could not be ended."""
    return _kill_all(lambda: belonging(folder, node), {}, time.monotonic() + deadline)


def _kill_all(look: Callable[[], dict[Process, str]], known: dict[Process, str], limit: float) -> list[str]:
    """Kill until a look finds nothing; what was once known stays so when it lost its parent."""
    while time.monotonic() < limit:
        known |= look()
        left = {each: name for each, name in known.items() if _still_there(each)}
        if not left:
            return []
        for each in left:
            send(each, signal.SIGKILL)
        wait_gone(left, 0.5)
    return [f"{name} (process {each.pid})" for each, name in known.items() if _still_there(each)]


def _signal_named(known: dict[Process, str], names: Iterable[str], number: int) -> None:
    for each, name in known.items():
        if name in names:
            send(each, number)


def _still_there(process: Process) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)
    return alive(process)


def _all() -> list[_Seen]:
    found = (_look(int(each)) for each in os.listdir("/proc") if each.isdigit())
    return [each for each in found if each is not None]


def _look(pid: int) -> _Seen | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    if not fields or fields[0] in "ZX":
        return None
    return _Seen(Process(pid, int(fields[19])), int(fields[1]), name)


def _is_ours(seen: _Seen, folder: Path, node: str | None) -> bool:
    where = Path(f"/proc/{seen.process.pid}")
    try:
        environment = where.joinpath("environ").read_bytes().split(b"\0")
        conf = b"SLURM_CONF=" + os.fsencode(folder / "slurm.conf") in environment
        if not is_daemon(seen.name):
            there = [each[len(_NODE) :] for each in environment if each.startswith(_NODE)]
            return conf and bool(there) and (node is None or there == [os.fsencode(node)])
        cwd = Path(os.readlink(where / "cwd").removesuffix(" (deleted)"))
        if node is not None:
            return cwd == folder / "spool" / node
        return conf or cwd == folder or folder in cwd.parents
    except OSError:
        return False
