"""Where private clusters keep their files.

One folder a user, one folder in it a cluster. It is short, since Slurm puts sockets in it, and a
socket's path is limited to 107 bytes; and it is the same in every login of a user, so that a
cluster started in one is found in another.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from .errors import ClusterError

VARIABLE = "DMR_CLUSTER_DIR"
"""Names another folder than ``/tmp/dmr-cluster-UID`` for all clusters of this user."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,23}")
_LONGEST_SOCKET = "spool/n4096/stepd.slurm.pmix.9999999.9999"
_SOCKET_LIMIT = 107


def check_name(name: str) -> str:
    """Return the name; refuse one that can't be a folder's and a ``ClusterName``."""
    if not _NAME.fullmatch(name):
        raise ClusterError(
            f"{name!r} can't name a cluster: take 1 to 24 letters, digits, '-' and '_', a letter or digit first"
        )
    return name


def base() -> Path:
    """Return the folder of all clusters of this user, whether or not it exists."""
    chosen = os.environ.get(VARIABLE)
    return Path(chosen).absolute() if chosen else Path(f"/tmp/dmr-cluster-{os.getuid()}")


def new_folder(name: str) -> Path:
    """Return where a cluster of this name belongs.

    Raises
    ------
    ClusterError
        When no socket would fit in there.
    """
    folder = base() / check_name(name)
    excess = len(os.fsencode(folder / _LONGEST_SOCKET)) - _SOCKET_LIMIT
    if excess > 0:
        raise ClusterError(
            f"{folder} is too long a path for sockets in it, by {excess} bytes: "
            f"take a shorter name, or set {VARIABLE} to a shorter folder"
        )
    return folder


def folders() -> list[Path]:
    """Return the folders of all clusters of this user, by name."""
    parent = base()
    if not parent.exists():
        return []
    _check(parent)
    found = (each for each in parent.iterdir() if each.is_dir() and _NAME.fullmatch(each.name))
    return sorted(found, key=lambda each: each.name)


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Hold the lock of the folder of all clusters, which is made if need be, and removed when it is empty.

    Under it clusters are claimed, so that no two take the same name or the same ports.
    """
    handle = _lock()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            base().rmdir()
        os.close(handle)


def _lock() -> int:
    path = base()
    while True:
        try:
            # Not exist_ok: that looks again, and takes a folder that is gone by then for a file.
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
            _check(path)
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            if not path.parent.is_dir():
                raise ClusterError(f"{path} can't be made: {path.parent} is no folder; set {VARIABLE}") from None
            continue
        except OSError as error:
            raise ClusterError(f"{path} can't be made: {error.strerror}; set {VARIABLE} to another folder") from None
        fcntl.flock(handle, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.lstat()):
                return handle
        # Whoever held the lock before removed the folder.
        os.close(handle)


def _check(path: Path) -> None:
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ClusterError(
            f"{path} is not a folder that only this user can use (mode 0700): "
            f"remove it, or set {VARIABLE} to another folder"
        )
    if os.statvfs(path).f_flag & os.ST_NOEXEC:
        raise ClusterError(f"{path} is on a file system without programs (noexec): set {VARIABLE} to another folder")
