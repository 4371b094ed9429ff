"""A field on 2-D blocks, a value and a generator; the result depends on every step, not on the process count."""

import argparse
import hashlib
import os
import signal
import time

import numpy as np

import dmr

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--pace", type=float, default=0.0)
parser.add_argument("--shape", type=int, nargs=2, default=(37, 23))
parser.add_argument("--dtype", default="f8")
parser.add_argument("--extra", action="store_true", help="declare one array more")
parser.add_argument("--without-value", action="store_true")
parser.add_argument("--fail-at", type=int)
parser.add_argument("--fail-rank", type=int, default=1)
parser.add_argument("--how", default="raise", choices=["raise", "exit", "kill", "all"])
parser.add_argument("--wish", choices=["expand", "shrink", "stay"])
parser.add_argument("--wish-rank", type=int, default=0)
options = parser.parse_args()


@dmr.malleable
def main(run: dmr.Run) -> bool:
    shape = tuple(options.shape)
    u = run.array("u", shape, options.dtype, dmr.Block(axes=(0, 1)), halo=1)
    total = None if options.without_value else run.value("total", 0)
    noise = run.rng("noise", seed=7)
    if options.extra:
        run.array("a/b extra", (5,))
    if run.fresh:
        u.local[:] = np.arange(np.prod(shape)).reshape(shape)[u.box.slices]
    with run.phase("main"):
        for step in run.steps(options.steps):
            if step == options.fail_at and run.generation <= 1:
                if options.how == "all":
                    raise ValueError(f"every rank fails at step {step}")
                if run.rank == options.fail_rank % run.ranks:
                    if options.how == "exit":
                        raise SystemExit(3)
                    if options.how == "kill":
                        os.kill(os.getpid(), signal.SIGKILL)
                    raise ValueError(f"this rank fails at step {step}")
            if options.wish and step == 3:
                if run.rank == options.wish_rank:
                    run.suggest(options.wish)
                    run.next_expand(2)
                    run.cancel_expand()
                run.note("wished", what=options.wish)
            u.local[:] = u.local * 0.999 + noise.random(shape)[u.box.slices]
            if total:
                total.value += step
            time.sleep(options.pace)
    whole = u.gather(run.comm)
    if whole is not None:
        print("digest", hashlib.sha256(whole.tobytes()).hexdigest()[:16], total.value if total else "", flush=True)
    return run.rank == 0


if main():
    print("after main", flush=True)
