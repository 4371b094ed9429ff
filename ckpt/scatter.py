"""Loading: pieces are read and verified by their owners, and scattered to the ranks' memory."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .drivers import Input, Pending
from .errors import Damaged
from .exchange import ask_for_rows, entries, overlaps
from .group import Group
from .held import Held, carrier, cuts
from .manifest import Manifest
from .parts import Cut, get
from .plan import ArrayPlan, Rounds, plan, rounds
from .reader import describe_damage
from .trouble import Trouble

Bytes = npt.NDArray[np.uint8]
_AHEAD = 16 << 20


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
        each.fill_from(index, overlap, box)


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
    mine, candidates = entries(held, schedule, number, group.rank)
    asked = ask_for_rows(group, held, plans, mine, candidates, trouble)
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
                found = asked[rank, array, piece] if not each.known else overlaps(its, piece, each, rank)
                for first, shape, inside, extent in found:
                    box = elements[first : first + math.prod(shape)].reshape(shape)
                    begin = places[rank]
                    places[rank] = end = begin + math.prod(extent) * its.itemsize
                    get(box, inside, target[begin:end].view(elements.dtype).reshape(extent))
    group.exchange(sent, received)
    with trouble:
        for owner, targets in incoming.items():
            _unpack(received[owner], targets)


def _unpack(source: Bytes, targets: Sequence[tuple[Held, int, Cut]]) -> None:
    begin = 0
    for each, index, overlap in targets:
        end = begin + overlap.size * each.itemsize
        each.fill(index, overlap, source[begin:end].view(carrier(each.itemsize)).reshape(overlap.shape))
        begin = end
