"""Saving: pieces are gathered from the ranks' memory, digested and written by their owners."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .assembly import Listed, put_own, put_sent
from .drivers import Output
from .exchange import Exchange, tell_rows
from .group import Group
from .held import Held, cuts
from .manifest import Manifest, digest
from .plan import SMALL, ArrayPlan, plan
from .trouble import Trouble

Bytes = npt.NDArray[np.uint8]


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
    _Gathering(Exchange(group, held, plans), output, digests, first, trouble).run()
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
    if each.partial:
        data[:] = 0
    put_own(each, its, piece, data)
    if not each.known:
        listed = Listed(each, its, piece, data)
        listed.note_own()
        listed.check()
    return data


class _Gathering:
    """The rounds of a save. While one is put together, the one before is digested and written by its owners."""

    def __init__(
        self,
        exchange: Exchange,
        output: Output | None,
        digests: npt.NDArray[np.uint64],
        first: Sequence[int],
        trouble: Trouble,
    ) -> None:
        self._exchange, self._output, self._trouble = exchange, output, trouble
        self._held, self._plans, self._rank = exchange.held, exchange.plans, exchange.group.rank
        self._digests, self._first = digests, first
        self._writes: deque[list[Callable[[], None]]] = deque()

    def run(self) -> None:
        """Collective."""
        for number in range(len(self._exchange)):
            with self._trouble:
                self._open(number)
            # Now the memory of this round is free on every rank, and the round before is put together.
            self._exchange.meet()
            if number:
                self._write(number - 1)
            self._put(number)
            if self._exchange.sends or self._exchange.unknown(number):
                self._send(number)
        if len(self._exchange):
            self._exchange.meet()
            self._write(len(self._exchange) - 1)
        for writes in self._writes:
            self._wait(writes)

    def _open(self, number: int) -> None:
        # The round before this one is not written yet; those that had this memory are to be done.
        while len(self._writes) > max(self._exchange.slots - 2, 0):
            self._wait(self._writes.popleft())
        for entry in self._exchange.mine(number):
            if self._held[entry.array].partial:
                self._exchange.memory(number, entry)[:] = 0

    def _wait(self, writes: Sequence[Callable[[], None]]) -> None:
        for wait in writes:
            with self._trouble:
                wait()

    def _put(self, number: int) -> None:
        with self._trouble:
            for entry in self._exchange.touched(number):
                if self._exchange.sees(entry.owner):
                    data = self._exchange.memory(number, entry)
                    put_own(self._held[entry.array], self._plans[entry.array], entry.piece, data)

    def _send(self, number: int) -> None:
        """Send to owners what they don't see, and which rows of index lists this rank holds."""
        exchange, held, plans = self._exchange, self._held, self._plans
        outgoing: dict[int, list[npt.NDArray[Any]]] = {}
        with self._trouble:
            for array, piece, owner, _ in exchange.touched(number):
                each, its, seen = held[array], plans[array], exchange.sees(owner)
                if owner == self._rank or (each.known and seen):
                    continue
                sources = outgoing.setdefault(owner, [])
                if each.known:
                    sources.extend(each.take(index, o) for _, _, index, o in cuts(its, piece, each.parts(each.rank)))
                else:
                    sources.extend(tell_rows(each, its, piece, data=not seen))
        received = exchange.send("pieces", outgoing)
        with self._trouble:
            places = dict.fromkeys(received, 0)
            for entry in exchange.mine(number):
                each, its, piece = held[entry.array], plans[entry.array], entry.piece
                data = exchange.memory(number, entry)
                listed = None if each.known else Listed(each, its, piece, data)
                if listed is not None:
                    listed.note_own()
                for rank, source in received.items():
                    if listed is not None:
                        places[rank] = listed.note(source, places[rank], data=not exchange.sees(rank))
                    elif not exchange.sees(rank):
                        places[rank] = put_sent(each, its, piece, data, rank, source, places[rank])
                if listed is not None:
                    listed.check()

    def _write(self, number: int) -> None:
        writes: list[Callable[[], None]] = []
        self._writes.append(writes)
        with self._trouble:
            for entry in self._exchange.mine(number):
                if self._output is None:
                    break
                its = self._plans[entry.array]
                data = self._exchange.memory(number, entry)
                self._digests[self._first[entry.array] + entry.piece] = digest(data)
                begin = entry.piece * its.per_piece * its.itemsize
                writes.append(self._output.write_later(entry.array, begin, data))
