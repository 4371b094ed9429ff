"""Learn from a run that has ended: its speeds, phases and costs go into the model of its program.

Done by a process of its own, for a limited time: whatever becomes of it, the run's own end stays what it was.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ..run.history import FINAL, read_history
from ..run.rundir import RunDir, RunDirError

LIMIT = 60.0
"""Seconds that it may take."""
LEAST = 20.0
"""A run that took fewer seconds is a trial, and teaches nothing."""


def learn(folder: Path) -> str:
    """Learn from a run, and return what was learnt in one line.

    Raises
    ------
    RunDirError, dmr.launcher.models.store.ModelError
    """
    from ..timeline.analysis import analyse
    from ..timeline.sources import read_sources
    from .store import ModelStore

    # With what is known: phases that nobody declared keep the names that they have.
    found = analyse(read_sources(folder), ModelStore.default().read()[0])
    if not found.record.phases:
        return "no step was measured, nothing to learn"
    ModelStore.default().add(found.key, found.record)
    return f"learnt {', '.join(found.record.phases)} for {found.key}"


def learn_apart(folder: Path) -> str | None:
    """Learn from a run that has ended for good, in a process of its own; returns what went wrong, None for nothing."""
    run = RunDir(folder)
    try:
        history = read_history(run.events())
    except (OSError, KeyError, ValueError):
        return None
    last = history.last
    if last is None or last.end is None or last.why not in FINAL or last.first_step is None:
        return None
    if last.end - history.generations[0].start < LEAST:
        return None
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "dmr.launcher.models.learning", str(folder)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it failed"])[-1]


def main() -> int:
    from .store import ModelError

    try:
        print(learn(Path(sys.argv[1])))
    except (RunDirError, ModelError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
