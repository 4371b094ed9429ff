"""Saving in two levels: into a folder of the node, and from there into the shared one."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..comm.group import Group
from ..comm.watchdog import Watchdog
from ..commit import NAME, Staging, Writer, own_staging
from ..errors import StorageError
from ..retention import KeepLast
from ..save import SaveJob
from ..state.describe import State
from ..state.items import CheckpointInfo, Saved
from ..storage.pace import Pace
from .drain import Drain
from .fast import FastFolder, drained, expand, reclaim, visible

log = logging.getLogger("dmr.ckpt")

Level = Literal["both", "shared", "fast"]
"""``both``: into the fast folder, and from there into the shared one in the background. ``shared``: there at once.
``fast``: into the fast folder alone, from where the next store on this node takes it up."""

KEPT = KeepLast(1)
"""Of checkpoints in the fast folder, beside the one that is written: the one before is in the shared folder by then."""


class FastLevel:
    """The fast folder of a store. Every method is collective, where not said otherwise.

    Parameters
    ----------
    folder
        The same on every rank.
    holder
        On rank 0 alone.
    drain
        Into the shared folder.
    """

    def __init__(
        self, folder: Path, holder: FastFolder | None, shared: Path, writer: Writer | None, staging: Path, drain: Drain
    ) -> None:
        self.folder, self.shared, self.drain = folder, shared, drain
        self.staging = Staging(folder, writer, staging)
        self._holder = holder
        self._warned = False
        self._pace = Pace()
        if holder is not None:
            self.staging.reclaim()

    def job(self, shared: SaveJob, level: Level) -> TwoLevelJob:
        """Return a save in two levels. Not collective."""
        fast = replace(shared, folder=self.folder, staging=self.staging, keep=KEPT, recycle=True, pace=self._pace)
        return TwoLevelJob(self, fast, shared, level)

    def start_drain(self, path: Path, size: int) -> None:
        """Begin to copy a checkpoint. Not collective, but called on every rank."""
        self.drain.start(path, size, root=self._holder is not None)

    def resume_drain(self, path: Path, size: int, group: Group) -> None:
        """Begin to copy a checkpoint that was loaded from the fast folder, if the shared one does not hold it."""
        needed = path.parent == self.folder
        if needed:
            missing = group.rank == 0 and not drained(path, self.shared)
            needed = group.bcast(b"1" if missing else b"0") == b"1"
        if needed:
            self.start_drain(path, size)

    def replaced_by(self, saved: Saved) -> None:
        """Remove what is not newer than a checkpoint that was saved to the shared folder. Not collective."""
        match = NAME.fullmatch(saved.path.name)
        if self._holder is not None and match is not None:
            try:
                self._holder.drop(CheckpointInfo(saved.path, saved.step, int(match[2]), saved.bytes, 0.0))
                self.staging.spare.unlink(missing_ok=True)
            except OSError as error:
                self.warn(f"{self.folder}: {error.strerror}")

    def warn(self, text: str) -> None:
        """Say once, on rank 0, that the fast folder is of no use at the moment. Not collective."""
        if self._holder is not None and not self._warned:
            self._warned = True
            log.warning("%s", text)

    def close(self) -> None:
        """Let go of the folder, and remove it if all is in the shared one. Not collective."""
        if self._holder is not None:
            self.staging.close()
            self._holder.close()
            self._holder = None


@dataclass(frozen=True, eq=False)
class TwoLevelJob:
    """As `.save.SaveJob`, into the fast folder where that is possible and wanted."""

    level: FastLevel
    fast: SaveJob
    shared: SaveJob
    wanted: Level

    @property
    def folder(self) -> Path:
        return self.shared.folder

    @property
    def watchdog(self) -> Watchdog:
        return self.shared.watchdog

    def run(self, step: int, items: State, info: Any) -> Saved:
        """Save a state. Collective."""
        if self.wanted != "shared":
            try:
                saved = self.fast.run(step, items, info)
            except StorageError as error:  # alike on every rank
                self.level.warn(f"saving to the shared folder instead: {error}")
            else:
                if self.wanted == "both":
                    self.level.start_drain(saved.path, saved.bytes)
                return saved
        saved = self.shared.run(step, items, info)
        self.level.replaced_by(saved)
        return saved


def open_level(
    fast_dir: str | os.PathLike[str], shared: Path, group: Group, writer: Writer | None, copy: Callable[[Path], Saved]
) -> FastLevel | None:
    """Return the fast level of a store; None, with a warning that says why, where there can be none. Collective."""
    if not group.on_one_node():
        if group.rank == 0:
            log.warning(
                "checkpoints go to the shared folder alone, not to %s: the ranks are on several nodes", fast_dir
            )
        return None
    holder: FastFolder | None = None
    said: list[Any] = []
    if group.rank == 0:
        try:
            base = expand(fast_dir)
            holder = FastFolder(base, shared)
            if writer is not None:
                holder.fence(writer.generation)
            name = own_staging(holder.path) if writer is None else holder.path / f".staging-{writer.generation:04d}"
            reclaim(base, holder.path)
            said = [str(holder.path), str(name), holder.mark, ""]
        except Exception as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            said = ["", "", 0, str(reason)]
    folder, name, mark, reason = json.loads(group.bcast(json.dumps(said).encode()))
    if not reason:
        seen = group.minimum(np.array([visible(Path(folder), mark)], np.int64))
        reason = "" if seen[0] else f"{folder} is not the same folder for all ranks"
    if reason:
        if holder is not None:
            holder.close()
        if group.rank == 0:
            log.warning("checkpoints go to the shared folder alone: %s", reason)
        return None
    return FastLevel(Path(folder), holder, shared, writer, Path(name), Drain(copy))
