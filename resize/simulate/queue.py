"""The simulated scheduler's view of the machine: who holds nodes, who waits for them."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import words
from ..outlook import MINUTE
from ..view import JobView


class Request:
    """A job in the queue.

    ``nodes`` is the least and ``most`` the largest size that it takes; ``least_limit`` the time limit to which a
    backfill scheduler may cut its own to start it earlier, as ``sbatch --time-min`` allows; ``owner`` whatever is to be
    told when it starts, ``run`` the id of the malleable run that it belongs to. ``reserved`` is the start that a
    conservative scheduler promised.
    """

    __slots__ = (
        "job", "least_limit", "limit", "most", "nodes", "order", "owner", "reserved", "run", "slot", "submitted",
        "view",
    )  # fmt: skip

    def __init__(
        self, job: str, order: int, nodes: int, most: int, limit: float, submitted: float, owner: Any, run: str | None,
        least_limit: float = math.inf,
    ) -> None:  # fmt: skip
        self.job, self.order, self.nodes, self.most, self.limit = job, order, nodes, most, limit
        self.least_limit = min(limit, least_limit)
        self.submitted, self.owner, self.run = submitted, owner, run
        self.slot = -1
        self.reserved = math.inf
        self.view: JobView | None = None

    def cut(self, room: float) -> None:
        """Shorten the limit to the seconds before a reservation, in whole minutes, as Slurm does at the start."""
        if room < self.limit:
            self.limit = max(self.least_limit, MINUTE * (room // MINUTE))

    def as_view(self) -> JobView:
        if self.view is None:
            self.view = JobView(
                self.job, "pending", self.nodes, -float(self.order), self.submitted,
                time_limit=self.limit, reason="Resources", nodes_max=self.most, run=self.run,
            )  # fmt: skip
        return self.view


class Allocation:
    """Nodes that are held. ``end`` is when the time limit is reached.

    ``where`` says which nodes, as bits, under a scheduler that tells one from another.
    """

    __slots__ = ("counted", "end", "job", "nodes", "order", "owner", "run", "start", "submitted", "view", "where")

    def __init__(self, request: Request, nodes: int, start: float) -> None:
        self.job, self.order, self.owner, self.run = request.job, request.order, request.owner, request.run
        self.nodes, self.start, self.end, self.submitted = nodes, start, start + request.limit, request.submitted
        self.counted = start
        self.where = 0
        self.view: JobView | None = None

    def as_view(self) -> JobView:
        if self.view is None:
            self.view = JobView(
                self.job, "running", self.nodes, 0.0, self.submitted, self.start, self.end, run=self.run
            )
        return self.view


class WaitingQueue:
    """Requests in order of arrival, with arrays beside them to find candidates fast."""

    def __init__(self) -> None:
        self._items: list[Request | None] = []
        self._nodes = np.zeros(1024, dtype=np.int64)
        self._limit = np.zeros(1024, dtype=np.float64)
        self._first = 0
        self._live = 0

    def __len__(self) -> int:
        return self._live

    def __iter__(self) -> Iterator[Request]:
        return (each for each in self._items[self._first :] if each is not None)

    def append(self, request: Request) -> None:
        slot = len(self._items)
        if slot == len(self._nodes):
            if self._live < slot // 2:
                self._compact()
                slot = len(self._items)
            else:
                self._nodes = np.concatenate((self._nodes, np.zeros_like(self._nodes)))
                self._limit = np.concatenate((self._limit, np.zeros_like(self._limit)))
        request.slot = slot
        self._items.append(request)
        self._nodes[slot], self._limit[slot] = request.nodes, request.least_limit
        self._live += 1

    def remove(self, request: Request) -> None:
        self._items[request.slot] = None
        self._nodes[request.slot] = _NEVER
        request.slot = -1
        self._live -= 1
        items, first = self._items, self._first
        while first < len(items) and items[first] is None:
            first += 1
        self._first = first

    def change(self, request: Request, nodes: int, most: int) -> None:
        request.nodes, request.most, request.view, request.reserved = nodes, most, None, math.inf
        self._nodes[request.slot] = nodes

    def head(self) -> Request | None:
        return self._items[self._first] if self._live else None

    def behind(self, nodes: int, slack: float, extra: int) -> list[Request]:
        """Return the requests behind the head that need at most ``nodes``, and either can be over within ``slack``
        seconds or need at most ``extra``, in order."""
        begin, end = self._first + 1, len(self._items)
        if self._live < 2:
            return []
        size = self._nodes[begin:end]
        fits = np.flatnonzero((size <= nodes) & ((self._limit[begin:end] <= slack) | (size <= extra)))
        return [item for place in fits if (item := self._items[begin + int(place)]) is not None]

    def smallest(self) -> int | None:
        """Return the least size that anybody waits for."""
        return int(self._nodes[self._first : len(self._items)].min()) if self._live else None

    def top(self, count: int) -> list[Request]:
        """Return the first so many requests."""
        found: list[Request] = []
        for item in self._items[self._first :]:
            if item is not None:
                found.append(item)
                if len(found) == count:
                    break
        return found

    def _compact(self) -> None:
        kept = list(self)
        self._items = list(kept)
        for slot, item in enumerate(kept):
            item.slot = slot
            self._nodes[slot], self._limit[slot] = item.nodes, item.least_limit
        self._first = 0


_NEVER = 1 << 60


class Machine:
    """Nodes, free and held."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.free = total
        self.held: dict[str, Allocation] = {}
        self._ends: list[tuple[float, int, Allocation]] = []

    def take(self, allocation: Allocation) -> None:
        """Hold nodes.

        Raises
        ------
        ValueError
            When they are not free.
        """
        if not 0 < allocation.nodes <= self.free:
            raise ValueError(f"job {allocation.job} can't have {words.nodes(allocation.nodes)}, {self.free} are free")
        self.free -= allocation.nodes
        self.held[allocation.job] = allocation
        insort(self._ends, (allocation.end, allocation.order, allocation))

    def give_back(self, allocation: Allocation, nodes: int | None = None) -> None:
        """Free some of an allocation's nodes, or all."""
        given = allocation.nodes if nodes is None else nodes
        if not 0 < given <= allocation.nodes:
            raise ValueError(f"job {allocation.job} holds {words.nodes(allocation.nodes)}, it can't give {given} back")
        self.free += given
        allocation.view = None
        if given < allocation.nodes:
            allocation.nodes -= given
            return
        del self.held[allocation.job]
        place = bisect_left(self._ends, (allocation.end, allocation.order))
        del self._ends[place]

    def add(self, allocation: Allocation, nodes: int) -> None:
        """Let an allocation hold more nodes, as only a central scheduler can."""
        if not 0 < nodes <= self.free:
            raise ValueError(f"job {allocation.job} can't have {words.count(nodes, 'more node')}, {self.free} are free")
        self.free -= nodes
        allocation.nodes += nodes
        allocation.view = None

    def releases(self, now: float) -> list[tuple[float, int]]:
        """Return (time, nodes) of the ends by limit, in order; what runs over its limit may end now."""
        return [(end if end > now else now, allocation.nodes) for end, _, allocation in self._ends]

    def shadow(self, now: float, nodes: int) -> tuple[float, int]:
        """Return when so many nodes are free at the latest, and how many beside them."""
        free = self.free
        ends = self._ends
        for place, (end, _, allocation) in enumerate(ends):
            free += allocation.nodes
            if free >= nodes:
                for later, _, another in ends[place + 1 :]:
                    if later > end and later > now:
                        break
                    free += another.nodes
                return max(end, now), free - nodes
        return math.inf, 0
