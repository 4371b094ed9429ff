"""Saves without end in two levels, and tells each step that was committed. Without MPI.

Arguments: shared folder, folder of the node. The first line is the step that it goes on from.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from dmr.ckpt import ArrayItem, Block, Store

SHAPE = (4000,)


def items(step: int) -> dict[str, Any]:
    return {"u": ArrayItem(np.random.default_rng(step).random(SHAPE), Block(), SHAPE)}


with Store(Path(sys.argv[1]), fast_dir=Path(sys.argv[2])) as store:
    loaded = store.load_newest()
    step = 0 if loaded is None else loaded.step
    if loaded is not None:
        assert loaded.array("u").tobytes() == np.random.default_rng(step).random(SHAPE).tobytes()
    print(step, flush=True)
    while True:
        step += 1
        store.save(step, items(step))
        print(step, flush=True)
