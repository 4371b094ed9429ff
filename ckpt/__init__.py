"""Checkpoints of a parallel program: saved on N processes, loaded on any other number.

Knows MPI and HDF5, nothing of schedulers; usable alone, and without MPI by a single process.
"""

from __future__ import annotations

from .box import Box
from .commit import Writer
from .cyclic import BlockCyclic
from .describe import State
from .errors import (
    CheckpointError,
    Damaged,
    Fenced,
    Mismatch,
    NotDrained,
    StorageError,
    UnknownVersion,
    Unsupported,
)
from .groups import AnyItem, ParticlesItem, PerRankItem, RaggedItem, StreamItem
from .indices import Indices
from .interval import Automatic, EverySeconds, EverySteps, Interval, Moment, daly, young
from .irregular import Boxes, Counts
from .items import ArrayItem, ArraySpec, CheckpointInfo, RngItem, Saved, ValueItem
from .layout import Block, Layout, Replicated
from .levels import Level
from .load import Loaded, describe_difference
from .reader import CheckpointFile, Problem, open
from .regroup import ParticlesPart, RaggedPart
from .retention import KeepBest, KeepEverySeconds, KeepEverySteps, KeepLast, Retention
from .store import Store

__all__ = [
    "AnyItem",
    "ArrayItem",
    "ArraySpec",
    "Automatic",
    "Block",
    "BlockCyclic",
    "Box",
    "Boxes",
    "CheckpointError",
    "CheckpointFile",
    "CheckpointInfo",
    "Counts",
    "Damaged",
    "EverySeconds",
    "EverySteps",
    "Fenced",
    "Indices",
    "Interval",
    "KeepBest",
    "KeepEverySeconds",
    "KeepEverySteps",
    "KeepLast",
    "Layout",
    "Level",
    "Loaded",
    "Mismatch",
    "Moment",
    "NotDrained",
    "ParticlesItem",
    "ParticlesPart",
    "PerRankItem",
    "Problem",
    "RaggedItem",
    "RaggedPart",
    "Replicated",
    "Retention",
    "RngItem",
    "Saved",
    "State",
    "StorageError",
    "Store",
    "StreamItem",
    "UnknownVersion",
    "Unsupported",
    "ValueItem",
    "Writer",
    "daly",
    "describe_difference",
    "open",
    "young",
]
