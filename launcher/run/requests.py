"""What a user asks of a live run from outside: a file each in ``requests/``, taken up by its launcher.

``dmr resize`` writes ``requests/<time>-<pid>.json``; the launcher answers in ``<same>.answer`` whose
``state`` goes from ``accepted`` to ``done``, or is ``refused``, and removes the request.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .rundir import RunDir, RunDirError

_NAME = re.compile(r"\d+-\d+\.json")


@dataclass(frozen=True)
class UserRequest:
    """One wish: ``resize`` to ``nodes``, ``stop`` (``now``: without a save), or ``checkpoint``.

    ``keep`` are names of nodes that are not to be given back.
    """

    name: str
    action: str
    nodes: int | None = None
    now: bool = False
    by: str = ""
    keep: tuple[str, ...] = ()


SETTLED = 2.0
"""A folder is listed for so long after its last change was first seen: it may change again within the resolution of its
time."""
LIST_EVERY = 10.0
"""And so often, in seconds, whatever its time says."""


def _changed(folder: Path) -> int:
    """Return when a folder changed; opened for that, since over NFS a mere stat may be a minute old."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return os.fstat(handle).st_mtime_ns
    finally:
        os.close(handle)


class Requests:
    """The requests of one run, on either side."""

    def __init__(self, run: RunDir) -> None:
        self.folder = run.folder / "requests"
        self._seen: int | None = None
        self._seen_at = self._listed = 0.0
        self._taken: set[str] = set()

    def post(
        self, action: str, *, nodes: int | None = None, now: bool = False, by: str = "", keep: Sequence[str] = ()
    ) -> str:
        """Write a request; returns its name.

        Raises
        ------
        RunDirError
            When it can't be written.
        """
        name = f"{time.time_ns()}-{os.getpid()}.json"
        temporary = self.folder / f".{name}"
        try:
            wish = {"action": action, "nodes": nodes, "now": now, "by": by, "keep": list(keep)}
            temporary.write_text(json.dumps(wish))
            temporary.rename(self.folder / name)
        except OSError as error:
            raise RunDirError(f"can't write a request to {self.folder}: {error.strerror}") from None
        return name

    def answer_to(self, name: str) -> dict[str, Any] | None:
        """Return what the launcher answered so far."""
        try:
            found = json.loads(self._answer(name).read_text())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def withdraw(self, name: str) -> None:
        """Take a request back that nobody has taken up."""
        (self.folder / name).unlink(missing_ok=True)

    def take(self) -> list[UserRequest]:
        """Return the requests that are new since the last call, oldest first. Cheap while there are none."""
        now = time.monotonic()
        try:
            changed = _changed(self.folder)
            if changed != self._seen:
                self._seen, self._seen_at = changed, now
            elif now - self._seen_at > SETTLED and now - self._listed < LIST_EVERY:
                return []
            self._listed = now
            names = sorted(name for name in os.listdir(self.folder) if _NAME.fullmatch(name))
            names = [name for name in names if name not in self._taken]
        except OSError:
            return []
        self._taken.update(names)
        return [request for name in names if (request := self._read(name)) is not None]

    def answer(self, request: UserRequest, state: str, text: str) -> None:
        """Answer, and take the request off the list."""
        answer = self._answer(request.name)
        temporary = answer.with_name(f".{answer.name}")
        try:
            temporary.write_text(json.dumps({"state": state, "text": text, "time": time.time()}))
            temporary.rename(answer)
        except OSError:
            temporary.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            (self.folder / request.name).unlink(missing_ok=True)

    def _answer(self, name: str) -> Path:
        return self.folder / f"{name.removesuffix('.json')}.answer"

    def _read(self, name: str) -> UserRequest | None:
        try:
            found = json.loads((self.folder / name).read_text())
            nodes = found.get("nodes")
            return UserRequest(
                name, str(found["action"]), None if nodes is None else int(nodes), bool(found.get("now")),
                str(found.get("by", "")), tuple(map(str, found.get("keep", ()))),
            )  # fmt: skip
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            self.answer(UserRequest(name, ""), "refused", "the request can't be read")
            return None
