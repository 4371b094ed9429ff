"""What each phase used of what it held, at each size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..speed import Speed
from ..view import Rate
from .recurring import Stretch
from .rightsize import RightSize, least_for_memory, right_size
from .signals import Array


@dataclass(frozen=True)
class Usage:
    """What was measured over time, each of shape (n,); NaN where unknown. None: not measured at all.

    ``cpu`` and ``gpu`` are shares of the processors held; ``memory`` is the most bytes used on any node,
    ``memory_held`` what a node has. ``step_counts`` are the program's steps up to each of ``step_times``, both of a
    shape of their own, (m,).
    """

    times: Array
    step_times: Array | None = None
    step_counts: Array | None = None
    cpu: Array | None = None
    memory: Array | None = None
    memory_held: Array | None = None
    gpu: Array | None = None
    waiting: Array | None = None


@dataclass(frozen=True)
class PhaseUse:
    """A phase at one size. Seconds, bytes and shares of 1; None where not measured.

    ``efficiency`` is that of the speed relative to ``base`` nodes, the smallest size measured in this phase.
    ``idle_node_hours`` are node-hours held but not used: those of the scarcest resource's unused share.
    ``over_node_hours`` are those beyond what the same steps take at the right size, as measured or as the speeds at
    other sizes have it; 0 where that size is not smaller.
    """

    phase: str
    nodes: int
    occurrences: int
    seconds: float
    node_hours: float
    steps: float | None = None
    seconds_per_step: float | None = None
    efficiency: float | None = None
    base: int | None = None
    cpu: float | None = None
    gpu: float | None = None
    waiting: float | None = None
    memory_peak: float | None = None
    memory_held: float | None = None
    idle_node_hours: float | None = None
    over_node_hours: float | None = None

    @property
    def memory_headroom(self) -> float | None:
        """Share of a node's memory that was never used."""
        if self.memory_peak is None or not self.memory_held:
            return None
        return 1 - self.memory_peak / self.memory_held


@dataclass(frozen=True)
class PhaseSummary:
    """A phase over all sizes that it ran at, ascending, and the size that it should have."""

    phase: str
    uses: tuple[PhaseUse, ...]
    right: RightSize | None

    @property
    def seconds(self) -> float:
        return sum(each.seconds for each in self.uses)

    @property
    def node_hours(self) -> float:
        return sum(each.node_hours for each in self.uses)


def summarise(
    stretches: Sequence[Stretch], usage: Usage, sizes: Sequence[int], earlier: Iterable[Rate] = ()
) -> tuple[PhaseSummary, ...]:
    """Return one summary a phase, by first appearance.

    Parameters
    ----------
    sizes
        Allowed sizes, ascending.
    earlier
        Speeds of earlier runs, by phase, for the right size.
    """
    order = dict.fromkeys(each.label for each in stretches)
    return tuple(
        _summary(phase, [each for each in stretches if each.label == phase], usage, sizes, tuple(earlier))
        for phase in order
    )


def rates(stretches: Sequence[Stretch], usage: Usage) -> tuple[Rate, ...]:
    """Return the speed in each stretch in which steps were counted, in order of time."""
    found = []
    for each in stretches:
        steps = counted_steps(usage, each.start, each.end)
        if steps:
            found.append(Rate(each.nodes, each.seconds / steps, max(1, round(steps)), each.label))
    return tuple(found)


def _summary(
    phase: str, stretches: Sequence[Stretch], usage: Usage, sizes: Sequence[int], earlier: tuple[Rate, ...]
) -> PhaseSummary:
    uses = {
        size: _use(phase, size, [each for each in stretches if each.nodes == size], usage)
        for size in sorted({each.nodes for each in stretches})
    }
    speed = Speed(rates(stretches, usage), phase, [each for each in earlier if each.phase == phase])
    peaks = {each.nodes: each.memory_peak for each in uses.values() if each.memory_peak is not None}
    least = least_for_memory(peaks, min((each.memory_held for each in uses.values() if each.memory_held), default=None))
    right = right_size(speed.cleaned.samples, sizes, least) if sizes else None
    seconds = {each.nodes: each.seconds_per_step for each in uses.values() if each.seconds_per_step is not None}
    base = min(seconds, default=None)
    best = speed.at(right.nodes) if right is not None else None
    seconds_at_best = seconds.get(right.nodes, best.value) if right is not None and best is not None else None
    compared = tuple(_compared(each, seconds, base, right, seconds_at_best) for each in uses.values())
    return PhaseSummary(phase, compared, right)


def _use(phase: str, nodes: int, stretches: Sequence[Stretch], usage: Usage) -> PhaseUse:
    seconds = sum(each.seconds for each in stretches)
    counted = [counted_steps(usage, each.start, each.end) for each in stretches]
    known = [(each.seconds, steps) for each, steps in zip(stretches, counted, strict=True) if steps is not None]
    steps = sum(each for _, each in known) if known else None
    per_step = sum(each for each, _ in known) / steps if steps else None
    inside = np.zeros(usage.times.size, dtype=bool)
    for each in stretches:
        inside |= (usage.times >= each.start) & (usage.times < each.end)
    cpu, gpu, waiting = (_mean(each, inside) for each in (usage.cpu, usage.gpu, usage.waiting))
    peak, held = _most(usage.memory, inside), _most(usage.memory_held, inside)
    node_hours = nodes * seconds / 3600
    shares = [each for each in (cpu, gpu, peak / held if peak is not None and held else None) if each is not None]
    idle = node_hours * max(0.0, 1 - max(shares)) if shares else None
    return PhaseUse(
        phase, nodes, len(stretches), seconds, node_hours, steps, per_step, None, None, cpu, gpu, waiting, peak, held,
        idle,
    )  # fmt: skip


def _compared(
    use: PhaseUse, seconds: Mapping[int, float], base: int | None, right: RightSize | None, at_best: float | None
) -> PhaseUse:
    if use.seconds_per_step is None or base is None:
        return use
    efficiency = base * seconds[base] / (use.nodes * use.seconds_per_step) if len(seconds) > 1 else None
    over = None
    if right is not None and right.nodes >= use.nodes:
        over = 0.0
    elif right is not None and at_best is not None and use.steps is not None:
        over = max(0.0, use.node_hours - right.nodes * at_best * use.steps / 3600)
    return replace(use, efficiency=efficiency, base=base if efficiency is not None else None, over_node_hours=over)


def counted_steps(usage: Usage, start: float, end: float) -> float | None:
    """Return the steps done between two times, in between by interpolation; None where they were not counted."""
    times, counts = usage.step_times, usage.step_counts
    if times is None or counts is None or times.size < 2:
        return None
    first, last = max(start, float(times[0])), min(end, float(times[-1]))
    if last <= first or (last - first) < 0.5 * (end - start):
        return None
    done = np.interp([first, last], times, counts)
    return float(done[1] - done[0]) * (end - start) / (last - first)


def _mean(values: Array | None, inside: NDArray[np.bool_]) -> float | None:
    if values is None:
        return None
    known = values[inside & np.isfinite(values)]
    return float(known.mean()) if known.size else None


def _most(values: Array | None, inside: NDArray[np.bool_]) -> float | None:
    if values is None:
        return None
    known = values[inside & np.isfinite(values)]
    return float(known.max()) if known.size else None
