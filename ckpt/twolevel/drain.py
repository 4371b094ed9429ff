"""Copying checkpoints from a fast folder to the shared one, behind the program's back."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from ..comm.group import Group
from ..comm.threads import Task
from ..comm.watchdog import Watchdog
from ..commit import NAME, Staging, describe_space, publish
from ..errors import Damaged, Fenced, NotDrained, StorageError
from ..reader import CheckpointFile
from ..retention import Retention
from ..save import SLOWEST
from ..state.items import Saved
from ..storage.h5file import copy_bytes


def copy(source: Path, staging: Staging, keep: Retention, recycle: bool) -> Saved:
    """Copy a checkpoint into the folder of a staging, and commit it there as a save does; verified before it is seen.

    Raises
    ------
    Fenced
        When a later generation has taken over.
    Damaged
        When the copy is not what was saved.
    StorageError, OSError
        When the file system says no.
    """
    began = time.perf_counter()
    temporary, final = staging.path / source.name, staging.folder / source.name
    match = NAME.fullmatch(source.name)
    assert match is not None
    with open(source, "rb") as stream:
        with contextlib.suppress(OSError):
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        try:
            size = _fill(stream.fileno(), temporary, staging)
            with CheckpointFile(temporary) as file:
                problems = file.verify(threads=1)
                raw = file.raw_bytes
            if problems:
                raise Damaged(problems[0].text)
            publish(staging, temporary, final, keep, recycle)
        except FileNotFoundError as error:
            raise staging.fenced(error) from None
        finally:
            staging.discard(temporary)
    return Saved(final, int(match[1]), size, time.perf_counter() - began, raw)


def _fill(source: int, temporary: Path, staging: Staging) -> int:
    size = os.fstat(source).st_size
    staging.prepare()
    temporary.unlink(missing_ok=True)
    if problem := describe_space(staging.path, size, staging.spare):
        raise StorageError(problem)
    if staging.spare.exists():
        os.rename(staging.spare, temporary)
    target = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(target, size)
        copy_bytes(source, target, 0, size)
        os.fsync(target)
    finally:
        os.close(target)
    return size


class Drain:
    """At most one copy at a time, in a thread of rank 0; every rank knows whether there is one to wait for."""

    def __init__(self, work: Callable[[Path], Saved]) -> None:
        self._work = work
        self._task: Task[Saved] | None = None
        self._source: Path | None = None
        self._bytes = 0

    @property
    def busy(self) -> bool:
        """Whether this rank is copying."""
        return self._task is not None and self._task.busy

    def start(self, source: Path, size: int, *, root: bool) -> None:
        """Begin to copy; called on every rank, done on rank 0. The one before has been waited for."""
        self._source, self._bytes = source, size
        if root:
            self._task = Task(lambda: self._copy(source), "copy to the shared folder", tell=True)

    def _copy(self, source: Path) -> Saved:
        try:
            return self._work(source)
        except Fenced:
            raise
        except BaseException as error:
            raise _told(error, source) from error

    def wait(self, group: Group, watchdog: Watchdog, deadline: float) -> Saved | None:
        """Wait for the copy that is under way; return it, None when there is none. Collective when there is one.

        Raises
        ------
        NotDrained
            When it failed.
        Fenced
            When a later generation has taken over.
        """
        source = self._source
        if source is None:
            return None
        with watchdog.watch(f"copying {source} to the shared folder", deadline):
            watchdog.extend(self._bytes / SLOWEST)
            task, self._task, self._source = self._task, None, None
            text = ""
            error: BaseException | None = None
            saved: Saved | None = None
            try:
                saved = None if task is None else task.result()
            except BaseException as problem:
                error = problem
            group.agree_on_root(error, f"copying {source}")
            if saved is not None:
                text = json.dumps([os.fspath(saved.path), saved.step, saved.bytes, saved.seconds, saved.raw_bytes])
            path, *numbers = json.loads(group.bcast(text.encode()))
        return Saved(Path(path), *numbers)


def _told(error: BaseException, source: Path) -> NotDrained:
    said = f"{error.strerror}" if isinstance(error, OSError) and error.strerror else str(error)
    return NotDrained(f"{source} is on this node alone, since it could not be copied to the shared folder: {said}")
