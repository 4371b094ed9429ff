"""One save, from the items to the committed file."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from . import dtypes, h5file, rng, values
from .commit import Staging, clear_bad, describe_space, file_name, prune, sync_file
from .drivers import Output, open_output
from .errors import CheckpointError, Fenced, Mismatch, StorageError, Unsupported
from .group import Group, same_everywhere
from .held import Held
from .items import ArrayItem, RngItem, Saved, State, ValueItem
from .manifest import ArrayEntry, Manifest, digest, seal
from .plan import elements_per_piece, plan
from .transfer import Trouble, save_pieces
from .watchdog import Watchdog

SLOWEST = 10 << 20
"""Bytes a second and rank below which a save or load counts as hanging, beyond the deadline."""


@dataclass(eq=False)
class Described:
    """A state as this rank sees it, checked; the lists are in the order of names."""

    entries: list[ArrayEntry] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    rngs: dict[str, Any] = field(default_factory=dict)
    info: Any = None

    @property
    def local_bytes(self) -> int:
        return sum(each.bytes for each in self.held)


def describe(items: State, info: Any, ranks: int, rank: int) -> Described:
    """Check what is handed over to be saved.

    Raises
    ------
    Unsupported, Mismatch
        With the name of the item and what to do.
    """
    found = Described(info=values.encode(info, "info"))
    first = 0
    for name in sorted(items):
        if not name:
            raise Unsupported("an item has an empty name")
        item = items[name]
        if isinstance(item, ValueItem):
            found.values[name] = values.encode(item.value, f"value {name!r}")
        elif isinstance(item, RngItem):
            found.rngs[name] = rng.state_of(item.generator, name)
        elif isinstance(item, ArrayItem):
            local = dtypes.check(item.local, name)
            shape = tuple(int(n) for n in item.shape)
            piece = elements_per_piece(local.dtype.itemsize)
            try:
                found.held.append(Held(name, shape, item.layout, ranks, rank, local, piece, writing=True))
            except CheckpointError as error:
                said = str(error)
                raise type(error)(said if said.startswith("array ") else f"array {name!r}: {said}") from None
            entry = ArrayEntry(name, h5file.dataset_name(name), shape, local.dtype, item.layout, 0, piece, first)
            found.entries.append(entry)
            first += entry.pieces
        else:
            raise Unsupported(f"item {name!r} is a {type(item).__name__}: use ArrayItem, ValueItem or RngItem")
    return found


def check_agreement(group: Group, step: int, described: Described, trouble: Trouble) -> None:
    """Raise on every rank when ranks hand over different things. Collective."""
    if group.size == 1:
        return
    named: list[tuple[str, bytes]] = [("the step", str(step).encode()), ("the info", values.canonical(described.info))]
    with trouble:
        specs = [
            (f"array {each.name!r} (shape, dtype, layout)", values.canonical(each.to_json()))
            for each in described.entries
        ]
        named += specs
        named += [(f"value {name!r}", values.canonical(each)) for name, each in described.values.items()]
        named += [(f"random generator {name!r}", values.canonical(each)) for name, each in described.rngs.items()]
    group.agree(trouble.error, "describing the state")
    names = digest(json.dumps([what for what, _ in named]).encode())
    if not all(same_everywhere(group, [names])):
        _name_difference(group, [what for what, _ in named])
    numbers = [digest(content) for _, content in named]
    copies = [each for each in described.held if each.everywhere and each.bytes]
    with trouble:
        for each in copies:
            numbers.append(digest(each.whole))
    group.agree(trouble.error, "comparing replicated arrays")
    labels = [what for what, _ in named] + [f"the content of the replicated array {each.name!r}" for each in copies]
    same = same_everywhere(group, numbers)
    if not all(same):
        place = same.index(False)
        _raise_difference(group, labels[place], numbers[place])


def _raise_difference(group: Group, what: str, mine: int) -> None:
    texts = group.allgather(str(mine).encode())
    other = next(rank for rank, text in enumerate(texts) if text != texts[0])
    error = Mismatch(f"{what} differs between ranks: rank {other} has not what rank 0 has")
    error.rank = other
    raise error


def _name_difference(group: Group, names: list[str]) -> None:
    lists = [json.loads(each) for each in group.allgather(json.dumps(names).encode())]
    other = next(rank for rank, each in enumerate(lists) if each != lists[0])
    more = sorted(set(lists[other]) - set(lists[0])) + sorted(set(lists[0]) - set(lists[other]))
    error = Mismatch(f"ranks hand over different items: rank {other} and rank 0 differ in {', '.join(more[:5])}")
    error.rank = other
    raise error


@dataclass(frozen=True, eq=False)
class SaveJob:
    """Where and how a save goes."""

    folder: Path
    group: Group
    staging: Staging
    driver: Literal["mpio", "direct"]
    keep: int
    watchdog: Watchdog

    def run(self, step: int, items: State, info: Any) -> Saved:
        """Save a state. Collective."""
        began = time.perf_counter()
        group, trouble = self.group, Trouble()
        described = Described()
        with trouble:
            described = describe(items, info, group.size, group.rank)
        group.agree(trouble.error, "describing the state")
        check_agreement(group, step, described, trouble)
        self.watchdog.extend(described.local_bytes / SLOWEST)

        writer = self.staging.writer
        generation = 0 if writer is None else writer.generation
        manifest = Manifest(
            step,
            generation,
            "" if writer is None else writer.run,
            "" if writer is None else writer.token,
            group.size,
            described.info,
            tuple(described.entries),
            described.values,
            described.rngs,
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
        offsets = b""
        if group.rank == 0:
            try:
                self.staging.prepare()
                temporary.unlink(missing_ok=True)
                needed = sum(each.bytes for each in manifest.arrays)
                if problem := describe_space(self.staging.path, needed):
                    raise StorageError(f"saving {final}: {problem}")
                manifest, places = h5file.lay_out(temporary, manifest)
                offsets = np.array([each.offset for each in manifest.arrays], np.int64).tobytes()
            except Exception as problem:
                error = self._fenced(problem)
        group.agree_on_root(error, doing)
        found = np.frombuffer(group.bcast(offsets), np.int64).tolist()
        if group.rank:
            manifest = replace(
                manifest,
                arrays=tuple(replace(each, offset=at) for each, at in zip(manifest.arrays, found, strict=True)),
            )

        trouble = Trouble()
        output: Output | None = None
        with trouble:
            output = open_output(self.driver, temporary, manifest, group)
        digests = save_pieces(group, held, output, manifest, trouble)
        with trouble:
            if output is not None and trouble.error is None:
                output.finish()
        if trouble.error is not None:
            trouble.error = self._fenced(trouble.error)
        try:
            group.agree(trouble.error, doing)
        finally:
            if output is not None:
                with contextlib.suppress(Exception):
                    output.close()

        gathered = group.gather(_own_digests(digests, held, group))
        size = 0
        if group.rank == 0 and gathered is not None and places is not None:
            try:
                size = self._finish(manifest, places, gathered, temporary, final)
            except Exception as problem:
                error = self._fenced(problem)
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
        self.staging.commit(temporary, final)
        clear_bad(final)
        prune(self.folder, self.keep)
        self.staging.reclaim()
        return size

    def _fenced(self, error: Exception) -> Exception:
        """Return the error as what it is: a file that vanished under a fenced writer was taken away by a later one."""
        writer = self.staging.writer
        if writer is None or not isinstance(error, FileNotFoundError):
            return error
        return Fenced(
            f"generation {writer.generation} may not commit any more: a later one has taken its staging folder "
            f"{self.staging.path} away"
        )


def _own_digests(digests: Any, held: Sequence[Held], group: Group) -> bytes:
    plans = plan([each.moved for each in held], group.size)
    owners = np.concatenate([np.zeros(0, np.int64), *(each.owners for each in plans)])
    mine = np.flatnonzero(owners == group.rank).astype(np.uint64)
    return bytes(np.stack([mine, digests[mine.astype(np.int64)]]).tobytes())
