"""A process that ends a cluster when its owner has died without doing so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


class Watch:
    """Ends the cluster in ``folder`` as soon as this process is gone, however it went."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(folder)],
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


def _main(folder: Path) -> None:
    # The owner holds the other end of this pipe open; it never writes.
    sys.stdin.buffer.read()
    from .private import tear_down

    tear_down(folder)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
