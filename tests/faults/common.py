"""What the campaigns share: a state that its step determines, a job that saves it, and the judge."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from dmr.ckpt import ArrayItem, Block, Layout, Replicated, RngItem, Store, ValueItem
from dmr.ckpt.transfer import plan

PIECE = 16 << 10
HERE = Path(__file__).parent
LAYOUTS: dict[str, tuple[tuple[int, ...], Layout]] = {
    "rows": ((900, 30), Block(axis=0)),
    "columns": ((64, 301), Block(axis=1)),
    "grid": ((40, 30, 20), Block(axes=(0, 1, 2))),
    "copy": ((1000,), Replicated()),
    "none": ((0, 4), Block()),
}


def small_pieces() -> None:
    """Cut small arrays into many pieces."""
    plan.PIECE = PIECE


def whole(name: str, step: int) -> np.ndarray[Any, Any]:
    shape = LAYOUTS[name][0]
    return np.random.default_rng([step, len(name)]).random(shape)


def state(step: int, ranks: int = 1, rank: int = 0) -> dict[str, Any]:
    items: dict[str, Any] = {"step": ValueItem(step), "noise": RngItem(np.random.default_rng(step))}
    for name, (shape, layout) in LAYOUTS.items():
        (box,) = layout.boxes(shape, ranks)[rank]
        items[name] = ArrayItem(whole(name, step)[box.slices], layout, shape)
    return items


def judge(folder: Path, at_least: int, fast_dir: Path | None = None) -> int:
    """Check that the newest committed state loads, bitwise, and is not older than was reported; return its step."""
    with Store(folder, fast_dir=fast_dir) as store:
        loaded = store.load_newest()
        if loaded is None:
            assert at_least <= 0, f"{folder}: step {at_least} was committed, and nothing is there"
            return 0
        assert loaded.step >= at_least, f"{folder}: step {at_least} was committed, and step {loaded.step} is the newest"
        assert loaded.value("step") == loaded.step
        for name in LAYOUTS:
            found = loaded.array(name).tobytes()
            assert found == whole(name, loaded.step).tobytes(), f"{folder}: array {name} of step {loaded.step}"
        assert loaded.rng("noise").random() == np.random.default_rng(loaded.step).random()
        return loaded.step


def judge_levels(folder: Path, at_least: int, fast_dir: Path) -> tuple[int, bool]:
    """As `judge`, of both levels; return the step, and whether it was on the node alone.

    Without the node there is the one before, and once it was loaded there it is in the shared folder, too.
    """
    shared = judge(folder, at_least - 1)
    newest = judge(folder, at_least, fast_dir)
    assert judge(folder, newest) == newest and not list(fast_dir.iterdir())
    return newest, newest > shared


def report(path: Path, step: int) -> None:
    """Tell that a step was committed, in one write that survives the process."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(handle, b"%d\n" % step)
    os.close(handle)


def reported(path: Path) -> int:
    """Return the last step that was reported."""
    try:
        return int(path.read_text().split()[-1])
    except (FileNotFoundError, IndexError):
        return 0


def mpi_command(ranks: int) -> list[str]:
    """Return the command that starts ranks of this Python; empty where there is no MPI."""
    beside = Path(sys.executable).parent
    names = [str(beside / name) for name in ("mpirun", "mpiexec") if (beside / name).exists()]
    program = (names or [shutil.which("mpirun") or shutil.which("mpiexec") or ""])[0]
    if not program:
        return []
    said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    more = ["--oversubscribe"] if "Open MPI" in said or "OpenRTE" in said else []
    return [program, *more, "-n", str(ranks), sys.executable]


def environment() -> dict[str, str]:
    return {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def end_within(job: subprocess.Popen[Any], seconds: float) -> float:
    """Wait for a job's end; return how long it took. A job that does not end is a failure."""
    begin = time.monotonic()
    try:
        job.wait(seconds)
    except subprocess.TimeoutExpired:
        job.kill()
        raise AssertionError(f"the ranks hang: not gone {seconds} s after the fault") from None
    return time.monotonic() - begin
