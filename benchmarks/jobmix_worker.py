"""What `jobmix.py` runs: a program whose step takes the time that Amdahl's law gives for its nodes.

jobmix_worker.py WORK PARALLEL STEPS KIB DONE: WORK are the seconds of the whole program on one node, spent asleep; the
state is real, is changed by every step, and has to be right to the bit at the end.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

import dmr

COLUMNS = 128


@dmr.malleable
def main(run: dmr.Run, work: float, parallel: float, steps: int, kib: int, done: Path) -> None:
    state = run.array("state", (kib * 1024 // (8 * COLUMNS), COLUMNS))
    rows = np.arange(state.box.lo[0], state.box.hi[0], dtype="f8")[:, None]
    if run.fresh:
        state.local[:] = rows
    pace = work * (1 - parallel + parallel / run.nodes) / steps
    for step in run.steps(steps):
        state.local[:] += step
        time.sleep(pace)
    if not np.array_equal(state.local, np.broadcast_to(rows + steps * (steps - 1) // 2, state.local.shape)):
        raise ValueError(f"rank {run.rank}: the state is wrong after {steps} steps")
    run.comm.Barrier()
    if run.rank == 0:
        done.write_text(repr(time.time()))


if __name__ == "__main__":
    main(float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
