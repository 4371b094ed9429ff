"""The compact file that a sampler writes: survives a crash, is read without parsing. Standard library only.

A file is a header, one line of JSON padded to a multiple of 4096 bytes, and records of fixed size appended one by one,
little-endian: the time as a double, then a value a column, a float or, for columns that count, a double. A record that
a crash cut short is at the end and is passed over.

Beside the file with a record a second lie coarser ones, each of `FACTOR` records of the one below: of every column the
least, the mean and the greatest value, unknown ones left out. So a month is drawn without reading every second.

===========================  =============================================================
``0003.n12.tele``            generation 3 on node n12, a record a second
``0003.n12.16.tele``         a record from 16 of them; ``.256.tele``, ``.4096.tele`` likewise
``0003.n12.ranks.tele``      a record a rank, at longer intervals where there are many
===========================  =============================================================
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMAT = 1
BLOCK = 4096
FACTOR = 16
LEVELS = (1, FACTOR, FACTOR**2, FACTOR**3)
"""Records of the finest file that go into one of each file."""
COUNTERS = frozenset({"step", "rank", "pid"})
"""Columns in which every digit matters."""
SYNC_SECONDS = 60.0


class TelemetryError(Exception):
    """A telemetry file can't be read; the message says which and why."""


@dataclass(frozen=True)
class Header:
    """What a telemetry file is about.

    ``level`` is how many samples are in a record; ``facts`` are all else that the sampler had to say of the node.
    """

    generation: int
    node: str
    columns: tuple[str, ...]
    level: int = 1
    ranks: bool = False
    facts: Mapping[str, Any] | None = None

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the values of a record, the time apart."""
        if self.level == 1:
            return self.columns
        return tuple(f"{name}.{what}" for name in self.columns for what in ("least", "mean", "most"))

    @property
    def types(self) -> str:
        """A letter of `struct` for the time and each value."""
        return "d" + "".join("d" if each.split(".")[0] in COUNTERS else "f" for each in self.fields)

    @property
    def size(self) -> int:
        """Bytes of a record."""
        return struct.calcsize("<" + self.types)

    def pack(self) -> bytes:
        text = json.dumps(
            {
                "format": FORMAT, "generation": self.generation, "node": self.node, "columns": list(self.columns),
                "level": self.level, "ranks": self.ranks, **(self.facts or {}),
            }
        ).encode()  # fmt: skip
        length = -(-(len(text) + 1) // BLOCK) * BLOCK
        return text.ljust(length - 1) + b"\n"


def read_header(path: Path) -> tuple[Header, int]:
    """Return the header of a file and its length in bytes.

    Raises
    ------
    TelemetryError
    """
    try:
        with open(path, "rb") as stream:
            line = stream.readline(1 << 20)
        found = json.loads(line)
        if found["format"] != FORMAT:
            raise TelemetryError(f"{path} is of format {found['format']!r}; this version reads format {FORMAT}")
        known = ("format", "generation", "node", "columns", "level", "ranks")
        facts = {key: value for key, value in found.items() if key not in known}
        header = Header(
            int(found["generation"]), str(found["node"]), tuple(map(str, found["columns"])), int(found["level"]),
            bool(found["ranks"]), facts,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TelemetryError(f"{path} is no telemetry file: {error}") from None
    return header, len(line)


def file_name(generation: int, node: str, level: int = 1, *, ranks: bool = False) -> str:
    """Return the name of a file below ``telemetry/``."""
    part = ".ranks" if ranks else f".{level}" if level > 1 else ""
    return f"{generation:04d}.{safe(node)}{part}.tele"


def safe(node: str) -> str:
    """Return a node's name as a part of a file's."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", node)[:100] or "node"


class Appender:
    """Appends records to a file that did not exist.

    Raises
    ------
    FileExistsError
        When it does: somebody else writes it.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.header = header
        self._struct = struct.Struct("<" + header.types)
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._start = len(header.pack())
        self._synced = 0.0
        os.write(self._handle, header.pack())

    def append(self, rows: Sequence[tuple[float, Sequence[float]]]) -> None:
        """Append records; one that could not be written whole is taken back, so that those after it are in place."""
        data = b"".join(self._struct.pack(time, *values) for time, values in rows)
        try:
            written = os.write(self._handle, data)
        except OSError:
            written = 0
        if written != len(data):
            with contextlib.suppress(OSError):
                size = os.fstat(self._handle).st_size - self._start
                os.ftruncate(self._handle, self._start + size // self.header.size * self.header.size)

    def sync(self, now: float) -> None:
        """Ask the file system to keep what was written, at most once in `SYNC_SECONDS`."""
        if now - self._synced >= SYNC_SECONDS:
            self._synced = now
            with contextlib.suppress(OSError):
                os.fdatasync(self._handle)

    def mtime(self) -> float:
        """Return when the file was last written, on the clock of the file system."""
        return os.fstat(self._handle).st_mtime

    def close(self) -> None:
        os.close(self._handle)


class Pyramid:
    """Writes a series and its coarser ones.

    Parameters
    ----------
    folder
        ``telemetry/`` of a run.
    header
        Of the finest file.
    """

    def __init__(self, folder: Path, header: Header) -> None:
        self._folder, self._header = folder, header
        self._files: list[Appender | None] = [None] * len(LEVELS)
        self._files[0] = Appender(folder / file_name(header.generation, header.node), header)
        count = len(header.columns)
        self._sums = [_Sum(count) for _ in LEVELS]

    @property
    def finest(self) -> Appender:
        assert self._files[0] is not None
        return self._files[0]

    def append(self, time: float, values: Sequence[float]) -> None:
        """Append a sample, and a record to each coarser file that is due one."""
        self.finest.append([(time, values)])
        self.finest.sync(time)
        row: Sequence[tuple[float, float, float]] = [(value, value, value) for value in values]
        for place in range(1, len(LEVELS)):
            total = self._sums[place]
            total.add(time, row)
            if total.count < FACTOR:
                return
            time, row = total.result()
            self._sums[place] = _Sum(len(values))
            self._file(place).append([(time, [value for each in row for value in each])])

    def _file(self, place: int) -> Appender:
        found = self._files[place]
        if found is None:
            header = Header(
                self._header.generation, self._header.node, self._header.columns, LEVELS[place], False,
                self._header.facts,
            )  # fmt: skip
            path = self._folder / file_name(header.generation, header.node, header.level)
            found = self._files[place] = Appender(path, header)
        return found

    def close(self) -> None:
        for each in self._files:
            if each is not None:
                each.close()


class _Sum:
    """Least, mean and greatest of each column over some records, unknown values left out."""

    def __init__(self, columns: int) -> None:
        self.count = 0
        self._time = 0.0
        self._least = [math.inf] * columns
        self._most = [-math.inf] * columns
        self._sum = [0.0] * columns
        self._known = [0] * columns

    def add(self, time: float, row: Sequence[tuple[float, float, float]]) -> None:
        self.count += 1
        self._time = time
        for place, (least, mean, most) in enumerate(row):
            if mean == mean:
                self._sum[place] += mean
                self._known[place] += 1
                self._least[place] = min(self._least[place], least)
                self._most[place] = max(self._most[place], most)

    def result(self) -> tuple[float, list[tuple[float, float, float]]]:
        nothing = (math.nan, math.nan, math.nan)
        row = [
            (least, total / known, most) if known else nothing
            for least, total, known, most in zip(self._least, self._sum, self._known, self._most, strict=True)
        ]
        return self._time, row
