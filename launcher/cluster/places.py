"""Where private clusters keep their files.

One folder a user, one folder in it a cluster. It is short, since Slurm puts sockets in it, and a
socket's path is limited to 107 bytes.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from .errors import ClusterError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,23}")
_LONGEST_BASE = 40


def check_name(name: str) -> str:
    """Return the name; refuse one that can't be a folder's and a ``ClusterName``."""
    if not _NAME.fullmatch(name):
        raise ClusterError(
            f"{name!r} can't name a cluster: take 1 to 24 letters, digits, '-' and '_', a letter or digit first"
        )
    return name


def _candidates() -> list[Path]:
    """Return where clusters of this user may be: those of another login, with another environment, too."""
    uid = os.getuid()
    runtime = [os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{uid}"]
    usable = [Path(each) / "dmr-cluster" for each in runtime if each and _is_private(Path(each))]
    found = [each for each in usable if len(str(each)) <= _LONGEST_BASE] + [Path(f"/tmp/dmr-cluster-{uid}")]
    return list(dict.fromkeys(found))


def base() -> Path:
    """Return the folder for new clusters, made if need be.

    ``$XDG_RUNTIME_DIR/dmr-cluster`` where that is a short, private folder of ours, else
    ``/tmp/dmr-cluster-UID``.
    """
    for path in _candidates():
        try:
            path.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            continue
        if not _is_private(path):
            raise ClusterError(
                f"{path} is not a folder that only this user can write to: somebody else may have made it; "
                f"remove it, or set XDG_RUNTIME_DIR to a folder of mode 0700"
            )
        return path
    raise ClusterError("there is no folder for the cluster's files: /tmp can't be written to; set XDG_RUNTIME_DIR")


def folders() -> list[Path]:
    """Return the folders of all clusters of this user, by name."""
    found = [
        each
        for parent in _candidates()
        if _is_private(parent)
        for each in parent.iterdir()
        if each.is_dir() and _NAME.fullmatch(each.name)
    ]
    return sorted(found, key=lambda each: each.name)


def folder_of(name: str) -> Path | None:
    """Return the folder of a cluster, None when there is none of that name."""
    check_name(name)
    return next((each for each in folders() if each.name == name), None)


def _is_private(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
