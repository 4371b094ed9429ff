"""A folder of this node for checkpoints that are not in the shared folder yet: which one it is, and whose.

Below the folder that the user names, each folder of checkpoints has one of its own, that only its user can enter. Its
name is a random token that stands in the shared folder, so that what an earlier run left at the same path is never
taken for this one's.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import socket
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..commit import listing, read_bad
from ..errors import CheckpointError, StorageError
from ..state.items import CheckpointInfo
from ..storage.h5file import read_content

IDENTITY = ".fast.json"
_OWNER = "owner.json"
_LOCK = "lock"
_STAGING = re.compile(r"\.staging-(\d+)")
_TRIES = 20


def expand(fast_dir: str | os.PathLike[str]) -> Path:
    """Return the folder that is meant on this node; ``~`` and ``$VARIABLES`` are those of this process."""
    return Path(os.path.expandvars(os.path.expanduser(os.fspath(fast_dir))))


def refusal(base: Path) -> str | None:
    """Return why checkpoints are not to be put below a folder, None when they may be.

    It has to be the user's own and closed to the world's writes, or one that all share as ``/tmp``: root's, and sticky.
    """
    if not base.is_absolute():
        return f"{base}: a whole path is needed, one that begins with /"
    try:
        found = base.stat()
    except OSError as error:
        return f"{base}: {error.strerror}"
    if not stat.S_ISDIR(found.st_mode):
        return f"{base} is no folder"
    if found.st_uid not in (os.geteuid(), 0):
        return f"{base} belongs to another user (uid {found.st_uid})"
    others = stat.S_IWOTH if found.st_uid == os.geteuid() else stat.S_IWOTH | stat.S_IWGRP
    if found.st_mode & others and not found.st_mode & stat.S_ISVTX:
        return f"{base} can be written by others and is not sticky (mode {stat.S_IMODE(found.st_mode):04o})"
    if not os.access(base, os.W_OK | os.X_OK):
        return f"{base} can't be written"
    return None


class FastFolder:
    """The fast folder of one folder of checkpoints, held by rank 0 as long as it is in use.

    Parameters
    ----------
    base
        What the user named.
    shared
        The folder of checkpoints; made when it is missing.

    Raises
    ------
    StorageError, OSError
        When it can't be used.
    """

    def __init__(self, base: Path, shared: Path) -> None:
        if problem := refusal(base):
            raise StorageError(problem)
        shared.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.shared = shared
        self._note = {**_identity(shared), "base": str(base), "host": socket.gethostname()}
        self.path = _path(base, self._note["token"])
        self._lock = self._hold()
        try:
            _write(self.path / _OWNER, {"folder": str(shared), "device": shared.stat().st_dev})
            _write(shared / IDENTITY, self._note)
        except OSError:
            os.close(self._lock)
            raise

    def _hold(self) -> int:
        """Make the folder and lock it, against its removal by `reclaim`."""
        for _ in range(_TRIES):
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.path, 0o700)
            found = os.lstat(self.path)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
                raise StorageError(f"{self.path} is not this user's alone")
            with contextlib.suppress(FileNotFoundError):
                handle = _open_lock(self.path)
                try:
                    fcntl.flock(handle, fcntl.LOCK_SH)
                    if os.stat(self.path / _LOCK).st_ino == os.fstat(handle).st_ino:
                        return handle
                except OSError:
                    os.close(handle)
                    raise
                os.close(handle)
        raise StorageError(f"{self.path} is removed by somebody again and again")

    @property
    def mark(self) -> int:
        """A number by which another process sees whether it looks at the same folder."""
        return os.fstat(self._lock).st_ino

    def fence(self, generation: int) -> None:
        """Take the staging folders of all generations before this one away, so that they commit nothing any more."""
        for each in os.listdir(self.path):
            if (match := _STAGING.fullmatch(each)) and int(match[1]) < generation:
                with contextlib.suppress(FileNotFoundError):
                    os.rename(self.path / each, self.path / f".fenced-{match[1]}-{secrets.token_hex(4)}")

    def drop(self, newest: CheckpointInfo) -> None:
        """Remove what is not newer than a checkpoint that is in the shared folder."""
        for each in listing(self.path):
            if _age(each) <= _age(newest):
                each.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the folder; it is removed when the shared one holds all that is in it, and nobody else uses it."""
        try:
            with contextlib.suppress(OSError, CheckpointError):
                if superseded(self.path, self.shared) and _remove(self.path, self._lock):
                    _write(self.shared / IDENTITY, {**self._note, "host": None})
        finally:
            os.close(self._lock)


def visible(path: Path, mark: int) -> bool:
    """Whether this process sees the folder that rank 0 holds."""
    try:
        return os.stat(path / _LOCK).st_ino == mark
    except OSError:
        return False


def drained(source: Path, shared: Path) -> bool:
    """Whether a checkpoint of a fast folder is in the shared one, with the same content."""
    target = shared / source.name
    if not target.exists() or read_bad(target) is not None:
        return False
    try:
        mine, other = read_content(source), read_content(target)
    except (CheckpointError, OSError):
        return False
    return mine.text == other.text and bool((mine.digests == other.digests).all())


def superseded(path: Path, shared: Path) -> bool:
    """Whether nothing in a fast folder is newer than what the shared folder holds."""
    mine, others = _good(path), _good(shared)
    if not mine:
        return True
    if not others or _age(mine[0]) > _age(others[0]):
        return False
    return _age(mine[0]) < _age(others[0]) or drained(mine[0].path, shared)


def reclaim(base: Path, besides: Path) -> None:
    """Remove what crashed runs of this user have left below a folder and the shared one holds, or nobody can load."""
    with contextlib.suppress(OSError):
        for path in base.glob(f"dmr-ckpt-{os.geteuid()}-*"):
            if path == besides or path.is_symlink():
                continue
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, CheckpointError):
                owner = json.loads((path / _OWNER).read_text())
                if not _is_over(path, Path(owner["folder"]), owner["device"]):
                    continue
                handle = _open_lock(path)
                try:
                    _remove(path, handle)
                finally:
                    os.close(handle)


def find(shared: Path) -> tuple[Path | None, str | None]:
    """Return the fast folder of a folder of checkpoints if it is on this node, and the host that it is or was on."""
    found = _read(shared / IDENTITY)
    if found is None or found.get("host") is None:
        return None, None
    path = _path(Path(found["base"]), found["token"])
    return (path if os.access(path, os.R_OK | os.X_OK) else None), str(found["host"])


def everywhere(shared: Path, fast: Path | None) -> list[CheckpointInfo]:
    """Return the committed checkpoints of both folders, newest first, of two of the same name the fast one first."""
    here = [replace(each, fast=True) for each in listing(fast)] if fast is not None else []
    both = [*here, *listing(shared)]
    return sorted(both, key=_age, reverse=True)


def _good(folder: Path) -> list[CheckpointInfo]:
    return [each for each in listing(folder) if each.bad is None]


def _age(one: CheckpointInfo) -> tuple[int, int]:
    return one.generation, one.step


def _is_over(path: Path, shared: Path, device: int) -> bool:
    note = _read(shared / IDENTITY)
    if note is not None:
        return _path(path.parent, note["token"]) != path or superseded(path, shared)
    # Of a file system that is not mounted nothing is known: then what is there belongs to another one.
    there = next(each for each in shared.parents if each.exists())
    return not shared.exists() and there.stat().st_dev == device


def _path(base: Path, token: str) -> Path:
    return base / f"dmr-ckpt-{os.geteuid()}-{token}"


def _identity(shared: Path) -> dict[str, Any]:
    """Return the token of a folder of checkpoints; a copy of the folder gets another one."""
    inode = shared.stat().st_ino
    found = _read(shared / IDENTITY)
    if found is not None and found.get("inode") == inode:
        return {"token": found["token"], "inode": inode}
    return {"token": secrets.token_hex(8), "inode": inode}


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    good = isinstance(found, dict) and re.fullmatch("[0-9a-f]{16}", str(found.get("token"))) and "base" in found
    return found if good else None


def _write(path: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content)
    with contextlib.suppress(OSError):
        if path.read_text() == text:
            return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _open_lock(path: Path) -> int:
    return os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _remove(path: Path, lock: int) -> bool:
    """Remove a fast folder that nobody else holds; whether it was."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    shutil.rmtree(path, ignore_errors=True)
    return True
