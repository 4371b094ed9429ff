"""Slurm's own profiles: the files of ``acct_gather_profile/hdf5``, one a node and step, or merged by ``sh5util``.

Groups are ``Steps/<step>/Nodes/<node>/Tasks/<task>`` in a merged file and ``<node>/Tasks/<task>`` in a node's; a task
is a table with ElapsedTime, EpochTime (seconds), CPUUtilization (percent of one processor), RSS (KiB), ReadMB and
WriteMB (MiB since the last row). Seen with 22.05.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .layout import TelemetryError
from .read import Array, NodeSeries


def read_profile(path: Path) -> tuple[NodeSeries, ...]:
    """Return what each node did, its tasks taken together.

    Raises
    ------
    TelemetryError
        When the file can't be read, or holds no task.
    """
    import h5py

    found = []
    try:
        with h5py.File(path, "r") as file:
            steps = [file[f"Steps/{name}/Nodes"] for name in file["Steps"]] if "Steps" in file else [file]
            for step in steps:
                for node in step:
                    tasks = step[node].get("Tasks", {})
                    tables = [tasks[name][()] for name in tasks if isinstance(tasks[name], h5py.Dataset)]
                    if tables:
                        found.append(_node(str(node), tables, path))
    except (OSError, KeyError, ValueError, AttributeError, TypeError) as error:
        raise TelemetryError(f"{path} is no profile of Slurm's: {error}") from None
    if not found:
        raise TelemetryError(f"{path} holds no task: let Slurm record with --profile=task")
    return tuple(found)


def _node(node: str, tables: list[Any], path: Path) -> NodeSeries:
    times = np.unique(np.concatenate([table["EpochTime"] for table in tables])).astype(np.float64)
    period = float(np.median(np.diff(times))) if times.size > 1 else 1.0
    columns: dict[str, Array] = {
        "cpu": _sum(times, tables, "CPUUtilization", 0.01),
        "memory": _sum(times, tables, "RSS", 1024.0),
        "read": _sum(times, tables, "ReadMB", 2.0**20 / period),
        "write": _sum(times, tables, "WriteMB", 2.0**20 / period),
        "ranks": np.full(times.size, float(len(tables))),
    }
    # The first row of a task has no time before it to count from.
    columns["cpu"][0] = np.nan
    return NodeSeries(0, node, times, columns, columns, columns, period, {"source": path.name})


def _sum(times: Array, tables: list[Any], name: str, factor: float) -> Array:
    """Return the sum over the tasks at each time; a task that has no row then counts with its last one."""
    total = np.zeros(times.size)
    for table in tables:
        if name not in (table.dtype.names or ()):
            return np.full(times.size, np.nan)
        place = np.searchsorted(table["EpochTime"], times, side="right") - 1
        total += np.where(place >= 0, table[name][np.maximum(place, 0)].astype(np.float64) * factor, 0.0)
    return total
