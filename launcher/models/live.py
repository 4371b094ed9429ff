"""The signals of a run while it goes on, from the ends of the files that its samplers write."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..telemetry.layout import Header, TelemetryError, read_header
from ..timeline.signals import sample_of

PERIOD = 1.0
"""Seconds between two looks."""
LOOK_AROUND = 5.0
"""Seconds between two looks for files of nodes that have none yet."""
MOST_NODES = 16
"""Nodes that are watched; of more, some all over the allocation."""
MOST_RECORDS = 60
"""Records of a node that are read at a time; what is older is passed over."""


@dataclass
class _Tail:
    """One node's file, read up to ``place`` bytes."""

    path: Path
    header: Header
    place: int

    def new(self) -> list[tuple[float, dict[str, float]]]:
        """Return the records that were not read yet: time, and values by column."""
        size = self.header.size
        with open(self.path, "rb") as stream:
            there = (os.fstat(stream.fileno()).st_size - self.place) // size
            if there > MOST_RECORDS:
                self.place += (there - MOST_RECORDS) * size
            stream.seek(self.place)
            data = stream.read(min(there, MOST_RECORDS) * size)
        data = data[: len(data) // size * size]
        self.place += len(data)
        ahead = float((self.header.facts or {}).get("clock_ahead") or 0.0)
        return [
            (time - ahead, dict(zip(self.header.fields, values, strict=True)))
            for time, *values in struct.iter_unpack("<" + self.header.types, data)
        ]


class LiveSignals:
    """The signals of one generation.

    Parameters
    ----------
    folder
        ``telemetry/`` of the run.
    generation, nodes
        Whose files, and how many nodes there are.
    """

    def __init__(self, folder: Path, generation: int, nodes: int) -> None:
        self._folder, self._generation, self._nodes = folder, generation, nodes
        self._tails: dict[Path, _Tail] = {}
        self._looked = self._search_at = 0.0

    def new(self, now: float) -> list[tuple[float, Mapping[str, float]]]:
        """Return the samples since the last call, time and signals; empty where it is not time for a look yet."""
        if 0 <= now - self._looked < PERIOD:
            return []
        self._looked = now
        if len(self._tails) < min(self._nodes, MOST_NODES) and now >= self._search_at:
            self._search()
            self._search_at = now + (LOOK_AROUND if self._tails else PERIOD)
        rows = []
        for path, tail in list(self._tails.items()):
            try:
                rows.append(tail.new())
            except OSError:
                del self._tails[path]
        found: list[tuple[float, Mapping[str, float]]] = []
        for back in range(max(map(len, rows), default=0), 0, -1):
            those = [each[-back] for each in rows if len(each) >= back]
            sample = sample_of([row for _, row in those], own_network=self._own_network)
            if sample:
                found.append((sum(time for time, _ in those) / len(those), sample))
        return found

    @property
    def _own_network(self) -> bool:
        hosts = {(each.header.facts or {}).get("host", each.header.node) for each in self._tails.values()}
        return len(hosts) == len(self._tails) > 1

    def _search(self) -> None:
        with contextlib.suppress(OSError):
            paths = [
                path
                for path in sorted(self._folder.glob(f"{self._generation:04d}.*.tele"))
                if path.name.count(".") == 2 and path not in self._tails
            ]
            apart = max(1, -(-len(paths) // MOST_NODES))
            for path in paths[::apart]:
                with contextlib.suppress(TelemetryError):
                    header, start = read_header(path)
                    self._tails[path] = _Tail(path, header, start)
