"""The same by the four calls, with something of its own that is saved beside."""

import hashlib
import sys
import time
from pathlib import Path

import numpy as np

import dmr

steps, pace, own = int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
action = dmr.init()
run = dmr.current()
loaded: list[str] = []
dmr.auto(action, restart=lambda: loaded.append(own.read_text()))
u = run.array("u", (41,), "f8")
turn = run.value("turn", 0)
if run.fresh:
    u.local[:] = np.arange(41.0)[u.box.slices]
while turn.value < steps:
    dmr.auto(
        dmr.check(dmr.SHOULD_EXPAND if run.rank == run.ranks - 1 else dmr.USE_POLICY),
        redist=lambda: own.write_text(f"saved at {turn.value}") if run.rank == 0 else None,
    )
    u.local[:] = u.local * 1.01 + turn.value
    turn.value += 1
    time.sleep(pace)
whole = u.gather(run.comm)
if whole is not None:
    print("digest", hashlib.sha256(whole.tobytes()).hexdigest()[:16], "own:", *loaded, flush=True)
dmr.finalize()
