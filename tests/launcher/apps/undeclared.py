"""A program that declares no phases and has two: one computes and scales, the other writes and does not.

The arguments are seconds of a step on one node, and the numbers of steps of the two. Times are virtual: a rank is
busy for a share of them.
"""

from __future__ import annotations

import os
import sys
import time

import dmr

SERIAL = {"compute": 0.02, "write": 0.95}
BUSY = {"compute": 0.3, "write": 0.02}
SLICE = 0.05


def work(seconds: float, busy: float, stream: int | None) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        part = min(SLICE, left)
        until = time.process_time() + busy * part
        while time.process_time() < until:
            pass
        if stream is not None:
            os.pwrite(stream, bytes(65536), 0)
        time.sleep(max(0.0, min(part, end - time.monotonic()) - busy * part))


@dmr.malleable
def main(run: dmr.Run) -> None:
    unit, *counts = map(float, sys.argv[1:])
    order = [name for name, count in zip(SERIAL, counts, strict=True) for _ in range(int(count))]
    run.array("u", shape=(100_000,), dtype="f8")
    path = f"written.{run.comm.rank}"
    stream = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    for step in run.steps(len(order)):
        name = order[step]
        seconds = unit * (SERIAL[name] + (1 - SERIAL[name]) / run.nodes)
        work(seconds, BUSY[name], stream if name == "write" else None)
    os.close(stream)


main()
