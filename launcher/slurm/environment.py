"""Environments without what a scheduler or an MPI starter left in them."""

from __future__ import annotations

from collections.abc import Mapping

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
