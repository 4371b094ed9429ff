"""Work that is done ahead by threads, and handed over in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TypeVar

from ..comm.threads import Pool

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST = 8
"""More threads than this don't make reading faster, and each holds a piece."""


def cores() -> int:
    """Return how many threads are of use: the processor cores of this process, `MOST` at most."""
    return min(len(os.sched_getaffinity(0)), MOST)


def ahead(work: Callable[[Item], Result], items: Iterable[Item], threads: int | None = None) -> Iterator[Result]:
    """Yield ``work(item)`` for each item in order, done by threads; no more than twice their number wait.

    Parameters
    ----------
    threads
        `cores` when None.
    """
    count = cores() if threads is None else threads
    waiting: deque[Future[Result]] = deque()
    pool = Pool(count, "dmr.ckpt ahead")
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= 2 * count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for each in waiting:
            each.cancel()
        pool.close()
