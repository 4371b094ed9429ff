"""Backfilling as Slurm does it: a reservation for every waiting job, on nodes with names.

What `easy` and `conservative` count, Slurm names: a reservation holds the very nodes that were picked for it, so that a
job behind it may find as many others idle and still not be let in. After ``sched/backfill`` and ``select/cons_tres`` of
Slurm 22.05 to 25.05, for jobs that differ in nodes, time limit and arrival only:

1. Jobs start in order until one doesn't fit.
2. Then every waiting job, in order, is given the first time at which it has nodes that no job before it has reserved
   meanwhile, and starts or reserves them from then until its limit.
3. When running jobs are imagined to have ended, so have all that end within 30 s of them, then within 60 s, and so on
   (``bf_window_linear`` is off), so a reservation is often later than it has to be.
4. Nodes are picked from the smallest row of neighbours that is large enough, else from the largest rows.
5. A job that takes a range of sizes gets its time by the least of them, and then reserves nodes up to the most, so
   that one that could do with few may keep others from being backfilled as one that needs many does.
6. A job with a least time limit (``--time-min``) is tried and reserved for with that, and gets that, however far away
   the next reservation of its nodes is: the limit is to be "as high as possible" then, but of what was cut before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .queue import Machine, Request, WaitingQueue

if TYPE_CHECKING:
    from .schedulers import Start

WINDOW = 30.0
"""Seconds within which ends of running jobs are taken together at first."""
TESTED = 500
"""How many waiting jobs are looked at (``bf_max_job_test``)."""


class _Space:
    """Which nodes are not reserved, over time: (from, until, nodes), nodes as bits."""

    def __init__(self, now: float, nodes: int) -> None:
        self.parts: list[tuple[float, float, int]] = [(now, math.inf, nodes)]

    def common(self, start: float, end: float) -> tuple[int, float | None]:
        """Return the nodes that are free of reservations from start to end, and when the first part ends in it."""
        nodes, change = -1, None
        for begin, until, free in self.parts:
            if until > start and begin < end:
                nodes &= free
                if change is None and until < math.inf:
                    change = until
        return nodes, change

    def reserve(self, start: float, end: float, nodes: int) -> None:
        parts: list[tuple[float, float, int]] = []
        for begin, until, free in self.parts:
            cuts = sorted({begin, until, *(when for when in (start, end) if begin < when < until)})
            for first, last in zip(cuts, cuts[1:], strict=False):
                parts.append((first, last, free & ~nodes if first >= start and last <= end else free))
        self.parts = parts


class _Nodes:
    """Who holds which nodes."""

    def __init__(self, now: float, machine: Machine) -> None:
        self.now, self.machine = now, machine

    def free(self) -> int:
        """Return the free nodes, as bits. Of an allocation that was shrunk, the last nodes were given back."""
        free = (1 << self.machine.total) - 1
        for each in self.machine.held.values():
            while each.where.bit_count() > each.nodes:
                each.where &= ~(1 << (each.where.bit_length() - 1))
            free &= ~each.where
        return free

    def begin(self, request: Request, free: int, start: Start) -> None:
        """Start a request on some of these nodes, on as many as it takes."""
        picked = pick(free, min(request.most, free.bit_count()))
        start(request, picked.bit_count())
        if request.job in self.machine.held:
            self.machine.held[request.job].where = picked

    def later(self, nodes: int, most: int, allowed: int) -> tuple[float, int]:
        """Return when so many of the allowed nodes are free, as far as limits tell, and which, up to the most."""
        free = self.free()
        ends = sorted((max(each.end, self.now), each.where) for each in self.machine.held.values())
        place, window = 0, WINDOW
        while place < len(ends):
            first = when = ends[place][0]
            while place < len(ends) and ends[place][0] <= first + window:
                when, released = ends[place]
                free |= released
                place += 1
            window *= 2
            found = free & allowed
            if found.bit_count() >= nodes:
                return when, pick(found, min(most, found.bit_count()))
        return math.inf, 0


def pick(free: int, nodes: int) -> int:
    """Return so many of the free nodes, both as bits: neighbours as far as that goes."""
    rows = sorted(_rows(free))
    fitting = [(length, first) for first, length in rows if length >= nodes]
    if fitting:
        return ((1 << nodes) - 1) << min(fitting)[1]
    picked = 0
    for first, length in sorted(rows, key=lambda row: (-row[1], row[0])):
        taken = min(length, nodes)
        picked |= ((1 << taken) - 1) << first
        nodes -= taken
    return picked


def _rows(free: int) -> Iterator[tuple[int, int]]:
    """Yield (first, length) of each row of neighbours."""
    place = 0
    while free:
        skipped = (free & -free).bit_length() - 1
        free >>= skipped
        length = (~free & (free + 1)).bit_length() - 1
        yield place + skipped, length
        place += skipped + length
        free >>= length


def slurm(now: float, machine: Machine, queue: WaitingQueue, start: Start) -> None:
    """Start what Slurm would start now; a scheduler as `schedulers` has them."""
    nodes = _Nodes(now, machine)
    while (head := queue.head()) is not None and head.nodes <= machine.free:
        nodes.begin(head, nodes.free(), start)
    if head is None or machine.free == 0 or len(queue) < 2:
        return
    space = _Space(now, (1 << machine.total) - 1)
    for request in queue.top(TESTED):
        _place(request, now, nodes, space, start)
        if machine.free == 0:
            return


def _place(request: Request, now: float, nodes: _Nodes, space: _Space, start: Start) -> None:
    """Start a request, or reserve nodes for it, at the first time at which no reservation is in the way."""
    when: float | None = now
    while when is not None:
        end = when + request.least_limit
        allowed, change = space.common(when, end)
        if allowed.bit_count() < request.nodes:
            when = change
            continue
        idle = nodes.free() & allowed
        found = now
        if idle.bit_count() < request.nodes:
            found, picked = nodes.later(request.nodes, request.most, allowed)
        else:
            if when <= now:
                request.limit = request.least_limit
                nodes.begin(request, idle, start)
                return
            picked = pick(idle, min(request.most, idle.bit_count()))
        found = max(found, when)
        end = found + request.least_limit
        if found == math.inf or (change is not None and found > change):
            when = change
        elif space.common(found, end)[0] & picked != picked:
            when = found
        else:
            space.reserve(found, end, picked)
            return
