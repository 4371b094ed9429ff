"""Read a run's telemetry: as fine as is wanted, and no finer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .layout import LEVELS, Header, TelemetryError, file_name, read_header

Array = NDArray[np.float64]


@dataclass(frozen=True)
class NodeSeries:
    """What one node did in one generation.

    ``mean``, ``least`` and ``most`` are by column, shape (n,) each, over the ``period`` seconds that end at each of
    the ``times``; at the finest level the three are the same. ``offset`` was added to the times: what the node's clock
    was behind.
    """

    generation: int
    node: str
    times: Array
    mean: Mapping[str, Array]
    least: Mapping[str, Array]
    most: Mapping[str, Array]
    period: float
    facts: Mapping[str, Any] = field(default_factory=dict)
    offset: float = 0.0


@dataclass(frozen=True)
class RankSeries:
    """What the ranks of one node did: a row a rank and time, shape (n,) for each column."""

    generation: int
    node: str
    times: Array
    columns: Mapping[str, Array]


@dataclass(frozen=True)
class Telemetry:
    """All nodes of all generations; ``unread`` says of each file that could not be used why."""

    nodes: tuple[NodeSeries, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def span(self) -> tuple[float, float] | None:
        """First and last time."""
        ends = [(float(each.times[0]), float(each.times[-1])) for each in self.nodes if each.times.size]
        return (min(a for a, _ in ends), max(b for _, b in ends)) if ends else None


def read_telemetry(
    folder: Path,
    points: int | None = None,
    span: tuple[float, float] | None = None,
    columns: Iterable[str] | None = None,
) -> Telemetry:
    """Read the files below ``telemetry/``.

    Parameters
    ----------
    points
        The coarsest level that still has so many points over the whole span is read; None for the finest.
    span
        First and last time that is wanted, None for all.
    columns
        Those that are wanted, None for all.
    """
    files: list[tuple[Path, Header, int]] = []
    unread = []
    for path in sorted(folder.glob("[0-9]*.tele")):
        if path.name.endswith(".ranks.tele") or _level_of(path) > 1:
            continue
        try:
            files.append((path, *read_header(path)))
        except TelemetryError as error:
            unread.append(str(error))
    level = _level(files, points, span)
    found = []
    for path, header, start in files:
        try:
            found.append(_read_node(path, header, start, level, span, None if columns is None else tuple(columns)))
        except (OSError, ValueError) as error:
            unread.append(f"{path}: {error}")
    return Telemetry(tuple(each for each in found if each.times.size), tuple(unread))


def read_ranks(folder: Path) -> tuple[RankSeries, ...]:
    """Read what the ranks did, all of it."""
    found = []
    for path in sorted(folder.glob("[0-9]*.ranks.tele")):
        try:
            header, start = read_header(path)
        except TelemetryError:
            continue
        table = _table(path, header, start)
        columns = {name: table[name].astype(np.float64) for name in header.columns}
        found.append(RankSeries(header.generation, header.node, table["time"], columns))
    return tuple(found)


def _level_of(path: Path) -> int:
    part = path.name.removesuffix(".tele").rsplit(".", 1)[-1]
    return int(part) if part.isdigit() and int(part) in LEVELS else 1


def _level(files: Sequence[tuple[Path, Header, int]], points: int | None, span: tuple[float, float] | None) -> int:
    if points is None or not files:
        return 1
    if span is None:
        ends = [_ends(*each) for each in files]
        known = [each for each in ends if each is not None]
        if not known:
            return 1
        span = (min(a for a, _ in known), max(b for _, b in known))
    periods = [float((each.facts or {}).get("period", 1.0)) for _, each, _ in files]
    samples = (span[1] - span[0]) / min(periods)
    return max((level for level in LEVELS if samples / level >= points), default=1)


def _ends(path: Path, header: Header, start: int) -> tuple[float, float] | None:
    """Return the times of first and last record."""
    count = (path.stat().st_size - start) // header.size
    if count < 1:
        return None
    with open(path, "rb") as stream:
        stream.seek(start)
        first = np.frombuffer(stream.read(8), "<f8")[0]
        stream.seek(start + (count - 1) * header.size)
        last = np.frombuffer(stream.read(8), "<f8")[0]
    return float(first), float(last)


def _dtype(header: Header) -> np.dtype[np.void]:
    names = ("time", *header.fields)
    types = ["<f8" if letter == "d" else "<f4" for letter in header.types]
    return np.dtype(list(zip(names, types, strict=True)))


def _table(path: Path, header: Header, start: int, skip: int = 0) -> NDArray[np.void]:
    return np.fromfile(path, _dtype(header), offset=start + skip * header.size)


def _read_node(
    path: Path,
    header: Header,
    start: int,
    level: int,
    span: tuple[float, float] | None,
    columns: Sequence[str] | None,
) -> NodeSeries:
    parts: list[tuple[Header, NDArray[np.void]]] = []
    done = 0
    # The newest samples are not in the coarse file yet: they come from the next finer one that has them.
    for wanted in sorted((each for each in LEVELS if each <= level), reverse=True):
        if wanted == 1:
            here, head, begin = path, header, start
        else:
            here = path.with_name(file_name(header.generation, header.node, wanted))
            if not here.exists():
                continue
            head, begin = read_header(here)
        table = _table(here, head, begin, done // wanted)
        done += table.shape[0] * wanted
        parts.append((head, table))
    facts = dict(header.facts or {})
    offset = -float(facts.get("clock_ahead") or 0.0)
    times = np.concatenate([table["time"] for _, table in parts]) + offset
    order = np.flatnonzero(np.concatenate([[True], np.diff(times) > 0])) if times.size else np.zeros(0, dtype=np.intp)
    if span is not None and times.size:
        order = order[(times[order] >= span[0]) & (times[order] <= span[1])]
    found: dict[str, dict[str, Array]] = {"mean": {}, "least": {}, "most": {}}
    for name in header.columns if columns is None else [each for each in columns if each in header.columns]:
        for what, into in found.items():
            pieces = [table[name if head.level == 1 else f"{name}.{what}"] for head, table in parts]
            into[name] = np.concatenate(pieces).astype(np.float64)[order]
    period = float(facts.get("period", 1.0)) * level
    return NodeSeries(
        header.generation, header.node, times[order], found["mean"], found["least"], found["most"], period, facts,
        offset,
    )  # fmt: skip
