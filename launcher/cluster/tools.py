"""The installed programs that a private cluster is made of."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .errors import ClusterError, SlurmMissing

_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where daemons are; Debian leaves these out of an ordinary user's PATH."""

_SLURM = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "sinfo", "scontrol", "scancel")
_ACCOUNTING = ("slurmdbd", "sacctmgr", "mariadbd", "mariadb-install-db", "mariadb")
_SLURM_PACKAGES = "slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge"
_ACCOUNTING_PACKAGES = "slurmdbd slurm-wlm-mysql-plugin mariadb-server"


@dataclass(frozen=True)
class Tools:
    """Absolute paths by program name, and Slurm's version as (major, minor)."""

    paths: Mapping[str, str]
    version: tuple[int, int]

    def __getitem__(self, name: str) -> str:
        return self.paths[name]


def search_path(inherited: str | None) -> str:
    """Return a PATH with the folders of daemons added behind what is there."""
    found = [each for each in (inherited or os.defpath).split(os.pathsep) if each]
    return os.pathsep.join(found + [each for each in _SBIN if each not in found])


def find_tools(accounting: bool = False) -> Tools:
    """Find all programs.

    Raises
    ------
    SlurmMissing
        Names the missing programs and Debian's packages for them.
    """
    path = search_path(os.environ.get("PATH"))
    paths = _find(_SLURM, path, _SLURM_PACKAGES, "Slurm")
    if accounting:
        paths |= _find(_ACCOUNTING, path, _ACCOUNTING_PACKAGES, "Slurm's accounting")
    return Tools(paths, _version(paths["slurmctld"]))


def missing(accounting: bool = False) -> str | None:
    """Return why a private cluster can't be had here, None when all is installed."""
    try:
        find_tools(accounting)
    except ClusterError as error:
        return str(error)
    return None


def _find(names: Iterable[str], path: str, packages: str, what: str) -> dict[str, str]:
    found = {name: shutil.which(name, path=path) for name in names}
    absent = [name for name, where in found.items() if where is None]
    if absent:
        raise SlurmMissing(
            f"{what} is not installed here: no {', '.join(absent)} in {path}; "
            f"on Debian and its kin: apt-get install {packages}"
        )
    return {name: where for name, where in found.items() if where is not None}


def _version(slurmctld: str) -> tuple[int, int]:
    try:
        said = subprocess.run([slurmctld, "-V"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterError(f"can't ask {slurmctld} for its version: {error}") from None
    found = re.search(r"(\d+)\.(\d+)", said.stdout)
    if found is None:
        raise ClusterError(f"'{slurmctld} -V' names no version: {(said.stdout + said.stderr).strip()!r}")
    return int(found[1]), int(found[2])
