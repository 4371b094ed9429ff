"""Loading: pieces are read and verified by their owners, and scattered to the ranks' memory."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..comm.group import Group
from ..comm.threads import Pool
from ..comm.trouble import Trouble
from ..errors import Damaged
from ..layouts.parts import Cut, Part, get
from ..storage.boxes import describe_damage
from ..storage.chunks import chunk_of, unpack
from ..storage.drivers import Input, Pending
from ..storage.h5file import Content
from ..storage.manifest import digest
from .assembly import own_rows
from .exchange import Exchange, read_rows, tell_rows
from .held import Held, carrier, cuts
from .plan import PIECE, ArrayPlan, plan

Bytes = npt.NDArray[np.uint8]
_AHEAD = 16 << 20


class Reader:
    """Reads pieces and verifies them.

    Parameters
    ----------
    source
        None when this rank could not open the file; every piece is then in trouble already.
    content
        What the file says of itself.
    threads
        How many decompress; 1 for none but the caller's.

    Attributes
    ----------
    ahead
        Bytes of pieces that are worth to be begun before the first of them is waited for.
    """

    def __init__(self, source: Input | None, path: Path, content: Content, trouble: Trouble, threads: int = 1) -> None:
        self.source, self.path, self.trouble = source, path, trouble
        self.manifest, self.digests, self.chunks = content.manifest, content.digests, content.chunks
        self._pool = Pool(threads, "dmr.ckpt load") if threads > 1 else None
        self.ahead = max(_AHEAD, 2 * threads * PIECE if threads > 1 else 0)

    def close(self) -> None:
        """Wait for the threads."""
        if self._pool is not None:
            self._pool.close()

    def start(self, array: int, its: ArrayPlan, piece: int, into: Bytes) -> Callable[[], None]:
        """Begin to read a piece; the call that is returned waits for it and verifies it."""
        done: Callable[[], None] | None = None
        with self.trouble:
            if self.source is not None:
                packed = self.manifest.arrays[array].filter is not None
                begin = self._begin_packed if packed else self._begin
                done = begin(self.source, array, its, piece, into)

        def finish() -> None:
            with self.trouble:
                if done is not None:
                    done()

        return finish

    def _begin(self, source: Input, array: int, its: ArrayPlan, piece: int, into: Bytes) -> Callable[[], None]:
        pending = source.start(array, its.begin(piece), into)
        return lambda: self._verify(array, piece, into, self._digest(pending, array))

    def _begin_packed(self, source: Input, array: int, its: ArrayPlan, piece: int, into: Bytes) -> Callable[[], None]:
        entry = self.manifest.arrays[array]
        chunk = chunk_of(self.chunks, entry, piece)
        stored = np.empty(chunk.bytes, np.uint8)
        pending = source.start_at(chunk.offset, stored)

        def work() -> None:
            unpack(self.path, entry, piece, chunk, stored, self._digest(pending, array), into)
            self._verify(array, piece, into, digest(into))

        return work if self._pool is None else self._pool.submit(work).result

    def _digest(self, pending: Pending, array: int) -> int:
        try:
            return pending.result()
        except EOFError as error:
            name = self.manifest.arrays[array].name
            raise Damaged(f"{self.path}: array {name!r} is cut short ({error})") from None

    def _verify(self, array: int, piece: int, into: Bytes, found: int) -> None:
        entry = self.manifest.arrays[array]
        if found != int(self.digests[entry.first + piece]):
            raise Damaged(describe_damage(self.path, entry, piece))


def load_pieces(group: Group, which: Sequence[int], held: Sequence[Held], reader: Reader, trouble: Trouble) -> None:
    """Fill the memory of ``held``; every piece is read by one rank. Collective.

    Parameters
    ----------
    which
        Index in the manifest of each array of ``held``.
    """
    plans = plan([each.moved for each in held], group.size)
    _load_own(group, which, held, plans, reader)
    _load_everywhere(group, held, plans)
    _Scattering(Exchange(group, held, plans), which, reader, trouble).run()


def _load_own(
    group: Group, which: Sequence[int], held: Sequence[Held], plans: Sequence[ArrayPlan], reader: Reader
) -> None:
    waiting: deque[tuple[int, Callable[[], None]]] = deque()
    ahead = 0
    for array, each, its in zip(which, held, plans, strict=True):
        for piece in its.own(group.rank):
            lo, hi = its.span(piece)
            size = (hi - lo) * its.itemsize
            while waiting and ahead + size > reader.ahead:
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


def _load_everywhere(group: Group, held: Sequence[Held], plans: Sequence[ArrayPlan]) -> None:
    if group.size == 1:
        return
    for each, its in zip(held, plans, strict=True):
        if each.everywhere:
            for piece, owner in enumerate(its.owners.tolist()):
                memory = each.direct(*its.span(piece))
                assert memory is not None
                group.bcast_into(memory, owner)


class _Scattering:
    """The rounds of a load. While one is exchanged, the next one is read."""

    def __init__(self, exchange: Exchange, which: Sequence[int], reader: Reader, trouble: Trouble) -> None:
        self._exchange, self._which, self._reader, self._trouble = exchange, which, reader, trouble
        self._held, self._plans, self._rank = exchange.held, exchange.plans, exchange.group.rank

    def run(self) -> None:
        """Collective."""
        exchange = self._exchange
        reads = self._start(0)
        for number in range(len(exchange)):
            # What the next round is read into, all ranks have done with: they have met since.
            ahead = self._start(number + 1)
            for finish in reads:
                finish()
            if exchange.sends:
                self._send(number)
            exchange.meet()
            with self._trouble:
                for entry in exchange.touched(number):
                    if exchange.sees(entry.owner):
                        data = exchange.memory(number, entry)
                        _deliver(data, self._held[entry.array], self._plans[entry.array], entry.piece)
            reads = ahead

    def _start(self, number: int) -> list[Callable[[], None]]:
        """Begin to read the pieces that this rank owns in a round; nothing after the last one."""
        if number >= len(self._exchange):
            return []
        return [
            self._reader.start(
                self._which[entry.array],
                self._plans[entry.array],
                entry.piece,
                self._exchange.memory(number, entry),
            )
            for entry in self._exchange.mine(number)
        ]

    def _send(self, number: int) -> None:
        """Send what ranks want of pieces that they don't see."""
        exchange, held, plans = self._exchange, self._held, self._plans
        asked = self._ask(number) if exchange.listed else {}
        targets: dict[int, list[tuple[Held, int, Cut]]] = {}
        with self._trouble:
            for array, piece, owner, _ in exchange.touched(number):
                if not exchange.sees(owner):
                    each = held[array]
                    for _, _, index, overlap in cuts(plans[array], piece, each.parts(each.rank)):
                        targets.setdefault(owner, []).append((each, index, overlap))
        sizes = {owner: sum(o.size * each.itemsize for each, _, o in its) for owner, its in targets.items()}
        sent = exchange.buffers("data out", exchange.expect(sizes))
        received = exchange.buffers("data in", sizes)
        with self._trouble:
            places = dict.fromkeys(sent, 0)
            for entry in exchange.mine(number):
                each, its = held[entry.array], plans[entry.array]
                elements = exchange.memory(number, entry).view(carrier(its.itemsize))
                for rank, target in sent.items():
                    parts = each.parts(rank) if each.known else (asked[rank, entry.array, entry.piece],)
                    for first, shape, _, overlap in cuts(its, entry.piece, parts):
                        begin = places[rank]
                        places[rank] = end = begin + overlap.size * its.itemsize
                        box = elements[first : first + math.prod(shape)].reshape(shape)
                        get(box, overlap.inside, target[begin:end].view(elements.dtype).reshape(overlap.shape))
        exchange.group.exchange(sent, received)
        with self._trouble:
            for owner, wanted in targets.items():
                begin = 0
                for each, index, overlap in wanted:
                    end = begin + overlap.size * each.itemsize
                    part = received[owner][begin:end].view(carrier(each.itemsize)).reshape(overlap.shape)
                    each.fill(index, overlap, part)
                    begin = end

    def _ask(self, number: int) -> dict[tuple[int, int, int], Part]:
        """Tell owners which rows this rank wants of pieces that it does not see; return what others want."""
        exchange, held, plans = self._exchange, self._held, self._plans
        questions: dict[int, list[npt.NDArray[Any]]] = {}
        with self._trouble:
            for array, piece, owner, _ in exchange.touched(number):
                if not exchange.sees(owner) and not held[array].known:
                    rows = own_rows(held[array], plans[array], piece)
                    questions.setdefault(owner, []).extend(tell_rows(rows))
        received = exchange.send("rows", questions)
        asked: dict[tuple[int, int, int], Part] = {}
        with self._trouble:
            places = dict.fromkeys(received, 0)
            for array, piece, *_ in exchange.mine(number):
                if held[array].known:
                    continue
                for rank, source in received.items():
                    asked[rank, array, piece], places[rank] = read_rows(plans[array], source, places[rank])
        return asked
