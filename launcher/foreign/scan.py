"""Restart files on disk: which there are, and when one has come to rest."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .description import Files, ProgressLog
from .words import to_glob, to_regex


@dataclass(frozen=True)
class FileState:
    """One file as it is now; ``path`` relative to the working directory where it lies in it."""

    path: str
    bytes: int
    mtime_ns: int


@dataclass(frozen=True)
class Found:
    """All files of one checkpoint; ``roots`` are the names that the patterns matched, files or folders."""

    step: int | None
    roots: tuple[str, ...]
    files: tuple[FileState, ...]

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.files)


class Finder:
    """Finds what a description calls a checkpoint.

    Parameters
    ----------
    folder
        The program's working directory.
    """

    def __init__(self, files: Files, progress: ProgressLog, folder: Path) -> None:
        self.folder, self._progress = folder, progress
        self._patterns = [(to_glob(each), to_regex(each, progress.number)) for each in files.patterns]
        marker = files.marker
        self._marker = None if marker is None else (to_glob(marker), to_regex(marker, progress.number))

    def find(self) -> dict[int | None, Found]:
        """Return the checkpoints of which every pattern has a file, by step; None where names carry no step."""
        by_pattern = [self._match(*each) for each in self._patterns]
        found = {}
        for step in set(by_pattern[0]).intersection(*by_pattern[1:]):
            roots = tuple(sorted(root for each in by_pattern for root in each[step]))
            files = [state for root in roots for state in states(self.folder, root)]
            if files:
                found[step] = Found(step, roots, tuple(files))
        return found

    def markers(self) -> dict[int | None, tuple[FileState, ...]]:
        """Return the markers that are there, by step."""
        if self._marker is None:
            return {}
        found = self._match(*self._marker)
        return {step: tuple(s for root in roots for s in states(self.folder, root)) for step, roots in found.items()}

    def again(self, found: Found) -> Found:
        """Return the same checkpoint as it is now."""
        return Found(found.step, found.roots, tuple(s for root in found.roots for s in states(self.folder, root)))

    def _match(self, pattern: str, regex: re.Pattern[str]) -> dict[int | None, list[str]]:
        found: dict[int | None, list[str]] = {}
        for name in glob.glob(pattern, root_dir=self.folder):
            match = regex.fullmatch(name)
            if match is None:
                continue
            with contextlib.suppress(ValueError):
                step = self._progress.to_step(match["step"]) if match.re.groupindex else None
                found.setdefault(step, []).append(name)
        return found


def states(folder: Path, root: str) -> list[FileState]:
    """Return the files of a name: itself, or all below it; those that vanish meanwhile are left out."""
    found: list[FileState] = []
    pending = [root]
    while pending:
        name = pending.pop()
        path = folder / name
        try:
            if path.is_dir():
                pending += [os.path.join(name, each) for each in os.listdir(path)]
                continue
            stat = path.stat()
        except OSError:
            continue
        found.append(FileState(name, stat.st_size, stat.st_mtime_ns))
    return sorted(found, key=lambda each: each.path)


@dataclass
class _Watched:
    """A checkpoint that has changed: when it was seen first, and when it changed last."""

    found: Found
    seen: float
    since: float
    look: int


@dataclass(frozen=True)
class Complete:
    """A checkpoint that is complete; ``began`` is when its files were seen first, on the watch's clock."""

    found: Found
    began: float


class Completeness:
    """Tells when a checkpoint that has appeared or changed is complete.

    What lies there at the start is known, and counts only once it changes: it may be left from another run, or partial.
    Without a marker or a line of the log, files have to be at rest for a while, and the program has to have gone on
    with its steps since: one that died in the middle of a file leaves it at rest too.

    Parameters
    ----------
    clock
        Any clock in seconds that does not jump.
    """

    def __init__(self, files: Files, finder: Finder, clock: Callable[[], float]) -> None:
        self._files, self._finder, self._clock = files, finder, clock
        self._known = finder.find()
        self._old_markers = finder.markers()
        self._markers = dict(self._old_markers)
        self._watched: dict[int | None, _Watched] = {}
        self._said: dict[int | None, int] = {}
        self._looks = 0
        self._moved = float("-inf")

    def said(self, step: int | None) -> None:
        """Take note that the log told of a complete checkpoint."""
        self._said[step] = self._looks + 1

    def went_on(self) -> None:
        """Take note that the program has done another step."""
        self._moved = self._clock()

    @property
    def writing(self) -> bool:
        """Whether one has appeared and is not complete yet."""
        return bool(self._watched)

    def look(self, *, ended: bool | None = None) -> list[Complete]:
        """Return those that are complete now and were not given before, in order of steps.

        Parameters
        ----------
        ended
            None while the program runs. True when it has ended well: nobody writes any more, so that rest needs no
            proof. False when it was ended or died: a file that has come to rest may be a part.
        """
        now = self._clock()
        self._looks += 1
        markers, there = self._finder.markers(), self._finder.find()
        self._watched = {step: each for step, each in self._watched.items() if step in there}
        for step, found in there.items():
            if self._known.get(step) == found:
                continue
            watched = self._watched.get(step)
            if watched is None:
                self._watched[step] = _Watched(found, now, now, self._looks)
            elif watched.found != found:
                watched.found, watched.since = found, now
        complete = []
        for step, watched in sorted(self._watched.items(), key=lambda item: item[0] or 0):
            told = self._told(step, watched, markers)
            rests = ended is True or now - watched.since >= self._files.settle
            if self._files.marker or self._files.log:
                rests = rests or ended is False
            elif ended is not True:
                rests = rests and self._moved > watched.since
            if told and rests and watched.found.bytes > 0:
                complete.append(Complete(watched.found, watched.seen))
        self._markers = markers
        return complete

    def take(self, found: Found) -> None:
        """Take note that this state was dealt with: it counts again when it has changed."""
        self._known[found.step] = found
        self._watched.pop(found.step, None)
        self._said.pop(found.step, None)
        if found.step in self._markers:
            self._old_markers[found.step] = self._markers[found.step]

    def _told(
        self, step: int | None, watched: _Watched, markers: dict[int | None, tuple[FileState, ...]]
    ) -> bool:
        if self._files.marker is not None:
            marker = markers.get(step)
            if marker is None or marker == self._old_markers.get(step):
                return False
        if self._files.log is not None:
            # Where names carry the step, so does the line; else it has to come with or after the change.
            return step in self._said if step is not None else self._said.get(None, 0) >= watched.look
        return True
