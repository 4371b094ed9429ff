"""A private, real Slurm on this machine, without root: for trials, tests and demonstrations."""

from __future__ import annotations

from .errors import ClusterError, SlurmMissing
from .private import PrivateCluster

__all__ = ["ClusterError", "PrivateCluster", "SlurmMissing"]
