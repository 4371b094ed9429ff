"""The rounds in which ranks exchange pieces: what a rank has to do with each, where, and what they tell each other.

Ranks of one node see each other's pieces (`Shared`) and take from, or put into, them what they hold. To ranks on other
nodes it is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..comm.group import Group
from ..layouts.parts import Part
from .assembly import Marks
from .held import Held
from .plan import ArrayPlan, Entry, mark_type, marks_place, rounds
from .shared import shared

Bytes = npt.NDArray[np.uint8]
SLOTS = 3
"""Rounds that have memory of their own: while one is exchanged, the one before is written or the next one is read."""


class Exchange:
    """The rounds of one save or load.

    Parameters
    ----------
    group, held, plans
        The ranks, the arrays, and how these are moved. Collective.
    """

    def __init__(self, group: Group, held: Sequence[Held], plans: Sequence[ArrayPlan]) -> None:
        self.group, self.held, self.plans = group, held, plans
        self.schedule = rounds(plans, group.size)
        self.slots = min(SLOTS, len(self.schedule))
        self._shared = shared(group, self.slots * self.schedule.slot) if len(self.schedule) else None
        self._ranges = np.array([each.flat_range for each in held], np.int64).reshape(-1, 2)
        self._unknown = np.array([not each.known for each in held], bool)
        self._buffers: dict[tuple[str, int], Bytes] = {}

    def __len__(self) -> int:
        return len(self.schedule)

    def sees(self, rank: int) -> bool:
        """Return whether the pieces of a rank are to be seen here."""
        return self._shared is not None and rank in self._shared.of

    @property
    def sends(self) -> bool:
        """Whether some ranks don't see each other's pieces; the same on every rank."""
        return self._shared is not None and not self._shared.everywhere

    @property
    def listed(self) -> bool:
        """Whether there are arrays of which each rank knows its own rows alone."""
        return bool(self._unknown.any())

    def mine(self, number: int) -> list[Entry]:
        """Return the pieces of a round that this rank owns."""
        rank = self.group.rank
        return self.schedule.entries(number, lambda array, owner, lo, hi: owner == rank)

    def touched(self, number: int) -> list[Entry]:
        """Return the pieces of a round that this rank may hold elements of.

        Of arrays of which no rank knows what the others hold these are all, so that owners need not guess who sends.
        """
        ranges, unknown = self._ranges, self._unknown
        return self.schedule.entries(
            number,
            lambda array, owner, lo, hi: (lo < ranges[array, 1]) & (hi > ranges[array, 0]) | unknown[array],
        )

    def memory(self, number: int, entry: Entry) -> Bytes:
        """Return where the owner of a piece of a round puts it together; the owner is one that this rank `sees`."""
        assert self._shared is not None
        its = self.plans[entry.array]
        lo, hi = its.span(entry.piece)
        begin = number % self.slots * self.schedule.slot + entry.place
        return self._shared.of[entry.owner][begin : begin + (hi - lo) * its.itemsize]

    def marks(self, number: int, entry: Entry) -> Marks:
        """Return the marks of a piece's rows, beside what `memory` returns."""
        assert self._shared is not None
        its = self.plans[entry.array]
        (lo, hi), (first, last) = its.span(entry.piece), its.rows(entry.piece)
        kind = mark_type(self.group.size)
        begin = number % self.slots * self.schedule.slot + marks_place(entry.place, (hi - lo) * its.itemsize)
        return self._shared.of[entry.owner][begin : begin + (last - first) * kind.itemsize].view(kind)

    def meet(self) -> None:
        """Wait for the other ranks, and let what each has put into memory be seen by all. Collective."""
        if self._shared is not None and self._shared.anywhere:
            self.group.barrier()

    def buffers(self, use: str, sizes: Mapping[int, int]) -> dict[int, Bytes]:
        """Return memory for messages to or from ranks; the same again for the same use."""
        found = {}
        for rank, size in sizes.items():
            memory = self._buffers.get((use, rank))
            if memory is None or len(memory) < size:
                memory = self._buffers[use, rank] = np.empty(size, np.uint8)
            found[rank] = memory[:size]
        return found

    def send(self, use: str, sources: Mapping[int, Sequence[npt.NDArray[Any]]]) -> dict[int, Bytes]:
        """Send arrays to ranks; return what others send, valid until the next call for the same use. Collective."""
        sizes = {rank: sum(each.nbytes for each in its) for rank, its in sources.items()}
        expected = self.expect(sizes)
        sent, received = self.buffers(f"{use} out", sizes), self.buffers(f"{use} in", expected)
        for rank, target in sent.items():
            begin = 0
            for source in sources[rank]:
                end = begin + source.nbytes
                target[begin:end].view(source.dtype).reshape(source.shape)[...] = source
                begin = end
        self.group.exchange(sent, received)
        return received

    def expect(self, sizes: Mapping[int, int]) -> dict[int, int]:
        """Tell ranks a number each; return what others tell this one, without zeros. Collective."""
        numbers = np.zeros(self.group.size, np.int64)
        for rank, size in sizes.items():
            numbers[rank] = size
        return {rank: count for rank, count in enumerate(self.group.counts(numbers).tolist()) if count}


def tell_rows(rows: npt.NDArray[np.int64]) -> list[npt.NDArray[Any]]:
    """Return what tells the owner of a piece which rows of it this rank's index list names."""
    return [np.array([len(rows)], np.int64), rows]


def read_rows(its: ArrayPlan, source: Bytes, begin: int) -> tuple[Part, int]:
    """Return what a rank holds by the rows that it tells, and where its message goes on."""
    count = int(source[begin : begin + 8].view(np.int64)[0])
    end = begin + 8 + 8 * count
    rows = source[begin + 8 : end].view(np.int64)
    return Part((rows, *((0, extent) for extent in its.shape[1:]))), end
