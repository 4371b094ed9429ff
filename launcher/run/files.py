"""Small files that others read while they are written: created, or replaced, in one step.

Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


def create(path: Path, text: str) -> None:
    """Create a file with its content in one step: nobody ever sees it empty."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            # Over NFS a repeated request is told so although the first one made the link.
            if os.stat(temporary).st_nlink != 2:
                raise
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            _create_without_links(path, text)
    finally:
        os.unlink(temporary)


_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def _create_without_links(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def replace(path: Path, text: str) -> None:
    """Replace a file; where there is no room for another one, write into that of the old."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "w") as stream:
            stream.write(text)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _overwrite(path, text)


def _overwrite(path: Path, text: str) -> None:
    """Write into the room that a file has already, where there is no other; a reader may see a half and reads again."""
    with open(path, "r+b") as stream:
        stream.write(text.encode())
        stream.truncate()


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file, None when there is none that can be read."""
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def lines(path: Path, skip: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Return the JSON objects of a ledger, a line each, but for the events that are named."""
    marks = tuple(f'"event": "{name}"' for name in skip)
    with open(path) as stream:
        for line in stream:
            if any(mark in line[:160] for mark in marks):
                continue
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict):
                yield found
