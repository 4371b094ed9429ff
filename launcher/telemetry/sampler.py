"""The sampler of one node: a small process beside the ranks, that ends with them.

It is started by `.start`'s prefix, with the environment of one rank, and needs nothing of the program that the rank
becomes. It steps back wherever it could stand in the way: low priority, no tie to a rank's processor, no inherited
file, no error that anybody has to see. Where it can't do its work it ends.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..run.rundir import Generation, Progress, RunDir, RunDirError
from .layout import Appender, Header, Pyramid, file_name
from .node import RANK_COLUMNS, NodeReader

PERIOD = 1.0
PROGRESS = ("step", "seconds_per_step", "state")
STATES = ("starting", "running", "saving", "leaving", "finished", "failed")
TICK = 0.02
MOST_FAILURES = 120
"""Samples in a row that could not be taken, after which it is given up."""
ENV_PERIOD = "DMR_TELEMETRY_PERIOD"


def main(leader: int) -> int:
    """Sample until the ranks of this node have ended."""
    _step_back()
    try:
        generation = Generation.from_environment()
        if generation is None:
            return 1
        reader = NodeReader(leader, os.environ)
        files = Files(generation, reader)
    except FileExistsError:
        return 0  # another rank of this node was first
    except (ImportError, OSError, RunDirError):
        return 1
    try:
        _watch(leader, reader, files)
    finally:
        files.close()
        reader.waits.remove()
    return 0


def node_name(environ: Mapping[str, str] = os.environ) -> str:
    """Return the name of this node, as Slurm has it where it says so."""
    return environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]


def machine_name(environ: Mapping[str, str] = os.environ) -> str:
    """Return what the machine is called that a model of speeds holds for: the cluster, or this host."""
    return environ.get("SLURM_CLUSTER_NAME") or socket.gethostname().split(".")[0]


class Files:
    """The files of this node and generation.

    Raises
    ------
    FileExistsError
        When another sampler of this node has them.
    """

    def __init__(self, generation: Generation, reader: NodeReader) -> None:
        self._run = RunDir(generation.folder)
        self._generation = generation
        self._reader = reader
        self._first = _leads(os.environ)
        node = node_name()
        columns = (*reader.columns, *(PROGRESS if self._first else ()))
        facts: dict[str, Any] = {
            **reader.facts(), "token": generation.token, "machine": machine_name(), "host": socket.gethostname(),
            "nodes": generation.nodes, "period": _period(), "start": time.time(), "first": self._first,
        }  # fmt: skip
        folder = generation.folder / "telemetry"
        facts["clock_ahead"] = _clock_ahead(folder, generation.number, node)
        self._pyramid = Pyramid(folder, Header(generation.number, node, columns, facts=facts))
        self._ranks_path = folder / file_name(generation.number, node, ranks=True)
        self._ranks_header = Header(generation.number, node, RANK_COLUMNS, ranks=True, facts=facts)
        self._ranks: Appender | None = None

    def write(self) -> None:
        """Take a sample and append it."""
        now = time.time()
        values = self._reader.sample()
        if self._first:
            values += self._progress()
        self._pyramid.append(now, values)
        rows = [(now, row) for row in self._reader.rank_rows()]
        if rows:
            if self._ranks is None:
                self._ranks = Appender(self._ranks_path, self._ranks_header)
            self._ranks.append(rows)

    def _progress(self) -> tuple[float, ...]:
        progress: Progress | None = None
        with contextlib.suppress(OSError, TypeError):
            progress = self._run.read_progress()
        if progress is None or progress.token != self._generation.token:
            return (math.nan,) * len(PROGRESS)
        state = STATES.index(progress.state) if progress.state in STATES else math.nan
        # The report may be some seconds old: a step since then is not counted until the next one.
        return (float(progress.step), progress.seconds_per_step or math.nan, float(state))

    def close(self) -> None:
        self._pyramid.close()
        if self._ranks is not None:
            self._ranks.close()


def _watch(leader: int, reader: NodeReader, files: Files) -> None:
    """Sample once a period, and look at once when the leader has gone."""
    try:
        handle: int | None = os.pidfd_open(leader)
    except OSError:
        handle = None
    period, start = _period(), time.monotonic()
    turn = failures = 0
    while failures < MOST_FAILURES:
        try:
            files.write()
            failures = 0
        except Exception:  # a file system that is full, a kernel that does not tell: it is no business of the program's
            failures += 1
        turn = max(turn + 1, math.ceil((time.monotonic() - start) / period))
        wait = max(0.0, start + turn * period - time.monotonic())
        if handle is not None:
            if select.select([handle], [], [], wait)[0]:
                os.close(handle)
                handle = None
        else:
            time.sleep(wait)
        if handle is None and reader.ended():
            return


def _step_back() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(10)
    with contextlib.suppress(OSError):
        # A rank is bound to its processor, and this process to the same until it lets go.
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    os.closerange(3, 4096)  # what MPI's starter talks to the rank by is not for this process
    with contextlib.suppress(OSError):
        os.chdir("/")


def _leads(environ: Mapping[str, str]) -> bool:
    """Whether the rank beside which this process was started is the first of all."""
    for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"):
        if name in environ:
            return environ[name] == "0"
    return True


def _clock_ahead(folder: Path, generation: int, node: str) -> float | None:
    """Return by how many seconds this node's clock is ahead of the file system's, which all nodes share."""
    path = folder / f".clock.{file_name(generation, node)}"
    try:
        before = time.time()
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(handle, b"-")
            os.fsync(handle)
            after = time.time()
            written = os.fstat(handle).st_mtime
        finally:
            os.close(handle)
            os.unlink(path)
    except OSError:
        return None
    # Within the time that the writing took, and a tick of the kernel's coarse clock, there is no difference.
    if before - TICK <= written <= after:
        return 0.0
    return before - written if written < before else after - written


def _period() -> float:
    try:
        return max(0.1, float(os.environ.get(ENV_PERIOD, PERIOD)))
    except ValueError:
        return PERIOD


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
