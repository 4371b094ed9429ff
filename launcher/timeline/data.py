"""The timeline of a run, as plain data. Times are unix seconds on the clock of the run directory's file system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...resize.phases.recurring import Stretch
from ..run.history import GenerationRecord

Array = NDArray[np.float64]
Kind = Literal["compute", "lost", "save", "launch", "load", "leave", "handover", "between"]

KINDS: dict[Kind, str] = {
    "compute": "computing",
    "lost": "computed in vain, done again after a crash",
    "save": "saving checkpoints",
    "launch": "starting ranks",
    "load": "loading a checkpoint",
    "leave": "ending ranks",
    "handover": "new nodes waiting for the old ones to save",
    "between": "held between two starts",
}
"""What nodes are held for."""


@dataclass(frozen=True)
class Span:
    """Nodes held for one thing."""

    start: float
    end: float
    nodes: int
    kind: Kind
    generation: int

    @property
    def node_hours(self) -> float:
        return self.nodes * max(0.0, self.end - self.start) / 3600


@dataclass(frozen=True)
class Level:
    """A number of nodes from a time on."""

    time: float
    nodes: int


@dataclass(frozen=True)
class Clock:
    """By how many seconds a clock was ahead of the file system's, and how that was found; None: it could not be."""

    who: str
    ahead: float | None
    how: str


@dataclass(frozen=True)
class Gap:
    """A time from which something is missing."""

    start: float
    end: float
    what: str


@dataclass(frozen=True)
class QueueView:
    """The queue as the launcher saw it at one time."""

    time: float
    waiting: int
    idle: int
    total: int


@dataclass(frozen=True)
class Timeline:
    """One table over time, and what lies on it.

    Attributes
    ----------
    times
        Middle of each row, shape (n,), ``period`` apart.
    columns
        By name, shape (n,) each, NaN where unknown: ``requested`` and ``held`` (nodes), ``used`` (nodes as busy
        processors), ``cpu``, ``gpu``, ``waiting`` (shares), ``memory``, ``memory_held`` (bytes on the fullest node),
        ``read``, ``write``, ``received``, ``sent`` (bytes a second), ``switches``, ``ranks``, ``step``,
        ``seconds_per_step``, ``sampler`` (processors), and the user's own.
    least, most
        Of the columns in which a row is the mean of many samples.
    step_times, step_counts
        When the program was where, exactly where the ledger says so.
    held, requested
        Step functions of nodes.
    computing
        (start, end, nodes, generation) in which a generation computed.
    """

    run: str
    start: float
    end: float
    period: float
    times: Array
    columns: Mapping[str, Array]
    least: Mapping[str, Array]
    most: Mapping[str, Array]
    step_times: Array
    step_counts: Array
    generations: tuple[GenerationRecord, ...]
    spans: tuple[Span, ...]
    held: tuple[Level, ...]
    requested: tuple[Level, ...]
    computing: tuple[tuple[float, float, int, int], ...]
    phases: tuple[Stretch, ...] = ()
    queue: tuple[QueueView, ...] = ()
    clocks: tuple[Clock, ...] = ()
    gaps: tuple[Gap, ...] = ()
    notes: tuple[str, ...] = ()
    facts: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def node_hours(self) -> dict[Kind, float]:
        """Node-hours by what they were held for, all kinds there are."""
        found = dict.fromkeys(KINDS, 0.0)
        for span in self.spans:
            found[span.kind] += span.node_hours
        return found
