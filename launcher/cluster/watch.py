"""A process that ends a cluster when its owner has died without doing so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .ending import tear_down


class Watch:
    """Ends the cluster in ``folder`` as soon as this process is gone, however it went."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"from {__name__} import attend; attend()", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """Let it go without ending anything."""
        assert self._process.stdin is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()


def attend() -> None:
    """Wait for the owner's end; it holds the other end of the standard input open and never writes."""
    sys.stdin.buffer.read()
    tear_down(Path(sys.argv[1]))
