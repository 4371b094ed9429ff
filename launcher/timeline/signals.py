"""What phases are told by: signals of what the application does, per node; the same afterwards and while it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ...resize.phases.signals import Signals
from .data import Array, Timeline

RATE_SCALES = {"read": 65536.0, "write": 65536.0, "received": 65536.0, "sent": 65536.0, "switches": 10.0}
"""A rate is looked at in its logarithm, log10(1 + x/scale), so that small noise is nothing."""
FLOORS = {
    "cpu": 0.03, "busiest": 0.06, "gpu": 0.03, "waiting": 0.03, **dict.fromkeys(RATE_SCALES, 0.3),
    "seconds_per_step": 0.06,
}  # fmt: skip
"""Changes of a signal that are too small to matter: shares, processors, and decades."""
NETWORK = ("received", "sent")
"""What crosses the network is counted for the whole machine: where nodes share one, it is everybody's."""
LARGEST_SHARE = 1.5


def signals_of(timeline: Timeline, declared: bool) -> Signals:
    """Return the signals of a run, without the speed where the program ``declared`` phases itself."""
    values: dict[str, Array] = {}
    columns, nodes = timeline.columns, np.maximum(timeline.columns["held"], 1)
    sampled, hosts = (int(timeline.facts.get(f"{each}_sampled", 0)) for each in ("nodes", "hosts"))
    own_network = sampled == hosts != 1
    for name in ("cpu", "busiest", "gpu", "waiting", "memory"):
        if name in columns:
            values[name] = columns[name]
    for name, scale in RATE_SCALES.items():
        if name in columns and (name not in NETWORK or own_network):
            values[name] = np.log10(1 + np.maximum(columns[name], 0) / nodes / scale)
    if "seconds_per_step" in columns and not declared:
        with np.errstate(divide="ignore", invalid="ignore"):
            values["seconds_per_step"] = np.log10(columns["seconds_per_step"])
        values["seconds_per_step"][~np.isfinite(values["seconds_per_step"])] = np.nan
    return Signals(timeline.times, values, {name: FLOORS[name] for name in values if name in FLOORS})


def sample_of(rows: Sequence[Mapping[str, float]], *, own_network: bool) -> dict[str, float]:
    """Return the signals at one time from a row of each node's sampler, by column; what is unknown is left out.

    Parameters
    ----------
    own_network
        Whether each node is a machine of its own, and there are several.
    """
    found: dict[str, float] = {}
    amounts = (("cpu", _known(rows, "cpus")), ("gpu", _known(rows, "gpus")), ("waiting", [1.0] * len(rows)))
    for name, held in amounts:
        pairs = [
            (row[name], each) for row, each in zip(rows, held, strict=False) if math.isfinite(row.get(name, math.nan))
        ]
        total = math.fsum(each for _, each in pairs)
        if total > 0:
            found[name] = min(LARGEST_SHARE, math.fsum(value for value, _ in pairs) / total)
    for name in ("busiest", "memory", "seconds_per_step"):
        values = [each for each in _known(rows, name) if math.isfinite(each)]
        if values:
            found[name] = max(values)
    for name, scale in RATE_SCALES.items():
        values = [max(0.0, each) for each in _known(rows, name) if math.isfinite(each)]
        if values and (name not in NETWORK or own_network):
            found[name] = math.log10(1 + math.fsum(values) / len(values) / scale)
    if found.get("seconds_per_step", 0.0) > 0:
        found["seconds_per_step"] = math.log10(found["seconds_per_step"])
    else:
        found.pop("seconds_per_step", None)
    return found


def _known(rows: Sequence[Mapping[str, float]], name: str) -> list[float]:
    return [each.get(name, math.nan) for each in rows]
