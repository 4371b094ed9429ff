"""How many threads ranks have use for, by the cores that they may run on; 4 ranks of one node."""

from __future__ import annotations

import os

from mpi4py import MPI

from dmr.ckpt.comm.cores import threads_of
from dmr.ckpt.comm.group import Group

comm = MPI.COMM_WORLD
assert comm.size == 4
group = Group(comm)
whole, odd = set(range(64)), set(range(1, 64, 2))
for masks, expected in [
    ([set(range(8))] * 4, [2, 2, 2, 2]),
    ([set(range(4))] * 4, [1, 1, 1, 1]),
    ([{0}] * 4, [1, 1, 1, 1]),
    ([whole] * 4, [8, 8, 8, 8]),
    ([set(range(4 * rank, 4 * rank + 4)) for rank in range(4)], [4, 4, 4, 4]),
    ([set(range(3)), set(range(3)), {300, 301, 302}, {2, 7, 302, 303}], [1, 1, 1, 1]),
    ([{0, 1}, {2, 3}, {4, 5, 6}, {9}], [2, 2, 3, 1]),
    ([odd, {0, 2}, {4, 6, 8, 10}, odd], [8, 2, 4, 8]),
]:
    os.sched_getaffinity = lambda process, mine=masks[comm.rank]: mine  # type: ignore[assignment,misc]
    found = comm.allgather(threads_of(group))
    assert found == expected, (masks, found)
group.free()
