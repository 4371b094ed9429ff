"""What a change of size costs, as measured on this run, by size and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from .view import CostSample, RunView

ASSUMED_LAUNCH = 5.0
"""Seconds taken for the start of the application where none was measured."""
ASSUMED_BANDWIDTH = 200e6
"""Bytes a second taken for saving and loading where none was measured."""
LAST = 5
"""How many of the newest measurements count: file systems change their mood."""


@dataclass(frozen=True)
class Cost:
    """Seconds without computing. ``lost`` is work to be done again, ``error`` half of a 90 % interval of all."""

    save: float
    launch: float
    load: float
    lost: float
    error: float
    measured: bool

    @property
    def total(self) -> float:
        return self.save + self.launch + self.load + self.lost


def cost(run: RunView, nodes: int, seconds_per_step: float | None = None) -> Cost:
    """Return what a change from the run's size to ``nodes`` costs.

    Save and load are taken in proportion to the bytes, each from the measurements at the size nearest to the
    one that does it (the old one saves, the new one loads); where there are none, from ``run.costs``, and
    where that says nothing either, they are assumed.
    """
    samples, size = run.resize_costs, run.state_bytes
    save, save_error = _moved(samples, "save", run.nodes, size)
    load, load_error = _moved(samples, "load", nodes, size)
    launch, launch_error = _typical([each.launch for each in _nearest(samples, "launch", nodes) if each.launch])
    moving = size / ASSUMED_BANDWIDTH
    parts = (
        (save, save_error, run.costs.save, moving),
        (launch, launch_error, run.costs.launch, ASSUMED_LAUNCH),
        (load, load_error, run.costs.load, moving),
    )
    values, error, measured = [], 0.0, True
    for modelled, spread, known, assumed in parts:
        value = modelled if modelled is not None else known if known is not None else assumed
        measured = measured and (modelled is not None or known is not None)
        error += spread if modelled is not None else 0.1 * value if known is not None else 0.5 * value
        values.append(value)
    return Cost(values[0], values[1], values[2], run.lost_steps * (seconds_per_step or 0.0), error, measured)


def _nearest(samples: Sequence[CostSample], part: str, nodes: int) -> list[CostSample]:
    known = [each for each in samples if getattr(each, part) is not None]
    if not known:
        return []
    distance = min(abs(each.nodes - nodes) for each in known)
    return [each for each in known if abs(each.nodes - nodes) == distance][-LAST:]


def _moved(samples: Sequence[CostSample], part: str, nodes: int, size: int) -> tuple[float | None, float]:
    found = []
    for each in _nearest(samples, part, nodes):
        seconds = float(getattr(each, part))
        found.append(seconds * size / each.bytes if each.bytes > 0 and size > each.bytes else seconds)
    return _typical(found)


def _typical(found: Sequence[float]) -> tuple[float | None, float]:
    if not found:
        return None, 0.0
    middle = median(found)
    spread = median(abs(each - middle) for each in found) if len(found) > 2 else 0.25 * middle
    return middle, 1.4826 * 1.645 * spread if len(found) > 2 else spread
