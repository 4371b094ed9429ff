"""Checkpoints of a parallel program: saved on N processes, loaded on any other number.

Knows MPI and HDF5, nothing of schedulers; usable alone, and without MPI by a single process.
"""

from __future__ import annotations

from .commit import Writer
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
from .interval import Automatic, EverySeconds, EverySteps, Interval, Moment, daly, young
from .layouts.box import Box
from .layouts.cyclic import BlockCyclic
from .layouts.indices import Indices
from .layouts.irregular import Boxes, Counts
from .layouts.layout import Block, Layout, Replicated
from .load import Loaded, describe_difference
from .reader import CheckpointFile, Problem, open
from .retention import KeepBest, KeepEverySeconds, KeepEverySteps, KeepLast, Retention
from .state.describe import State
from .state.groups import AnyItem, ParticlesItem, PerRankItem, RaggedItem, StreamItem
from .state.items import ArrayItem, ArraySpec, CheckpointInfo, RngItem, Saved, ValueItem
from .state.regroup import ParticlesPart, RaggedPart
from .store import Store
from .twolevel.levels import Level

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
