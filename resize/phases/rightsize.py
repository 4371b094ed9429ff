"""The size that a phase is best run at, with an interval.

It is the knee of time over size: where time × node-hours, T(n) · n T(n), is least, which is where the ratio of
efficiency to time is greatest. D. L. Eager, J. Zahorjan, E. D. Lazowska 1989, "Speedup versus efficiency in parallel
systems".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..posterior import posterior
from ..samples import Sample

MEMORY_SHARE = 0.9
"""Of a node's memory, the application is to use no more than this."""


@dataclass(frozen=True)
class RightSize:
    """Nodes, with a 90 % interval.

    ``measured`` counts the sizes that it rests on. ``memory_bound`` says that fewer nodes would not hold the data.
    """

    nodes: int
    low: int
    high: int
    measured: int
    memory_bound: bool = False


def right_size(samples: Sequence[Sample], sizes: Sequence[int], least: int = 1) -> RightSize | None:
    """Return the knee among the allowed sizes; None with nothing measured or no size allowed.

    Parameters
    ----------
    samples
        Seconds a step by size, see `dmr.resize.samples.clean`.
    sizes
        Allowed sizes, ascending.
    least
        Nodes below which the data don't fit into memory.
    """
    allowed = [size for size in sizes if size >= least] or list(sizes[-1:])
    if not samples or not allowed:
        return None
    found = posterior(samples)
    nodes = np.array(allowed, dtype=np.float64)
    seconds = found.base[:, None] + found.overhead[:, None] * nodes + 1 / nodes  # up to the scale
    best = np.argmin(nodes * seconds**2, axis=1)
    weight = np.bincount(best, weights=found.weight, minlength=len(allowed))
    cumulated = np.cumsum(weight) / weight.sum()
    low, middle, high = (int(np.searchsorted(cumulated, each)) for each in (0.05, 0.5, 0.95 - 1e-9))
    bound = bool(sizes[0] < least) and allowed[middle] == allowed[0]
    return RightSize(allowed[middle], allowed[low], allowed[min(high, len(allowed) - 1)], len(samples), bound)


def least_for_memory(peaks: Mapping[int, float], per_node: float | None) -> int:
    """Return the fewest nodes whose memory holds the data.

    Parameters
    ----------
    peaks
        Most bytes used on one of the nodes, by size. A node is taken to use A/n + B: a part that is spread over the
        nodes and one that each holds; seen at one size alone, all is taken as spread.
    per_node
        Bytes that a node has; None where unknown.
    """
    if not peaks or not per_node:
        return 1
    sizes = sorted(peaks)
    small, large = sizes[0], sizes[-1]
    spread = peaks[small] * small
    each = 0.0
    if large > small:
        spread = max(0.0, (peaks[small] - peaks[large]) / (1 / small - 1 / large))
        each = max(0.0, peaks[large] - spread / large)
    room = MEMORY_SHARE * per_node - each
    return max(1, math.ceil(spread / room - 1e-9)) if room > 0 else small
