"""What an allocation's environment says of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..engines.engine import Allocation, EngineError
from .parse import expand_hosts
from .submit import CPUS_PER_TASK, TASKS_PER_NODE


def job_id(environ: Mapping[str, str]) -> str:
    """Return the id by which users know the job: ``456_7`` for task 7 of an array."""
    if "SLURM_ARRAY_JOB_ID" in environ and "SLURM_ARRAY_TASK_ID" in environ:
        return f"{environ['SLURM_ARRAY_JOB_ID']}_{environ['SLURM_ARRAY_TASK_ID']}"
    return environ["SLURM_JOB_ID"]


def held_at_start(environ: Mapping[str, str], job: str, tasks_per_node: int | None = None) -> Allocation:
    """Return the allocation as it was when the job started.

    Raises
    ------
    EngineError
        When the environment names no nodes.
    """
    nodes = expand_hosts(environ.get("SLURM_JOB_NODELIST", environ.get("SLURM_NODELIST", "")))
    if not nodes:
        raise EngineError(f"no nodes of job {job} are known: no SLURM_JOB_NODELIST, and squeue is silent")
    end = environ.get("SLURM_JOB_END_TIME", "")
    cpus = environ.get(CPUS_PER_TASK) or environ.get("SLURM_CPUS_PER_TASK", "")
    return Allocation(
        job=job,
        nodes=batch_host_first(nodes, environ.get("SLURMD_NODENAME", "")),
        tasks_per_node=tasks_per_node or asked_tasks_per_node(environ, len(nodes)),
        cpus_per_task=int(cpus) if cpus.isdecimal() else None,
        end=float(end) if end.isdecimal() else None,
    )


def asked_tasks_per_node(environ: Mapping[str, str], nodes: int) -> int:
    """Return ranks a node as srun would start them; numbers and nodes of the environment go stale together."""
    for name in (TASKS_PER_NODE, "SLURM_NTASKS_PER_NODE"):
        if environ.get(name, "").isdecimal():
            return max(1, int(environ[name]))
    total = environ.get("SLURM_NTASKS", "")
    return max(1, -(-int(total) // nodes)) if total.isdecimal() else 1


def batch_host_first(nodes: Sequence[str], batch_host: str) -> tuple[str, ...]:
    """Return the nodes with the one first that the batch script runs on, and that a shrink has to keep."""
    if batch_host not in nodes:
        return tuple(nodes)
    return (batch_host, *(node for node in nodes if node != batch_host))
