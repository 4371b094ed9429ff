"""Where runs are kept, what they are called, and how they are found again."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

from .registry import registered
from .rundir import RunDir, RunDirError

RUNS = Path("dmr-runs")
"""Where runs are kept by default, below the working directory."""


def run_name(command: Sequence[str], job: str | None, now: float) -> str:
    """Return a name for a run: the program's, and the job's number or the time."""
    words = [word for word in command if not word.startswith("-")]
    scripts = [word for word in words if word.endswith(".py")]
    modules = [after for word, after in zip(command, command[1:], strict=False) if word == "-m"]
    stem = Path((scripts or modules or words or ["run"])[0]).name.removesuffix(".py")
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", stem)[:40].strip("-.") or "run"
    return f"{stem}-{job or time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}"


def free_folder(parent: Path, name: str) -> Path:
    """Return a folder of that name that holds no run yet."""
    folder, count = parent / name, 1
    while (folder / "run.json").exists():
        count += 1
        folder = parent / f"{name}-{count}"
    return folder


def find_run(text: str) -> RunDir:
    """Return the run that a user means: a run directory, or the name of one below ``dmr-runs``.

    Raises
    ------
    RunDirError
        When there is none.
    """
    for folder in (Path(text), RUNS / text):
        if (folder / "run.json").exists():
            return RunDir(folder.absolute())
    elsewhere = [str(run.folder) for run in registered() if run.folder.name == text]
    if elsewhere:
        raise RunDirError(f"there is no run {text!r} here or below {RUNS}/; there is {elsewhere[-1]}")
    known = sorted(path.parent.name for path in RUNS.glob("*/run.json"))
    hint = f"; there {'is' if len(known) == 1 else 'are'} {', '.join(known[-5:])}" if known else ""
    raise RunDirError(f"there is no run {text!r} here or below {RUNS}/{hint}")
