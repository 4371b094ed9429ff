"""Three phases that scale differently, in virtual work: a step sleeps as long as it would compute.

The arguments are seconds of a step on one node, and the numbers of steps of the three.
"""

from __future__ import annotations

import sys
import time

import dmr

SERIAL = {"solve": 0.002, "write": 0.9, "mesh": 0.2}


@dmr.malleable
def main(run: dmr.Run) -> None:
    unit, *counts = map(float, sys.argv[1:])
    order = [name for name, count in zip(SERIAL, counts, strict=True) for _ in range(int(count))]
    run.array("u", shape=(100_000,), dtype="f8")
    for step in run.steps(len(order)):
        name = order[step]
        run.phase(name)
        time.sleep(unit * (SERIAL[name] + (1 - SERIAL[name]) / run.nodes))


main()
