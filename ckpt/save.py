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
import numpy.typing as npt

from .comm.group import Group
from .comm.trouble import Trouble
from .comm.watchdog import Watchdog
from .commit import Staging, describe_space, file_name, publish, sync_file
from .errors import StorageError
from .retention import Retention
from .state.describe import Described, State, describe
from .state.items import Saved
from .storage import h5file
from .storage.chunks import Table, empty_table, raw_bytes, stored_bytes
from .storage.codec import Codec
from .storage.direct import DirectOutput
from .storage.drivers import Output, open_output
from .storage.manifest import Manifest, seal
from .storage.pace import Pace
from .transfer.gather import save_pieces
from .transfer.held import Held
from .transfer.packing import Packing, pack

SLOWEST = 10 << 20
"""Bytes a second and rank below which a save or load counts as hanging, beyond the deadline."""

CHUNKS = 1000
"""Compressed pieces a second below which laying out a file counts as hanging."""


@dataclass(frozen=True, eq=False)
class _Plan:
    """Where everything goes; ``places`` on rank 0 alone.

    ``unbuffered`` and ``over`` are as for `Pace`; ``chunks`` are the offsets of the compressed pieces of all ranks.
    """

    manifest: Manifest
    places: h5file.Places | None
    unbuffered: bool
    over: bool
    chunks: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
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
    codec: Codec | None = None

    def run(self, step: int, items: State, info: Any) -> Saved:
        """Save a state. Collective."""
        began = time.perf_counter()
        group = self.group
        described = describe(group, step, items, info, self.codec)
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
        # Ranks wait for the one that has the most to do.
        slowest = -group.minimum(np.array([-described.local_bytes / SLOWEST - _codec_seconds(described)]))[0]
        chunks = sum(each.pieces for each in described.entries if each.filter is not None)
        self.watchdog.extend(float(slowest) + chunks / CHUNKS)
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
            size, raw, seconds = self._write(manifest, described.held, temporary, final)
        except BaseException:
            if group.rank == 0:
                self.staging.discard(temporary)
            raise
        return Saved(final, step, size, time.perf_counter() - began, raw, seconds)

    def _write(self, manifest: Manifest, held: Sequence[Held], temporary: Path, final: Path) -> tuple[int, int, float]:
        """Return the bytes of the file, those without compression, and the seconds that compression has taken."""
        group, doing = self.group, f"saving {final}"
        digests = np.zeros(manifest.pieces, np.uint64)
        packing: Packing | None = None
        packed = np.zeros(0, np.int64)
        chunks = empty_table()
        if manifest.chunks:
            packing, packed, chunks = pack(group, held, manifest, digests, doing)
        plan = self._lay_out(manifest, chunks, temporary, final)
        began = time.perf_counter()
        moved = self._move(plan, held, packing, temporary, digests, doing)
        self.pace.note(plan.unbuffered, plan.over, stored_bytes(manifest, chunks), time.perf_counter() - began)
        size, raw = self._seal(plan, np.concatenate([packed, moved]), digests, chunks, temporary, final)
        seconds = 0.0 if packing is None else -float(group.minimum(np.array([-packing.seconds]))[0])
        return size, raw, seconds

    def _lay_out(self, manifest: Manifest, chunks: Table, temporary: Path, final: Path) -> _Plan:
        """Make the file, on rank 0 for all. Collective.

        Parameters
        ----------
        chunks
            On rank 0 of all compressed pieces; the offsets are filled in.
        """
        group, staging = self.group, self.staging
        places: h5file.Places | None = None
        error: BaseException | None = None
        told = np.zeros(0, np.int64)
        if group.rank == 0:
            try:
                staging.prepare()
                temporary.unlink(missing_ok=True)
                if problem := describe_space(staging.path, stored_bytes(manifest, chunks), staging.spare):
                    raise StorageError(f"saving {final}: {problem}")
                over = staging.spare.exists()
                if over:
                    os.rename(staging.spare, temporary)
                manifest, places = h5file.lay_out(temporary, manifest, chunks)
                arrays = [each.offset for each in manifest.arrays]
                told = np.concatenate([[self.pace.unbuffered(over), over], arrays, chunks[:, 0]]).astype(np.int64)
            except Exception as problem:
                error = staging.fenced(problem)
        group.agree_on_root(error, f"saving {final}")
        told = np.frombuffer(group.bcast(told.tobytes()), np.int64)
        first = 2 + len(manifest.arrays)
        offsets = zip(manifest.arrays, told[2:first].tolist(), strict=True)
        manifest = replace(manifest, arrays=tuple(replace(each, offset=at) for each, at in offsets))
        return _Plan(manifest, places, bool(told[0]), bool(told[1]), told[first:])

    def _move(
        self,
        plan: _Plan,
        held: Sequence[Held],
        packing: Packing | None,
        temporary: Path,
        digests: npt.NDArray[np.uint64],
        doing: str,
    ) -> npt.NDArray[np.int64]:
        """Write all arrays, durably; return the numbers of the pieces that this rank has digested here. Collective."""
        manifest, trouble = plan.manifest, Trouble()
        if packing is not None and self.driver != "direct":
            # Before HDF5 opens the file, which may not expect writes by another road.
            with trouble, contextlib.closing(DirectOutput(temporary, (), unbuffered=plan.unbuffered)) as road:
                packing.put(road, plan.chunks)
                road.finish()
            self._agree(trouble, doing)
        output: Output | None = None
        with trouble:
            output = open_output(self.driver, temporary, manifest, self.group, unbuffered=plan.unbuffered)
        with trouble:
            if packing is not None and isinstance(output, DirectOutput):
                packing.put(output, plan.chunks)
        which = [array for array, each in enumerate(manifest.arrays) if each.filter is None]
        mine = save_pieces(self.group, which, [held[each] for each in which], output, manifest, digests, trouble)
        with trouble:
            if output is not None and trouble.error is None:
                output.finish()
        try:
            self._agree(trouble, doing)
        finally:
            if output is not None:
                with contextlib.suppress(Exception):
                    output.close()
        return mine

    def _seal(
        self,
        plan: _Plan,
        owned: npt.NDArray[np.int64],
        digests: npt.NDArray[np.uint64],
        chunks: Table,
        temporary: Path,
        final: Path,
    ) -> tuple[int, int]:
        """Bring the digests together and commit; return the bytes of the file, and without compression. Collective."""
        group = self.group
        gathered = group.gather(np.stack([owned.astype(np.uint64), digests[owned]]).tobytes())
        size = raw = 0
        error: BaseException | None = None
        if group.rank == 0 and gathered is not None and plan.places is not None:
            try:
                size = self._finish(plan.manifest, plan.places, gathered, temporary, final)
                raw = raw_bytes(plan.manifest, chunks, size)
            except Exception as problem:
                error = self.staging.fenced(problem)
        group.agree_on_root(error, f"saving {final}")
        size, raw = np.frombuffer(group.bcast(np.array([size, raw], np.int64).tobytes()), np.int64).tolist()
        return size, raw

    def _agree(self, trouble: Trouble, doing: str) -> None:
        if trouble.error is not None:
            trouble.error = self.staging.fenced(trouble.error)
        self.group.agree(trouble.error, doing)

    def _finish(
        self,
        manifest: Manifest,
        places: h5file.Places,
        gathered: list[bytes],
        temporary: Path,
        final: Path,
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


def _codec_seconds(described: Described) -> float:
    """Return what compressing this rank's arrays may take at most; a rank compresses about as much as it holds."""
    pairs = zip(described.entries, described.held, strict=True)
    return sum(each.bytes / entry.filter.codec.slowest for entry, each in pairs if entry.filter is not None)
