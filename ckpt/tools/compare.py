"""Two checkpoints compared: by their digests first, so that only what differs is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..reader import CheckpointFile
from ..state.specs import specs_of
from ..state.values import canonical
from ..storage.manifest import ArrayEntry


@dataclass(frozen=True)
class Difference:
    """How one item differs; ``elements`` of arrays are counted by their bits.

    ``first`` is the index of the first element that differs, ``largest`` the greatest absolute difference of numbers.
    """

    name: str
    text: str
    elements: int | None = None
    first: tuple[int, ...] | None = None
    largest: float | None = None


def differences(one: CheckpointFile, other: CheckpointFile) -> list[Difference]:
    """Return how the content of two checkpoints differs; who wrote it, and how it was spread over ranks, don't count.

    Raises
    ------
    Damaged
        When a piece that has to be read is not what was written.
    """
    found = []
    mine, theirs = specs_of(one.manifest), specs_of(other.manifest)
    for name in [*mine, *(name for name in theirs if name not in mine)]:
        if name not in theirs or name not in mine:
            found.append(Difference(name, f"only in {(one if name in mine else other).path}"))
        elif mine[name].kind != theirs[name].kind:
            found.append(Difference(name, f"saved as {mine[name].kind} and as {theirs[name].kind}"))
    entries = {each.name: each for each in other.manifest.arrays}
    for entry in one.manifest.arrays:
        if entry.name in entries and (difference := _arrays(one, entry, other, entries[entry.name])):
            found.append(difference)
    for name in mine:
        if name in theirs and mine[name].kind == theirs[name].kind == "value":
            pair = one.manifest.values[name], other.manifest.values[name]
        elif name in theirs and mine[name].kind == theirs[name].kind == "rng":
            pair = one.manifest.rngs[name], other.manifest.rngs[name]
        else:
            continue
        if canonical(pair[0]) != canonical(pair[1]):
            short = [str(each) if len(str(each)) < 60 else str(each)[:57] + "..." for each in pair]
            found.append(
                Difference(name, f"{short[0]} and {short[1]}" if mine[name].kind == "value" else "other state")
            )
    if canonical(one.manifest.info) != canonical(other.manifest.info):
        found.append(Difference("", "the program's info differs"))
    if one.step != other.step:
        found.append(Difference("", f"steps {one.step} and {other.step}"))
    return found


def _arrays(one: CheckpointFile, mine: ArrayEntry, other: CheckpointFile, theirs: ArrayEntry) -> Difference | None:
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return Difference(mine.name, f"{mine.dtype} {mine.shape} and {theirs.dtype} {theirs.shape}")
    if mine.cut == theirs.cut:
        pieces = np.flatnonzero(one.digests(mine.name) != other.digests(mine.name)).tolist()
    else:
        pieces = list(range(mine.pieces))
    count, first, largest = 0, None, None
    for piece in pieces:
        lo, hi = mine.cut.span(piece)
        left, right = one.elements(mine.name, lo, hi), other.elements(mine.name, lo, hi)
        bits = [np.ascontiguousarray(each).view(np.uint8).reshape(len(each), -1) for each in (left, right)]
        where = np.flatnonzero((bits[0] != bits[1]).any(axis=1))
        if not len(where):
            continue
        count += len(where)
        if first is None:
            first = tuple(int(each) for each in np.unravel_index(lo + int(where[0]), mine.shape))
        largest = _largest(left[where], right[where], largest)
    if not count:
        return None
    more = f", by at most {largest:.3g}" if largest is not None else ""
    return Difference(
        mine.name, f"{count} of {mine.size} elements differ, the first at {first}{more}", count, first, largest
    )


def _largest(left: Any, right: Any, before: float | None) -> float | None:
    if left.dtype.kind not in "biufc":
        return None
    wide = np.complex128 if left.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        apart = np.abs(left.astype(wide) - right.astype(wide))
    apart = apart[~np.isnan(apart)]
    return (
        max([float(apart.max())] if apart.size else [], default=None)
        if before is None
        else max(before, float(apart.max()) if apart.size else before)
    )
