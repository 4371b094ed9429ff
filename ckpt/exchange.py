"""What ranks tell each other of the pieces of a round, and how it is packed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .group import Group
from .held import Held, cuts
from .parts import Cut, Selector, Strides, cut
from .plan import ArrayPlan, Rounds
from .trouble import Trouble

Bytes = npt.NDArray[np.uint8]


def rows_header(overlap: Cut | None) -> list[npt.NDArray[Any]]:
    """Return what tells the owner of a piece which rows of a box follow: their number, and their places in the box."""
    if overlap is None:
        return [np.zeros(1, np.int64)]
    rows = overlap.inside[0]
    assert not isinstance(rows, Strides)  # of an index list
    if isinstance(rows, slice):
        rows = np.arange(rows.start, rows.stop, dtype=np.int64)
    return [np.array([len(rows)], np.int64), rows]


def read_rows(source: Bytes, begin: int) -> tuple[npt.NDArray[np.int64], int]:
    count = int(source[begin : begin + 8].view(np.int64)[0])
    end = begin + 8 + 8 * count
    return source[begin + 8 : end].view(np.int64), end


def pack(target: Bytes, sources: Sequence[npt.NDArray[Any]]) -> None:
    begin = 0
    for source in sources:
        end = begin + source.nbytes
        target[begin:end].view(source.dtype).reshape(source.shape)[...] = source
        begin = end


def entries(
    held: Sequence[Held], schedule: Rounds, number: int, rank: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
    """Return a round's pieces that this rank owns, and those that it may hold elements of (with their owners).

    Of arrays of which no rank knows what the others hold these are all, so that owners need not guess who sends.
    """
    here = slice(schedule.starts[number], schedule.starts[number + 1])
    array, piece, owner = schedule.array[here], schedule.piece[here], schedule.owner[here]
    ranges = np.array([each.flat_range for each in held], np.int64).reshape(-1, 2)
    unknown = np.array([not each.known for each in held], bool)
    mine = owner == rank
    touched = (schedule.lo[here] < ranges[array, 1]) & (schedule.hi[here] > ranges[array, 0]) | unknown[array]
    return (
        list(zip(array[mine].tolist(), piece[mine].tolist(), strict=True)),
        list(zip(array[touched].tolist(), piece[touched].tolist(), owner[touched].tolist(), strict=True)),
    )


Overlap = tuple[int, tuple[int, ...], tuple[Selector, ...], tuple[int, ...]]


def overlaps(its: ArrayPlan, piece: int, each: Held, rank: int) -> list[Overlap]:
    return [
        (first, shape, overlap.inside, overlap.shape) for first, shape, _, overlap in cuts(its, piece, each.parts(rank))
    ]


def ask_for_rows(
    group: Group,
    held: Sequence[Held],
    plans: Sequence[ArrayPlan],
    mine: Sequence[tuple[int, int]],
    candidates: Sequence[tuple[int, int, int]],
    trouble: Trouble,
) -> dict[tuple[int, int, int], list[Overlap]]:
    """Tell the owners of pieces which rows this rank wants; return what others want, by rank, array and piece."""
    if all(each.known for each in held):
        return {}
    questions: dict[int, list[npt.NDArray[Any]]] = {}
    with trouble:
        for array, piece, owner in candidates:
            each = held[array]
            if owner != group.rank and not each.known:
                (part,) = each.parts(each.rank)
                for box in plans[array].boxes(piece):
                    questions.setdefault(owner, []).extend(rows_header(cut(part, box)))
    sizes = np.zeros(group.size, np.int64)
    for owner, parts in questions.items():
        sizes[owner] = sum(part.nbytes for part in parts)
    expected = group.counts(sizes)
    sent = {owner: np.empty(sizes[owner], np.uint8) for owner in questions}
    received = {rank: np.empty(count, np.uint8) for rank, count in enumerate(expected.tolist()) if count}
    for owner, parts in questions.items():
        pack(sent[owner], parts)
    group.exchange(sent, received)
    found: dict[tuple[int, int, int], list[Overlap]] = {}
    with trouble:
        places = dict.fromkeys(received, 0)
        for array, piece in mine:
            if held[array].known:
                continue
            for rank, source in received.items():
                wanted: list[Overlap] = []
                first = 0
                for box in plans[array].boxes(piece):
                    rows, places[rank] = read_rows(source, places[rank])
                    inner = box.shape[1:]
                    if len(rows):
                        inside: tuple[Selector, ...] = (rows, *(slice(0, extent) for extent in inner))
                        wanted.append((first, box.shape, inside, (len(rows), *inner)))
                    first += box.size
                found[rank, array, piece] = wanted
    return found
