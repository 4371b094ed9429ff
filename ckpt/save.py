"""One save, from the items to the committed file."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from . import h5file
from .commit import Staging, describe_space, file_name, publish, sync_file
from .describe import Described, State, describe
from .drivers import Output, open_output
from .errors import StorageError
from .gather import save_pieces
from .group import Group
from .held import Held
from .items import Saved
from .manifest import Manifest, seal
from .pace import Pace
from .retention import Retention
from .trouble import Trouble
from .watchdog import Watchdog

SLOWEST = 10 << 20
"""Bytes a second and rank below which a save or load counts as hanging, beyond the deadline."""


@dataclass(frozen=True, eq=False)
class SaveJob:
    """Where and how a save goes."""

    folder: Path
    group: Group
    staging: Staging
    driver: Literal["mpio", "direct"]
    keep: Retention
    recycle: bool
    watchdog: Watchdog
    pace: Pace

    def run(self, step: int, items: State, info: Any) -> Saved:
        """Save a state. Collective."""
        began = time.perf_counter()
        group = self.group
        described = describe(group, step, items, info)
        return replace(self.write(step, described, group.size), seconds=time.perf_counter() - began)

    def write(self, step: int, described: Described, ranks: int) -> Saved:
        """Write what has been described, and commit it. Collective.

        Parameters
        ----------
        ranks
            Number of ranks that the manifest is to name.
        """
        began = time.perf_counter()
        group = self.group
        self.watchdog.extend(described.local_bytes / SLOWEST)
        writer = self.staging.writer
        generation = 0 if writer is None else writer.generation
        manifest = Manifest(
            step,
            generation,
            "" if writer is None else writer.run,
            "" if writer is None else writer.token,
            ranks,
            described.info,
            tuple(described.entries),
            described.values,
            described.rngs,
            described.groups,
        )
        name = file_name(step, generation)
        temporary, final = self.staging.path / name, self.folder / name
        try:
            size = self._write(manifest, described.held, temporary, final)
        except BaseException:
            if group.rank == 0:
                self.staging.discard(temporary)
            raise
        return Saved(final, step, size, time.perf_counter() - began)

    def _write(self, manifest: Manifest, held: Sequence[Held], temporary: Path, final: Path) -> int:
        group, doing = self.group, f"saving {final}"
        places: h5file.Places | None = None
        error: BaseException | None = None
        told = b""
        over = unbuffered = False
        if group.rank == 0:
            try:
                self.staging.prepare()
                temporary.unlink(missing_ok=True)
                needed = sum(each.bytes for each in manifest.arrays)
                if problem := describe_space(self.staging.path, needed, self.staging.spare):
                    raise StorageError(f"saving {final}: {problem}")
                over = self.staging.spare.exists()
                if over:
                    os.rename(self.staging.spare, temporary)
                manifest, places = h5file.lay_out(temporary, manifest)
                unbuffered = self.pace.unbuffered(over)
                told = np.array([unbuffered, *(each.offset for each in manifest.arrays)], np.int64).tobytes()
            except Exception as problem:
                error = self.staging.fenced(problem)
        group.agree_on_root(error, doing)
        unbuffered, *found = np.frombuffer(group.bcast(told), np.int64).tolist()
        began = time.perf_counter()
        if group.rank:
            manifest = replace(
                manifest,
                arrays=tuple(replace(each, offset=at) for each, at in zip(manifest.arrays, found, strict=True)),
            )

        trouble = Trouble()
        output: Output | None = None
        with trouble:
            output = open_output(self.driver, temporary, manifest, group, unbuffered=bool(unbuffered))
        mine, digests = save_pieces(group, held, output, manifest, trouble)
        with trouble:
            if output is not None and trouble.error is None:
                output.finish()
        if trouble.error is not None:
            trouble.error = self.staging.fenced(trouble.error)
        try:
            group.agree(trouble.error, doing)
        finally:
            if output is not None:
                with contextlib.suppress(Exception):
                    output.close()

        self.pace.note(bool(unbuffered), over, sum(each.bytes for each in manifest.arrays), time.perf_counter() - began)
        gathered = group.gather(np.stack([mine.astype(np.uint64), digests]).tobytes())
        size = 0
        if group.rank == 0 and gathered is not None and places is not None:
            try:
                size = self._finish(manifest, places, gathered, temporary, final)
            except Exception as problem:
                error = self.staging.fenced(problem)
        group.agree_on_root(error, doing)
        return int.from_bytes(group.bcast(size.to_bytes(8, "little")), "little")

    def _finish(
        self, manifest: Manifest, places: h5file.Places, gathered: list[bytes], temporary: Path, final: Path
    ) -> int:
        digests = np.zeros(manifest.pieces, np.uint64)
        for each in gathered:
            pairs = np.frombuffer(each, np.uint64).reshape(2, -1)
            digests[pairs[0].astype(np.int64)] = pairs[1]
        with open(temporary, "r+b") as stream:
            stream.seek(places.digests)
            stream.write(digests.astype("<u8").tobytes())
            stream.seek(places.seal)
            stream.write(seal(manifest.encode(), digests))
        sync_file(temporary)
        size = temporary.stat().st_size
        if size != places.size:
            raise StorageError(f"{temporary} has {size} bytes where {places.size} were written")
        publish(self.staging, temporary, final, self.keep, self.recycle)
        return size
