"""Moving the pieces between the ranks' memory and the file."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from .drivers import Input, Output, Pending
from .errors import Damaged, Mismatch
from .group import Group
from .held import Held, carrier, cuts
from .manifest import Manifest, digest
from .parts import Cut, Selector, cut, get, put
from .plan import ArrayPlan, Rounds, plan, rounds
from .reader import describe_damage

Bytes = npt.NDArray[np.uint8]
_AHEAD = 16 << 20
SMALL = 256 << 10
"""Pieces of less bytes are written from where they are."""


class Trouble:
    """Holds back the first error of a rank, so that it goes on to take part in the collective calls.

    Used as a context manager around local work; after the last collective call the error is agreed upon.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        if isinstance(error, Exception):
            self.error = self.error or error
            return True
        return False


def save_pieces(
    group: Group, held: Sequence[Held], output: Output | None, manifest: Manifest, trouble: Trouble
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """Write all pieces; return the numbers and the digests of those that this rank owns. Collective.

    Parameters
    ----------
    held
        The arrays, in the order of the manifest.
    output
        None when this rank could not open the file; it takes part in the exchange all the same.
    trouble
        Where local errors are kept.
    """
    plans = plan([each.moved for each in held], group.size)
    digests = np.zeros(manifest.pieces, np.uint64)
    first = [entry.first for entry in manifest.arrays]
    schedule = rounds(plans, group.size)
    for number in range(len(schedule)):
        for array, piece, data in _gather_round(group, held, plans, schedule, number, output, trouble):
            with trouble:
                if output is not None:
                    digests[first[array] + piece] = digest(data)
                    output.write(array, piece * plans[array].per_piece * plans[array].itemsize, data, later=True)
    with trouble:
        for array, (each, its) in enumerate(zip(held, plans, strict=True)):
            if output is None:
                break
            for piece in its.own(group.rank):
                data = _own_piece(each, its, piece, output)
                digests[first[array] + piece] = digest(data)
                output.write(array, piece * its.per_piece * its.itemsize, data)
    owners = np.concatenate([np.zeros(0, np.int64), *(each.owners for each in plans)])
    mine = np.flatnonzero(owners == group.rank)
    return mine, digests[mine]


def _own_piece(each: Held, its: ArrayPlan, piece: int, output: Output) -> Bytes:
    lo, hi = its.span(piece)
    memory = each.direct(lo, hi)
    size = (hi - lo) * its.itemsize
    if memory is not None and (not output.bounces or size < SMALL):
        return memory
    data = output.take(size)
    if memory is not None:
        data[:] = memory
        return data
    assembly = Assembly(each, its, piece, data)
    assembly.add_own()
    assembly.check()
    return data


class Assembly:
    """A piece that is put together from what ranks hold of it; it notes what comes where the layout does not say it."""

    def __init__(self, each: Held, its: ArrayPlan, piece: int, data: Bytes) -> None:
        self.each, self.its, self.piece = each, its, piece
        self.elements = data.view(carrier(its.itemsize))
        self._seen: npt.NDArray[np.bool_] | None = None
        if not each.known:
            self._seen = np.zeros(len(self.elements), bool)
        if not each.covers:
            data[:] = 0

    def add_own(self) -> None:
        """Put in what this rank holds."""
        for first, shape, index, overlap in cuts(self.its, self.piece, self.each.parts(self.each.rank)):
            self._add(first, shape, overlap.inside, self.each.take(index, overlap))

    def add(self, rank: int, source: Bytes, begin: int) -> int:
        """Put in what another rank has sent; return where its message goes on."""
        if not self.each.known:
            return self._add_listed(source, begin)
        itemsize = self.its.itemsize
        for first, shape, _, overlap in cuts(self.its, self.piece, self.each.parts(rank)):
            end = begin + overlap.size * itemsize
            part = source[begin:end].view(carrier(itemsize)).reshape(overlap.shape)
            self._add(first, shape, overlap.inside, part)
            begin = end
        return begin

    def _add_listed(self, source: Bytes, begin: int) -> int:
        first = 0
        for box in self.its.boxes(self.piece):
            rows, begin = _read_rows(source, begin)
            if len(rows):
                shape = (len(rows), *box.shape[1:])
                end = begin + math.prod(shape) * self.its.itemsize
                inside: tuple[Selector, ...] = (rows, *(slice(0, extent) for extent in box.shape[1:]))
                part = source[begin:end].view(self.elements.dtype).reshape(shape)
                self._add(first, box.shape, inside, part)
                begin = end
            first += box.size
        return begin

    def _add(self, first: int, shape: tuple[int, ...], inside: tuple[Selector, ...], source: npt.NDArray[Any]) -> None:
        here = slice(first, first + math.prod(shape))
        put(self.elements[here].reshape(shape), inside, source)
        if self._seen is not None:
            seen = self._seen[here].reshape(shape)
            before = np.empty(source.shape, bool)
            get(seen, inside, before)
            if before.any():
                where = np.zeros(shape, bool)
                put(where, inside, before)
                self._refuse(first + int(np.flatnonzero(where)[0]), "two ranks, or twice by one: name one owner")
            put(seen, inside, np.ones(source.shape, bool))

    def check(self) -> None:
        """Raise when an element was not given.

        Raises
        ------
        Mismatch
        """
        if self._seen is not None and not self._seen.all():
            self._refuse(int(np.flatnonzero(~self._seen)[0]), "no rank")

    def _refuse(self, element: int, who: str) -> None:
        row = (self.its.span(self.piece)[0] + element) // math.prod(self.its.shape[1:])
        raise Mismatch(f"array {self.each.name!r}: row {row} is owned by {who}")


def _rows_header(overlap: Cut | None) -> list[npt.NDArray[Any]]:
    """Return what tells the owner of a piece which rows of a box follow: their number, and their places in the box."""
    if overlap is None:
        return [np.zeros(1, np.int64)]
    rows = overlap.inside[0]
    if isinstance(rows, slice):
        rows = np.arange(rows.start, rows.stop, dtype=np.int64)
    return [np.array([len(rows)], np.int64), rows]


def _read_rows(source: Bytes, begin: int) -> tuple[npt.NDArray[np.int64], int]:
    count = int(source[begin : begin + 8].view(np.int64)[0])
    end = begin + 8 + 8 * count
    return source[begin + 8 : end].view(np.int64), end


def _gather_round(
    group: Group,
    held: Sequence[Held],
    plans: Sequence[ArrayPlan],
    schedule: Rounds,
    number: int,
    output: Output | None,
    trouble: Trouble,
) -> list[tuple[int, int, Bytes]]:
    outgoing: dict[int, list[npt.NDArray[Any]]] = {}
    mine, candidates = _entries(held, schedule, number, group.rank)
    with trouble:
        for array, piece, owner in candidates:
            if owner == group.rank:
                continue
            each, its = held[array], plans[array]
            sources = outgoing.setdefault(owner, [])
            if each.known:
                sources.extend(each.take(index, o) for _, _, index, o in cuts(its, piece, each.parts(each.rank)))
                continue
            (part,) = each.parts(each.rank)
            for box in its.boxes(piece):
                overlap = cut(part, box)
                sources.extend(_rows_header(overlap))
                if overlap is not None:
                    sources.append(each.take(0, overlap))
    sizes = np.zeros(group.size, np.int64)
    for owner, sources in outgoing.items():
        sizes[owner] = sum(source.nbytes for source in sources)
    expected = group.counts(sizes)
    sent = {owner: np.empty(sizes[owner], np.uint8) for owner in outgoing if sizes[owner]}
    received = {rank: np.empty(count, np.uint8) for rank, count in enumerate(expected.tolist()) if count}
    with trouble:
        for owner, data in sent.items():
            _pack(data, outgoing[owner])
    group.exchange(sent, received)
    found: list[tuple[int, int, Bytes]] = []
    with trouble:
        places = dict.fromkeys(received, 0)
        for array, piece in mine:
            each, its = held[array], plans[array]
            lo, hi = its.span(piece)
            size = (hi - lo) * its.itemsize
            data = output.take(size) if output is not None else np.empty(size, np.uint8)
            assembly = Assembly(each, its, piece, data)
            assembly.add_own()
            for rank, source in received.items():
                places[rank] = assembly.add(rank, source, places[rank])
            assembly.check()
            found.append((array, piece, data))
    return found


def _pack(target: Bytes, sources: Sequence[npt.NDArray[Any]]) -> None:
    begin = 0
    for source in sources:
        end = begin + source.nbytes
        target[begin:end].view(source.dtype).reshape(source.shape)[...] = source
        begin = end


def _entries(
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


class Reader:
    """Reads pieces and verifies them.

    Parameters
    ----------
    source
        None when this rank could not open the file; every piece is then in trouble already.
    """

    def __init__(
        self, source: Input | None, path: Path, manifest: Manifest, digests: npt.NDArray[np.uint64], trouble: Trouble
    ) -> None:
        self.source, self.path, self.manifest, self.digests, self.trouble = source, path, manifest, digests, trouble

    def start(self, array: int, its: ArrayPlan, piece: int, into: Bytes) -> Callable[[], None]:
        """Begin to read a piece; the call that is returned waits for it and verifies it."""
        pending: Pending | None = None
        with self.trouble:
            if self.source is not None:
                pending = self.source.start(array, piece * its.per_piece * its.itemsize, into)

        def finish() -> None:
            with self.trouble:
                if pending is not None:
                    self._finish(pending, array, its, piece, into)

        return finish

    def _finish(self, pending: Pending, array: int, its: ArrayPlan, piece: int, into: Bytes) -> None:
        entry = self.manifest.arrays[array]
        try:
            found = pending.result()
        except EOFError as error:
            raise Damaged(f"{self.path}: array {entry.name!r} is cut short ({error})") from None
        if found != int(self.digests[entry.first + piece]):
            raise Damaged(describe_damage(self.path, entry, piece, len(into)))


def load_pieces(group: Group, which: Sequence[int], held: Sequence[Held], reader: Reader, trouble: Trouble) -> None:
    """Fill the memory of ``held``; every piece is read by one rank. Collective.

    Parameters
    ----------
    which
        Index in the manifest of each array of ``held``.
    """
    plans = plan([each.moved for each in held], group.size)
    _load_own(group, which, held, plans, reader)
    _load_everywhere(group, which, held, plans, reader)
    schedule = rounds(plans, group.size)
    reads: Reads = []
    for number in range(len(schedule)):
        # The next round is read while this one is exchanged.
        reads = reads or _start_round(group.rank, which, plans, schedule, number, reader)
        ahead = _start_round(group.rank, which, plans, schedule, number + 1, reader)
        _scatter_round(group, held, plans, schedule, number, reads, trouble)
        reads = ahead


Reads = list[tuple[int, int, Bytes, Callable[[], None]]]


def _start_round(
    rank: int, which: Sequence[int], plans: Sequence[ArrayPlan], schedule: Rounds, number: int, reader: Reader
) -> Reads:
    """Begin to read the pieces that this rank owns in a round; nothing after the last one."""
    if number >= len(schedule):
        return []
    reads: Reads = []
    here = slice(schedule.starts[number], schedule.starts[number + 1])
    mine = schedule.owner[here] == rank
    for array, piece in zip(schedule.array[here][mine].tolist(), schedule.piece[here][mine].tolist(), strict=True):
        its = plans[array]
        lo, hi = its.span(piece)
        data = np.empty((hi - lo) * its.itemsize, np.uint8)
        reads.append((array, piece, data, reader.start(which[array], its, piece, data)))
    return reads


def _load_own(
    group: Group, which: Sequence[int], held: Sequence[Held], plans: Sequence[ArrayPlan], reader: Reader
) -> None:
    waiting: deque[tuple[int, Callable[[], None]]] = deque()
    ahead = 0
    for array, each, its in zip(which, held, plans, strict=True):
        for piece in its.own(group.rank):
            lo, hi = its.span(piece)
            size = (hi - lo) * its.itemsize
            while waiting and ahead + size > _AHEAD:
                done, finish = waiting.popleft()
                finish()
                ahead -= done
            into = each.direct(lo, hi)
            if into is not None:
                waiting.append((size, reader.start(array, its, piece, into)))
                ahead += size
                continue
            data = np.empty(size, np.uint8)
            reader.start(array, its, piece, data)()
            _deliver(data, each, its, piece)
    for _, finish in waiting:
        finish()


def _deliver(data: Bytes, each: Held, its: ArrayPlan, piece: int) -> None:
    elements = data.view(carrier(its.itemsize))
    for first, shape, index, overlap in cuts(its, piece, each.parts(each.rank)):
        box = elements[first : first + math.prod(shape)].reshape(shape)
        if all(isinstance(where, slice) for where in overlap.inside):
            each.fill(index, overlap, box[overlap.inside])
        else:
            part = np.empty(overlap.shape, elements.dtype)
            get(box, overlap.inside, part)
            each.fill(index, overlap, part)


def _load_everywhere(
    group: Group, which: Sequence[int], held: Sequence[Held], plans: Sequence[ArrayPlan], reader: Reader
) -> None:
    if group.size == 1:
        return
    for each, its in zip(held, plans, strict=True):
        if each.everywhere:
            for piece, owner in enumerate(its.owners.tolist()):
                memory = each.direct(*its.span(piece))
                assert memory is not None
                group.bcast_into(memory, owner)


def _scatter_round(
    group: Group,
    held: Sequence[Held],
    plans: Sequence[ArrayPlan],
    schedule: Rounds,
    number: int,
    reads: Reads,
    trouble: Trouble,
) -> None:
    mine, candidates = _entries(held, schedule, number, group.rank)
    asked = _ask_for_rows(group, held, plans, mine, candidates, trouble)
    incoming: dict[int, list[tuple[Held, int, Cut]]] = {}
    with trouble:
        for array, piece, owner in candidates:
            if owner != group.rank:
                each = held[array]
                for _, _, index, overlap in cuts(plans[array], piece, each.parts(each.rank)):
                    incoming.setdefault(owner, []).append((each, index, overlap))
    sizes = np.zeros(group.size, np.int64)
    for owner, targets in incoming.items():
        sizes[owner] = sum(overlap.size * each.itemsize for each, _, overlap in targets)
    wanted = group.counts(sizes)
    sent = {rank: np.empty(count, np.uint8) for rank, count in enumerate(wanted.tolist()) if count}
    received = {owner: np.empty(sizes[owner], np.uint8) for owner in incoming}
    places = dict.fromkeys(sent, 0)
    for array, piece, data, finish in reads:
        finish()
        with trouble:
            each, its = held[array], plans[array]
            _deliver(data, each, its, piece)
            elements = data.view(carrier(its.itemsize))
            for rank, target in sent.items():
                overlaps = asked[rank, array, piece] if not each.known else _overlaps(its, piece, each, rank)
                for first, shape, inside, extent in overlaps:
                    box = elements[first : first + math.prod(shape)].reshape(shape)
                    begin = places[rank]
                    places[rank] = end = begin + math.prod(extent) * its.itemsize
                    get(box, inside, target[begin:end].view(elements.dtype).reshape(extent))
    group.exchange(sent, received)
    with trouble:
        for owner, targets in incoming.items():
            _unpack(received[owner], targets)


Overlap = tuple[int, tuple[int, ...], tuple[Selector, ...], tuple[int, ...]]


def _overlaps(its: ArrayPlan, piece: int, each: Held, rank: int) -> list[Overlap]:
    return [
        (first, shape, overlap.inside, overlap.shape) for first, shape, _, overlap in cuts(its, piece, each.parts(rank))
    ]


def _ask_for_rows(
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
                    questions.setdefault(owner, []).extend(_rows_header(cut(part, box)))
    sizes = np.zeros(group.size, np.int64)
    for owner, parts in questions.items():
        sizes[owner] = sum(part.nbytes for part in parts)
    expected = group.counts(sizes)
    sent = {owner: np.empty(sizes[owner], np.uint8) for owner in questions}
    received = {rank: np.empty(count, np.uint8) for rank, count in enumerate(expected.tolist()) if count}
    for owner, parts in questions.items():
        _pack(sent[owner], parts)
    group.exchange(sent, received)
    found: dict[tuple[int, int, int], list[Overlap]] = {}
    with trouble:
        places = dict.fromkeys(received, 0)
        for array, piece in mine:
            if held[array].known:
                continue
            for rank, source in received.items():
                overlaps: list[Overlap] = []
                first = 0
                for box in plans[array].boxes(piece):
                    rows, places[rank] = _read_rows(source, places[rank])
                    inner = box.shape[1:]
                    if len(rows):
                        inside: tuple[Selector, ...] = (rows, *(slice(0, extent) for extent in inner))
                        overlaps.append((first, box.shape, inside, (len(rows), *inner)))
                    first += box.size
                found[rank, array, piece] = overlaps
    return found


def _unpack(source: Bytes, targets: Sequence[tuple[Held, int, Cut]]) -> None:
    begin = 0
    for each, index, overlap in targets:
        end = begin + overlap.size * each.itemsize
        each.fill(index, overlap, source[begin:end].view(carrier(each.itemsize)).reshape(overlap.shape))
        begin = end
