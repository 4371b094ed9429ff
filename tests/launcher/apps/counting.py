"""A field of cells that each follow a recurrence of their own, and count their steps: any loss or repeat shows.

Usage: counting.py STEPS [SECONDS] [--fail-at STEP [--always]] [--user-error] [--suggest WHAT] [--hang-at STEP]
    [--scale] [--exit STATUS] [--open FILE]

Writes ``final.npy`` into the working directory at the end.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

import dmr

CELLS = 97


@dmr.malleable
def main(run: dmr.Run, given: argparse.Namespace) -> None:
    field = run.array("field", shape=(CELLS, 3), dtype="f8")
    count = run.array("count", shape=(CELLS,), dtype="i8")
    if given.user_error:
        raise dmr.Error("the input deck names no material")
    lo = field.box.lo[0] if hasattr(field.box, "lo") else field.box[0].start
    rows = np.arange(lo, lo + len(field.local), dtype="f8")[:, None]
    if run.fresh:
        field.local[:] = rows + np.arange(3)
    if given.suggest:
        run.suggest(given.suggest)
    if given.exit is not None:
        raise SystemExit(given.exit)
    if given.open:
        Path(given.open).read_text()
    for step in run.steps(given.steps):
        field.local[:] = np.sin(field.local) * 1.7 + rows / (step + 1)
        count.local[:] += 1
        time.sleep(given.seconds / run.ranks if given.scale else given.seconds)
        if given.trace and run.rank == 0:
            with open(given.trace, "a") as stream:
                stream.write(f"[{run.generation}, {step}]\n")
        if given.fail_at is not None and step >= given.fail_at and run.rank == run.ranks - 1:
            failed = Path("failed-once")
            if given.always or not failed.exists():
                failed.touch()
                raise RuntimeError(f"made to fail at step {step}")
        if given.hang_at == step and not Path("hung-once").exists():
            Path("hung-once").touch()
            time.sleep(600)
    whole = run.comm.gather((field.local, count.local), root=0)
    if run.rank == 0:
        np.save("final.npy", np.concatenate([np.column_stack([a, b]) for a, b in whole]))
        print(f"finished on {run.ranks} ranks, pid {os.getpid()}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("steps", type=int)
    parser.add_argument("seconds", type=float, nargs="?", default=0.02)
    parser.add_argument("--scale", action="store_true", help="a step takes SECONDS on one rank, less on more")
    parser.add_argument("--fail-at", type=int)
    parser.add_argument("--always", action="store_true")
    parser.add_argument("--user-error", action="store_true")
    parser.add_argument("--exit", type=int, help="status to end with before the first step")
    parser.add_argument("--open", help="file to open before the first step")
    parser.add_argument("--suggest")
    parser.add_argument("--trace", help="file that generation and number of each step are appended to")
    parser.add_argument("--hang-at", type=int)
    main(parser.parse_args())
