"""What a program hands over to be saved, and what it learns of a saved one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..layouts.layout import Layout

Kind = Literal["array", "value", "rng", "ragged", "particles", "per-rank", "stream"]


@dataclass(frozen=True, eq=False)
class ArrayItem:
    """This rank's part of a distributed array.

    Parameters
    ----------
    local
        What this rank holds; of the shape of its box of the layout. It is only read.
    layout
        Which rank holds what; the same on every rank.
    shape
        Global shape.
    """

    local: np.ndarray[Any, Any]
    layout: Layout
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ValueItem:
    """A value that every rank holds alike: numbers, text, bytes, lists, tuples and dicts."""

    value: object


@dataclass(frozen=True, eq=False)
class RngItem:
    """A random generator that every rank holds in the same state."""

    generator: np.random.Generator


@dataclass(frozen=True)
class ArraySpec:
    """What is known of a saved item without its data.

    ``shape``, ``dtype`` and ``layout`` are those of the global array; None for what is no single array.
    """

    name: str
    kind: Kind
    shape: tuple[int, ...] | None = None
    dtype: np.dtype[Any] | None = None
    layout: Layout | None = None


@dataclass(frozen=True)
class Saved:
    """A committed checkpoint: where it is, its step, bytes on disk, and the seconds that the call took.

    ``raw_bytes`` are those that the file would have without compression, ``compress_seconds`` what the rank that took
    longest has spent on that.
    """

    path: Path
    step: int
    bytes: int
    seconds: float
    raw_bytes: int = 0
    compress_seconds: float = 0.0


@dataclass(frozen=True)
class CheckpointInfo:
    """A checkpoint as a listing shows it, judged by its name and size alone.

    ``bad`` says why it was passed over; ``fast`` is whether it is in the fast folder of this node.
    """

    path: Path
    step: int
    generation: int
    bytes: int
    time: float
    bad: str | None = field(default=None)
    fast: bool = False
