"""What a launcher says: lines on standard error, and all of it in the run's log."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import TextIO

QUIET, NORMAL, VERBOSE = 0, 1, 2


class Console:
    """Prints lines marked as the launcher's; keeps all of them in ``logs/launcher.log`` of the run."""

    def __init__(self, level: int = NORMAL) -> None:
        self.level = level
        self._log: Path | None = None

    def to_run(self, folder: Path) -> None:
        """From now on keep a log in this run directory."""
        self._log = folder / "logs" / "launcher.log"

    def say(self, text: str) -> None:
        """Tell what happened."""
        self._write(text, NORMAL)

    def detail(self, text: str) -> None:
        """Tell what only somebody who looks for a reason wants to know."""
        self._write(text, VERBOSE)

    def warn(self, text: str) -> None:
        """Tell what the user should know even when quiet."""
        self._write(text, QUIET)

    def _write(self, text: str, level: int) -> None:
        if self._log is not None:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            # A full file system must not end the run; the line is on standard error.
            with contextlib.suppress(OSError), open(self._log, "a") as stream:
                stream.write(f"{stamp} {text}\n")
        if level <= self.level:
            try:
                print(f"dmr-launch: {text}", file=sys.stderr, flush=True)
            except OSError:
                discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Let a stream that nobody reads any more lead nowhere: what is left in it would end Python with status 120."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
