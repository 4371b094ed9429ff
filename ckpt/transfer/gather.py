"""Saving: pieces are gathered from the ranks' memory, digested and written by their owners."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..comm.group import Group
from ..comm.trouble import Trouble
from ..storage.drivers import Output
from ..storage.manifest import Manifest, digest
from .assembly import Marks, check_marks, mark, own_rows, put_own, put_sent, verify_marks
from .exchange import Exchange, read_rows, tell_rows
from .held import Held, cuts
from .plan import SMALL, ArrayPlan, Entry, mark_type, plan

Bytes = npt.NDArray[np.uint8]


def save_pieces(
    group: Group,
    which: Sequence[int],
    held: Sequence[Held],
    output: Output | None,
    manifest: Manifest,
    digests: npt.NDArray[np.uint64],
    trouble: Trouble,
) -> npt.NDArray[np.int64]:
    """Write all pieces of some arrays; return the numbers of those that this rank owns. Collective.

    Parameters
    ----------
    which
        Index in the manifest of each array of ``held``.
    output
        None when this rank could not open the file; it takes part in the exchange all the same.
    digests
        Of all pieces of the file; those of the pieces that this rank owns are set.
    trouble
        Where local errors are kept.
    """
    plans = plan([each.moved for each in held], group.size)
    first = [manifest.arrays[array].first for array in which]
    _Gathering(Exchange(group, held, plans), which, output, digests, first, trouble).run()
    with trouble:
        for array, each, its, start in zip(which, held, plans, first, strict=True):
            if output is None:
                break
            for piece in its.own(group.rank):
                data = _own_piece(each, its, piece, output)
                digests[start + piece] = digest(data)
                output.write(array, its.begin(piece), data)
        if output is not None:
            output.settle()
    mine = [start + np.flatnonzero(its.owners == group.rank) for start, its in zip(first, plans, strict=True)]
    return np.concatenate([np.zeros(0, np.int64), *mine])


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
        first, last = its.rows(piece)
        marks = np.zeros(last - first, mark_type(each.ranks))
        mark(marks, own_rows(each, its, piece) - first, each.rank)
        check_marks(each, its, piece, marks)
    return data


class _Gathering:
    """The rounds of a save. While one is put together, the one before is digested and written by its owners."""

    def __init__(
        self,
        exchange: Exchange,
        which: Sequence[int],
        output: Output | None,
        digests: npt.NDArray[np.uint64],
        first: Sequence[int],
        trouble: Trouble,
    ) -> None:
        self._exchange, self._which, self._output, self._trouble = exchange, which, output, trouble
        self._held, self._plans, self._rank = exchange.held, exchange.plans, exchange.group.rank
        self._digests, self._first = digests, first
        self._writes: deque[list[Callable[[], None]]] = deque()
        self._named: list[tuple[Marks, npt.NDArray[np.int64], int]] = []

    def run(self) -> None:
        """Collective."""
        exchange = self._exchange
        count = len(exchange)
        for number in range(count + (1 + exchange.listed if count else 0)):
            if number < count:
                with self._trouble:
                    self._open(number)
            # Now the memory of this round is free on every rank, and the round before is put together.
            exchange.meet()
            if number >= 2:
                self._check(number - 2)
            if 1 <= number <= count:
                self._write(number - 1)
                self._verify()
            if number < count:
                self._put(number)
                if exchange.sends:
                    self._send(number)
        for writes in self._writes:
            self._wait(writes)

    def _open(self, number: int) -> None:
        # The round before this one is not written yet; those that had this memory are to be done.
        while len(self._writes) > max(self._exchange.slots - 2, 0):
            self._wait(self._writes.popleft())
        for entry in self._exchange.mine(number):
            each = self._held[entry.array]
            if each.partial:
                self._exchange.memory(number, entry)[:] = 0
            if not each.known:
                self._exchange.marks(number, entry)[:] = 0

    def _wait(self, writes: Sequence[Callable[[], None]]) -> None:
        for wait in writes:
            with self._trouble:
                wait()

    def _put(self, number: int) -> None:
        """Put what this rank holds into the pieces that it sees."""
        self._named = []
        with self._trouble:
            for entry in self._exchange.touched(number):
                if self._exchange.sees(entry.owner):
                    each, its = self._held[entry.array], self._plans[entry.array]
                    put_own(each, its, entry.piece, self._exchange.memory(number, entry))
                    if not each.known:
                        rows = own_rows(each, its, entry.piece)
                        self._name(number, entry, rows, self._rank)

    def _name(self, number: int, entry: Entry, rows: npt.NDArray[np.int64], rank: int) -> None:
        marks, first = self._exchange.marks(number, entry), self._plans[entry.array].rows(entry.piece)[0]
        self._named.append((marks, rows - first, rank))
        mark(*self._named[-1])

    def _send(self, number: int) -> None:
        """Send to owners what they don't see of this rank's."""
        exchange, held, plans = self._exchange, self._held, self._plans
        outgoing: dict[int, list[npt.NDArray[Any]]] = {}
        with self._trouble:
            for array, piece, owner, _ in exchange.touched(number):
                if exchange.sees(owner):
                    continue
                each, its = held[array], plans[array]
                sources = outgoing.setdefault(owner, [])
                if not each.known:
                    sources.extend(tell_rows(own_rows(each, its, piece)))
                sources.extend(each.take(index, o) for _, _, index, o in cuts(its, piece, each.parts(each.rank)))
        received = exchange.send("pieces", outgoing)
        with self._trouble:
            places = dict.fromkeys(received, 0)
            for entry in exchange.mine(number):
                each, its, data = held[entry.array], plans[entry.array], exchange.memory(number, entry)
                for rank, source in received.items():
                    if each.known:
                        parts = each.parts(rank)
                    else:
                        part, places[rank] = read_rows(its, source, places[rank])
                        parts = (part,)
                        rows = part.axes[0]
                        assert isinstance(rows, np.ndarray)
                        self._name(number, entry, rows, rank)
                    places[rank] = put_sent(its, entry.piece, data, parts, source, places[rank])

    def _verify(self) -> None:
        with self._trouble:
            for marks, rows, rank in self._named:
                verify_marks(marks, rows, rank)

    def _check(self, number: int) -> None:
        with self._trouble:
            for entry in self._exchange.mine(number):
                each = self._held[entry.array]
                if not each.known:
                    its = self._plans[entry.array]
                    check_marks(each, its, entry.piece, self._exchange.marks(number, entry))

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
                begin = its.begin(entry.piece)
                writes.append(self._output.write_later(self._which[entry.array], begin, data))
