"""What can go wrong with a private cluster."""

from __future__ import annotations


class ClusterError(Exception):
    """The private cluster can't do what was asked; the text says what, where and what to do."""


class SlurmMissing(ClusterError):
    """A program that the cluster is made of is not installed."""
