"""Environments without what a scheduler or an MPI starter left in them."""

from __future__ import annotations

from collections.abc import Mapping

from ..engines.engine import Allocation
from .parse import counts, short_hosts

_PREFIXES = ("SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "SALLOC_", "PMIX_", "PMI_", "PMI2_", "OMPI_", "PRTE_", "HYDRA_")
# Where the controller is, and which one; and a user's own settings of Open MPI.
_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
_SETTINGS = ("OMPI_MCA_", "PMIX_MCA_", "PRTE_MCA_")
# Settings that mpirun itself hands to its ranks, not a user to mpirun.
_HANDED = ("OMPI_MCA_orte_", "OMPI_MCA_ess", "OMPI_MCA_pmix", "OMPI_MCA_shmem_RUNTIME", "OMPI_MCA_initial_wdir")


def without_scheduler(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which nothing is left of a Slurm job or of an MPI start around this process.

    A job or an mpirun started with such leftovers takes them for its own: sizes, bindings, the id of an array task.
    """
    in_rank = "OMPI_COMM_WORLD_RANK" in environ
    return {key: value for key, value in environ.items() if _stays(key, in_rank)}


def _stays(key: str, in_rank: bool) -> bool:
    if key in _KEPT:
        return True
    if key.startswith(_SETTINGS):
        return not (in_rank and key.startswith(_HANDED))
    return not key.startswith(_PREFIXES)


def step_environment(environ: Mapping[str, str], allocation: Allocation, *, by_srun: bool) -> dict[str, str]:
    """Return a job's environment for starting ranks, with the variables of its size as they are now.

    Slurm doesn't change the environment of what runs when a job shrinks, and its own resize script takes
    SLURM_TASKS_PER_NODE away, without which mpirun doesn't start.
    """
    nodes, tasks = len(allocation.nodes), allocation.tasks_per_node
    cpus = counts(environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
    hosts = short_hosts(allocation.nodes)
    each = min(cpus) if cpus else tasks * (allocation.cpus_per_task or 1)
    fresh = {
        "SLURM_JOB_NODELIST": hosts,
        "SLURM_NODELIST": hosts,
        "SLURM_JOB_NUM_NODES": str(nodes),
        "SLURM_NNODES": str(nodes),
        "SLURM_NTASKS": str(nodes * tasks),
        "SLURM_NPROCS": str(nodes * tasks),
        "SLURM_TASKS_PER_NODE": f"{tasks}(x{nodes})" if nodes > 1 else str(tasks),
        "SLURM_JOB_CPUS_PER_NODE": f"{each}(x{nodes})" if nodes > 1 else str(each),
    }
    if allocation.cpus_per_task:
        # srun of 22.05 to 23.02 takes its CPUs a task from the second alone.
        cpus_per_task = str(allocation.cpus_per_task)
        fresh |= {"SLURM_CPUS_PER_TASK": cpus_per_task, "SRUN_CPUS_PER_TASK": cpus_per_task}
    # A step that can't be cleared away, since a node of it was lost, or one around this process (srun --pty), would
    # keep srun waiting for its CPUs without end.
    fresh["SLURM_OVERLAP"] = "1"
    if by_srun:
        fresh["SLURM_NTASKS_PER_NODE"] = str(tasks)
    # mpirun starts one daemon a node by srun, which would take the number of tasks a node for its own.
    stale = {"SLURM_EXPORT_ENV", "SLURM_NTASKS_PER_NODE"}
    # Where a job was submitted with --export=NONE, srun would start ranks without an environment.
    return {**{key: value for key, value in environ.items() if key not in stale}, **fresh}
