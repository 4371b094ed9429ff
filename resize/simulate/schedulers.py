"""Schedulers of rigid (and moldable) requests: first come first served, and four kinds of backfilling.

``fcfs``
    Nobody overtakes.
``backfill``
    Whatever fits starts, in order of arrival; no reservation, so that large jobs may starve.
``easy``
    The first job that can't start gets a reservation; others start if they don't delay it.
    D. Lifka 1995, "The ANL/IBM SP scheduling system".
``conservative``
    Every job gets a reservation when it arrives, and never a later one. A. Mu'alem, D. Feitelson 2001,
    "Utilization, predictability, workloads, and user runtime estimates in scheduling the IBM SP2 with backfilling".
``slurm``
    As Slurm's own backfill, node by node; see the module `slurm`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..profile import Profile
from .queue import Machine, Request, WaitingQueue
from .slurm import slurm

Start = Callable[[Request, int], None]
"""Starts a request on so many nodes, and takes it out of the queue."""
Scheduler = Callable[[float, Machine, WaitingQueue, Start], None]
"""Starts what can start now."""


def _in_order(machine: Machine, queue: WaitingQueue, start: Start) -> Request | None:
    """Start requests as long as the first one fits; return the first that doesn't."""
    while True:
        head = queue.head()
        if head is None or head.nodes > machine.free:
            return head
        start(head, min(head.most, machine.free))


def fcfs(now: float, machine: Machine, queue: WaitingQueue, start: Start) -> None:
    _in_order(machine, queue, start)


def backfill(now: float, machine: Machine, queue: WaitingQueue, start: Start) -> None:
    if _in_order(machine, queue, start) is None or machine.free == 0:
        return
    for request in queue.behind(machine.free, math.inf, 0):
        if request.nodes <= machine.free:
            start(request, min(request.most, machine.free))


def easy(now: float, machine: Machine, queue: WaitingQueue, start: Start) -> None:
    head = _in_order(machine, queue, start)
    if head is None or machine.free == 0 or len(queue) < 2:
        return
    shadow, extra = machine.shadow(now, head.nodes)
    for request in queue.behind(machine.free, shadow - now, extra):
        free = machine.free
        if request.nodes > free:
            continue
        if now + request.limit <= shadow:
            start(request, min(request.most, free))
        elif request.nodes <= extra:
            nodes = min(request.most, free, extra)
            extra -= nodes
            start(request, nodes)
        elif now + request.least_limit <= shadow:
            request.cut(shadow - now)
            start(request, min(request.most, free))


def conservative(now: float, machine: Machine, queue: WaitingQueue, start: Start) -> None:
    if not len(queue):
        return
    profile = Profile(now, machine.free, machine.releases(now))
    waiting = list(queue)
    for request in waiting:
        if request.reserved < math.inf:
            try:
                profile.reserve(max(request.reserved, now), request.limit, request.nodes)
            except ValueError:
                # Somebody runs over its limit: the promise can't be kept, so it is made anew.
                request.reserved = math.inf
    for request in waiting:
        if request.reserved < math.inf:
            profile.release(max(request.reserved, now), request.limit, request.nodes)
        request.reserved = profile.earliest(request.nodes, request.limit)
        fits = request.reserved > now and request.nodes <= machine.free
        if fits and profile.earliest(request.nodes, request.least_limit) <= now:
            request.cut(profile.until(request.nodes) - now)
            request.reserved = now
        if request.reserved <= now and request.nodes <= machine.free:
            nodes = min(request.most, machine.free, profile.least(now, request.limit))
            profile.reserve(now, request.limit, nodes)
            start(request, nodes)
        else:
            profile.reserve(request.reserved, request.limit, request.nodes)


SCHEDULERS: dict[str, Scheduler] = {
    "fcfs": fcfs,
    "backfill": backfill,
    "easy": easy,
    "conservative": conservative,
    "slurm": slurm,
}
