"""Moving the pieces between the ranks' memory and the file."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from .drivers import Input, Output, Pending
from .errors import Damaged
from .group import Group
from .held import Held, carrier, cuts
from .manifest import Manifest, digest
from .parts import get, put
from .plan import ArrayPlan, Rounds, plan, rounds
from .reader import describe_damage

Bytes = npt.NDArray[np.uint8]
_AHEAD = 16 << 20


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
) -> npt.NDArray[np.uint64]:
    """Write all pieces; return the digests of those of this rank, 0 for the others. Collective.

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
                    output.write(array, piece * plans[array].per_piece * plans[array].itemsize, data)
    if output is None:
        return digests
    with trouble:
        for array, (each, its) in enumerate(zip(held, plans, strict=True)):
            for piece in np.flatnonzero((its.owners == group.rank) & ~its.mixed).tolist():
                data = _own_piece(each, its, piece, output)
                digests[first[array] + piece] = digest(data)
                output.write(array, piece * its.per_piece * its.itemsize, data)
    return digests


def _own_piece(each: Held, its: ArrayPlan, piece: int, output: Output) -> Bytes:
    lo, hi = its.span(piece)
    memory = each.direct(lo, hi)
    size = (hi - lo) * its.itemsize
    if memory is not None and (not output.bounces or size < 256 << 10):
        return memory
    data = output.take(size)
    if memory is not None:
        data[:] = memory
    else:
        _collect(data, each, its, piece)
    return data


def _collect(data: Bytes, each: Held, its: ArrayPlan, piece: int) -> None:
    elements = data.view(carrier(its.itemsize))
    for first, shape, index, overlap in cuts(its, piece, each.parts(each.rank)):
        size = int(np.prod(shape, dtype=np.int64))
        put(elements[first : first + size].reshape(shape), overlap.inside, each.views[index][overlap.local])


def _gather_round(
    group: Group,
    held: Sequence[Held],
    plans: Sequence[ArrayPlan],
    schedule: Rounds,
    number: int,
    output: Output | None,
    trouble: Trouble,
) -> list[tuple[int, int, Bytes]]:
    outgoing: dict[int, list[tuple[npt.NDArray[Any], int]]] = {}
    mine, candidates = _entries(held, schedule, number, group.rank)
    with trouble:
        for array, piece, owner in candidates:
            if owner == group.rank:
                continue
            each, its = held[array], plans[array]
            for _, _, index, overlap in cuts(its, piece, each.parts(each.rank)):
                outgoing.setdefault(owner, []).append((each.views[index][overlap.local], its.itemsize))
    sizes = np.zeros(group.size, np.int64)
    for owner, sources in outgoing.items():
        sizes[owner] = sum(source.size * itemsize for source, itemsize in sources)
    expected = group.counts(sizes)
    sent = {owner: np.empty(sizes[owner], np.uint8) for owner in outgoing}
    received = {rank: np.empty(count, np.uint8) for rank, count in enumerate(expected.tolist()) if count}
    with trouble:
        for owner, sources in outgoing.items():
            _pack(sent[owner], sources)
    group.exchange(sent, received)
    found: list[tuple[int, int, Bytes]] = []
    with trouble:
        places = dict.fromkeys(received, 0)
        for array, piece in mine:
            each, its = held[array], plans[array]
            lo, hi = its.span(piece)
            size = (hi - lo) * its.itemsize
            data = output.take(size) if output is not None else np.empty(size, np.uint8)
            _collect(data, each, its, piece)
            elements = data.view(carrier(its.itemsize))
            for rank, source in received.items():
                for first, shape, _, overlap in cuts(its, piece, each.parts(rank)):
                    box = elements[first : first + int(np.prod(shape, dtype=np.int64))].reshape(shape)
                    begin = places[rank]
                    places[rank] = end = begin + overlap.size * its.itemsize
                    put(box, overlap.inside, source[begin:end].view(carrier(its.itemsize)).reshape(overlap.shape))
            found.append((array, piece, data))
    return found


def _pack(target: Bytes, sources: Sequence[tuple[npt.NDArray[Any], int]]) -> None:
    begin = 0
    for source, itemsize in sources:
        end = begin + source.size * itemsize
        target[begin:end].view(carrier(itemsize)).reshape(source.shape)[...] = source
        begin = end


def _entries(
    held: Sequence[Held], schedule: Rounds, number: int, rank: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
    """Return a round's pieces that this rank owns, and those that it may hold elements of (with their owners)."""
    here = slice(schedule.starts[number], schedule.starts[number + 1])
    array, piece, owner = schedule.array[here], schedule.piece[here], schedule.owner[here]
    ranges = np.array([each.flat_range for each in held], np.int64).reshape(-1, 2)
    mine = owner == rank
    touched = (schedule.lo[here] < ranges[array, 1]) & (schedule.hi[here] > ranges[array, 0])
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
            pending.result()
        except EOFError as error:
            raise Damaged(f"{self.path}: array {entry.name!r} is cut short ({error})") from None
        if digest(into) != int(self.digests[entry.first + piece]):
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
    for number in range(len(schedule)):
        _scatter_round(group, which, held, plans, schedule, number, reader, trouble)


def _load_own(
    group: Group, which: Sequence[int], held: Sequence[Held], plans: Sequence[ArrayPlan], reader: Reader
) -> None:
    waiting: deque[tuple[int, Callable[[], None]]] = deque()
    ahead = 0
    for array, each, its in zip(which, held, plans, strict=True):
        for piece in np.flatnonzero((its.owners == group.rank) & ~its.mixed).tolist():
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
        size = int(np.prod(shape, dtype=np.int64))
        get(elements[first : first + size].reshape(shape), overlap.inside, each.views[index][overlap.local])


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
    which: Sequence[int],
    held: Sequence[Held],
    plans: Sequence[ArrayPlan],
    schedule: Rounds,
    number: int,
    reader: Reader,
    trouble: Trouble,
) -> None:
    mine, candidates = _entries(held, schedule, number, group.rank)
    reads = []
    for array, piece in mine:
        its = plans[array]
        lo, hi = its.span(piece)
        data = np.empty((hi - lo) * its.itemsize, np.uint8)
        reads.append((array, piece, data, reader.start(which[array], its, piece, data)))
    incoming: dict[int, list[tuple[npt.NDArray[Any], int]]] = {}
    with trouble:
        for array, piece, owner in candidates:
            if owner == group.rank:
                continue
            each, its = held[array], plans[array]
            for _, _, index, overlap in cuts(its, piece, each.parts(each.rank)):
                incoming.setdefault(owner, []).append((each.views[index][overlap.local], its.itemsize))
    sizes = np.zeros(group.size, np.int64)
    for owner, targets in incoming.items():
        sizes[owner] = sum(target.size * itemsize for target, itemsize in targets)
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
                for first, shape, _, overlap in cuts(its, piece, each.parts(rank)):
                    box = elements[first : first + int(np.prod(shape, dtype=np.int64))].reshape(shape)
                    begin = places[rank]
                    places[rank] = end = begin + overlap.size * its.itemsize
                    get(box, overlap.inside, target[begin:end].view(carrier(its.itemsize)).reshape(overlap.shape))
    group.exchange(sent, received)
    with trouble:
        for owner, targets in incoming.items():
            _unpack(received[owner], targets)


def _unpack(source: Bytes, targets: Sequence[tuple[npt.NDArray[Any], int]]) -> None:
    begin = 0
    for target, itemsize in targets:
        end = begin + target.size * itemsize
        target[...] = source[begin:end].view(carrier(itemsize)).reshape(target.shape)
        begin = end
