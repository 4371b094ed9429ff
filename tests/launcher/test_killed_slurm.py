"""dmr-launch killed with SIGKILL at each step of a handover through a real Slurm: one successor, nothing lost."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Expected = Callable[[int], np.ndarray]

OLD = ["1:submitting", "1:submitted", "1:requested", "1:left", "1:ended", "1:released", "1:handed"]
NEW = ["2:started", "2:taking", "2:taken", "2:leased", "2:launched", "2:computing"]


CHOSEN = ["1:submitting", "1:ended", "1:released", "2:taking", "2:launched"]
"""All of them take minutes: DMR_CHAOS=1 runs them."""


@pytest.mark.slow
@pytest.mark.parametrize("step", [*OLD, *NEW] if os.environ.get("DMR_CHAOS") else CHOSEN)
def test_any_instant_will_do(slurm: Any, expected_after: Expected, step: str) -> None:
    options = ("--nodes", "1:3", "--dwell", "1h", "--checkpoint-every", "20steps")
    # What follows a launcher that was killed: a script that stops at an error, as good ones do.
    slurm.submit(150, 0.05, options=options, sbatch=("--nodes=1",), before="set -e", kill_at=step)
    slurm.at_step(3)
    slurm.dmr("resize", "run", "--nodes", "3")
    limit, resumed = time.monotonic() + 120, 0
    while not slurm.history.finished:
        assert time.monotonic() < limit, slurm.output()
        state = json.loads(slurm.dmr("status", "run", "--json").stdout)["state"]
        assert state not in ("failed", "stopped"), slurm.output()
        if state == "lost" and not slurm.queue():
            resumed += slurm.dmr("resume", "run").returncode == 0
        time.sleep(0.3)
    out = slurm.finished()
    assert np.array_equal(slurm.final(), expected_after(150)), out
    assert resumed <= 1, out
    computed = [each for each in slurm.history.generations if each.first_step is not None]
    assert all(a.end is None or a.end <= b.start + 1 for a, b in zip(computed, computed[1:], strict=False)), out
    assert (slurm.folder / "post.txt").read_text().count("post-command") == 1
