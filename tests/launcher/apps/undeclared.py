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
BUSY = {"compute": 0.15, "write": 0.02}
SLICE = 0.05
PIECE, FILE = 1 << 16, 1 << 26
"""Bytes written each time, and after which it begins at the front: pages that are dirty already do not count again."""


def work(seconds: float, busy: float, stream: int | None, written: list[int]) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        part = min(SLICE, left)
        until = time.process_time() + busy * part
        while time.process_time() < until:
            pass
        if stream is not None:
            os.pwrite(stream, bytes(PIECE), written[0] % FILE)
            written[0] += PIECE
        time.sleep(max(0.0, min(part, end - time.monotonic()) - busy * part))


@dmr.malleable
def main(run: dmr.Run) -> None:
    unit, *counts = map(float, sys.argv[1:])
    order = [name for name, count in zip(SERIAL, counts, strict=True) for _ in range(int(count))]
    run.array("u", shape=(100_000,), dtype="f8")
    path = f"written.{run.comm.rank}"
    stream, written = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), [0]
    for step in run.steps(len(order)):
        name = order[step]
        seconds = unit * (SERIAL[name] + (1 - SERIAL[name]) / run.nodes)
        work(seconds, BUSY[name], stream if name == "write" else None, written)
    os.close(stream)


main()
