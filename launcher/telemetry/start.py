"""How a sampler comes to each node: a shell between MPI's starter and the program, which becomes the program.

One rank a node (by the starter's own variables; where they don't tell, every rank, of which the first to create the
file stays) leaves a process behind that nobody waits for. That costs a rank a millisecond or two before its program
starts; the sampler itself begins a second later, when MPI is up, and not at all beside a program that is over by then.
It works for any program and any starter, asks nothing of the scheduler, and what it leaves ends with the ranks.
"""

from __future__ import annotations

import importlib.util
import sys

from ...resize.words import how_to_install

_SCRIPT = (
    'case "${OMPI_COMM_WORLD_LOCAL_RANK-${MPI_LOCALRANKID-${SLURM_LOCALID-0}}}" in '
    '0) ((sleep "${DMR_TELEMETRY_DELAY-1}"; kill -0 $$ && exec "$0" -P -m dmr.launcher.telemetry.sampler $$) '
    "</dev/null >/dev/null 2>&1 &) ;; esac; "
    'exec "$@"'
)


def prefix() -> tuple[str, ...]:
    """Return what goes before the program's command line; empty where nothing can be sampled."""
    return ("/bin/sh", "-c", _SCRIPT, sys.executable) if refusal() is None else ()


def refusal() -> str | None:
    """Return why nothing can be sampled here, None when it can."""
    if importlib.util.find_spec("psutil") is None:
        return f"psutil is not installed: {how_to_install('launch')}"
    if not sys.platform.startswith("linux"):
        return "nodes are sampled on Linux alone"
    return None
