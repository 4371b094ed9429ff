"""The end of a cluster, whoever brings it about and whatever state it is in."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from . import places, processes
from . import state as states
from .errors import ClusterError


def tear_down(folder: Path, grace: float = 2.0) -> None:
    """End all processes of the cluster in a folder, and remove the folder; quiet when there is nothing.

    Parameters
    ----------
    grace : float
        Seconds between SIGTERM and SIGKILL.

    Raises
    ------
    ClusterError
        When something could not be ended or removed.
    """
    processes.end(folder, grace)
    with places.locked():
        clear(folder, grace)


def clear(folder: Path, grace: float) -> None:
    """Do what `tear_down` does under a lock that the caller holds."""
    left = processes.end(folder, grace)
    if left:
        raise ClusterError(f"can't end {', '.join(left)} of the cluster in {folder}; its files are left there")
    for _ in range(5):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)
    raise ClusterError(f"can't remove {folder}: remove it by hand")


def sweep() -> list[str]:
    """End clusters that nobody will end any more, since whoever owned or started them died; returns their names."""
    swept = []
    with places.locked():
        for folder in places.folders():
            state = states.load(folder)
            if state is not None and state.abandoned:
                clear(folder, grace=0.5)
                swept.append(folder.name)
    return swept
