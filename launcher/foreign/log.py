"""The program's log, read as it grows: steps, the end, complete checkpoints."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from .description import Files, ProgressLog

MOST = 1 << 24
"""Bytes that one look reads at most; the rest is for the next one."""
LONGEST = 1 << 16
"""A line that is longer is cut."""


class Tail:
    """The lines that a file gained since the last look; one that begins anew is read from its start.

    Parameters
    ----------
    path
        The file, which need not be there yet. What it holds now is passed over.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rest = b""
        self._file, self._at = self._stat()

    def _stat(self) -> tuple[tuple[int, int] | None, int]:
        try:
            found = os.stat(self.path)
        except OSError:
            return None, 0
        return (found.st_dev, found.st_ino), found.st_size

    def lines(self, *, last: bool = False) -> list[str]:
        """Return the new lines; with ``last`` also one that has no end."""
        file, size = self._stat()
        if file is None:
            return []
        if file != self._file or size < self._at:
            self._file, self._at, self._rest = file, 0, b""
        data = b""
        try:
            with open(self.path, "rb") as stream:
                stream.seek(self._at)
                data = stream.read(MOST)
        except OSError:
            return []
        self._at += len(data)
        # Some programs overwrite a line of progress by a carriage return.
        pieces = re.split(rb"[\r\n]+", self._rest + data)
        self._rest = pieces.pop()[-LONGEST:]
        if last and self._rest:
            pieces.append(self._rest)
            self._rest = b""
        return [each[:LONGEST].decode(errors="replace") for each in pieces]


@dataclass
class Told:
    """What the log has told so far; ``complete`` are the checkpoints that new lines call complete."""

    step: int | None = None
    steps: int | None = None
    finished: bool = False
    complete: list[int | None] = field(default_factory=list)


class Log:
    """Understands the lines of a log by the regular expressions of a description."""

    def __init__(self, progress: ProgressLog, files: Files, path: Path) -> None:
        self._progress, self._files = progress, files
        self._tail = Tail(path)
        self.path = path
        self.told = Told()

    def look(self, *, last: bool = False) -> Told:
        """Read on; returns all that is known now."""
        self.told.complete = []
        for line in self._tail.lines(last=last):
            self._take(line)
        return self.told

    def _take(self, line: str) -> None:
        step = self._number(self._progress.step, "step", line)
        self.told.step = self.told.step if step is None else step
        if self._progress.steps is not None:
            steps = self._number(self._progress.steps, "steps", line)
            self.told.steps = self.told.steps if steps is None else steps
        if self._progress.finished is not None and self._progress.finished.search(line):
            self.told.finished = True
        if self._files.log is not None and (match := self._files.log.search(line)):
            which = match.groupdict().get("step")
            try:
                self.told.complete.append(None if which is None else self._progress.to_step(which))
            except ValueError:
                return

    def _number(self, regex: re.Pattern[str], name: str, line: str) -> int | None:
        match = regex.search(line)
        if match is None:
            return None
        text = match[name] if name in regex.groupindex else match[1]
        try:
            return None if text is None else self._progress.to_step(text)
        except (ValueError, OverflowError):
            return None
