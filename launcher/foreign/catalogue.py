"""The checkpoints of a program's own, as the run directory records them: ``checkpoints/program.jsonl``.

A line for each that was seen complete, with its files, their sizes and digests; a line for each that was found damaged.
Only what is recorded is ever restarted from, and only after its files were compared with the record.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .scan import FileState, Found, states

CHUNK = 1 << 22
FILE = "program.jsonl"


@dataclass(frozen=True)
class Part:
    """One file of a checkpoint. ``copy`` is relative to the folder of checkpoints, None without a copy."""

    path: str
    bytes: int
    mtime_ns: int
    digest: str | None = None
    copy: str | None = None


@dataclass(frozen=True)
class Record:
    """One complete checkpoint. ``bad`` says why it can't be used any more."""

    name: str
    step: int
    bytes: int
    seconds: float
    time: float
    generation: int
    ranks: int
    roots: tuple[str, ...]
    parts: tuple[Part, ...]
    bad: str | None = None


class Changed(Exception):
    """A file changed while it was read: it is not complete yet, or being written again."""


class Catalogue:
    """The recorded checkpoints of one run.

    Parameters
    ----------
    checkpoints
        The run's folder of checkpoints.
    folder
        The program's working directory.
    """

    def __init__(self, checkpoints: Path, folder: Path) -> None:
        self.checkpoints, self.folder = checkpoints, folder

    def records(self) -> list[Record]:
        """Return all that were recorded, newest first; a line that a crash cut short is passed over."""
        found: dict[str, Record] = {}
        for entry in self._lines():
            try:
                if "bad" in entry:
                    found[entry["name"]] = dataclasses.replace(found[entry["name"]], bad=str(entry["bad"]))
                elif "dropped" in entry:
                    found.pop(entry["name"])
                else:
                    found[entry["name"]] = Record(**_of(entry))
            except (KeyError, TypeError):
                continue
        return list(reversed(found.values()))

    def _lines(self) -> list[dict[str, Any]]:
        try:
            text = (self.checkpoints / FILE).read_text(errors="replace")
        except OSError:
            return []
        found = []
        for line in text.splitlines():
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict):
                    found.append(entry)
        return found

    def _append(self, entry: dict[str, Any]) -> None:
        handle = os.open(self.checkpoints / FILE, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            line = json.dumps(entry) + "\n"
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":
                line = "\n" + line
            os.write(handle, line.encode())
            os.fsync(handle)
        finally:
            os.close(handle)

    def add(self, record: Record) -> None:
        """Record a checkpoint; durable when this returns."""
        self._append({key: value for key, value in dataclasses.asdict(record).items() if key != "bad"})

    def mark_bad(self, record: Record, why: str) -> None:
        """Note that a checkpoint can't be used; what is left of it is kept for inspection."""
        self._append({"name": record.name, "bad": why})

    def free_name(self, step: int, generation: int) -> str:
        """Return a name that no record has."""
        taken = {entry.get("name") for entry in self._lines()}
        stem = f"step-{step:012d}-g{generation:04d}"
        names = [stem, *(f"{stem}-{count}" for count in range(2, len(taken) + 3))]
        return next(name for name in names if name not in taken)

    # -- files

    def seal(self, found: Found, name: str, *, digest: bool, copy: bool) -> tuple[Part, ...]:
        """Read the files of a checkpoint that seems complete, copy them if so wished, and describe them.

        Raises
        ------
        Changed
            When one is not, any more, as it was found.
        OSError
            When one can't be read, or a copy can't be written.
        """
        target = self.checkpoints / f".{name}.copy"
        parts = []
        try:
            for each in found.files:
                if not (digest or copy):
                    parts.append(Part(each.path, each.bytes, each.mtime_ns))
                    continue
                beside = target / each.path if copy else None
                parts.append(
                    Part(
                        each.path, each.bytes, each.mtime_ns, _read(self.folder / each.path, beside),
                        f"{name}/{each.path}" if copy else None,
                    )
                )  # fmt: skip
            now = tuple(state for root in found.roots for state in states(self.folder, root))
            if now != found.files:
                raise Changed(f"{found.roots[0]} changed while it was read")
            if copy:
                os.rename(target, self.checkpoints / name)
        finally:
            shutil.rmtree(target, ignore_errors=True)
        return tuple(parts)

    def problem(self, record: Record) -> str | None:
        """Compare a checkpoint's files with its record; returns what is wrong, None when it is whole."""
        if record.bad is not None:
            return record.bad
        return next(filter(None, (self._part_problem(part) for part in record.parts)), None)

    def _part_problem(self, part: Part) -> str | None:
        path = self.where(part)
        try:
            stat = path.stat()
            if stat.st_size != part.bytes:
                return f"{path.name} has {stat.st_size} bytes instead of {part.bytes}"
            if part.digest is None:
                changed = part.copy is None and stat.st_mtime_ns != part.mtime_ns
                return f"{path.name} was written again since" if changed else None
            return None if _read(path) == part.digest else f"{path.name} is damaged: its digest differs"
        except OSError as error:
            return f"{path.name}: {error.strerror}"

    def where(self, part: Part) -> Path:
        """Return the file to read: the copy where there is one."""
        return self.folder / part.path if part.copy is None else self.checkpoints / part.copy

    def root(self, record: Record) -> str:
        """Return the path that a command line names: relative to the working directory where it lies below it."""
        root = record.roots[0]
        if any(part.copy for part in record.parts):
            path = self.checkpoints / record.name / root
            return str(path.relative_to(self.folder)) if path.is_relative_to(self.folder) else str(path)
        return root

    def restore(self, record: Record) -> None:
        """Put the copies back where the program wrote its files.

        Raises
        ------
        OSError
        """
        for part in record.parts:
            if part.copy is None:
                continue
            path = self.folder / part.path
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.dmr-restore")
            shutil.copy2(self.checkpoints / part.copy, temporary)
            os.replace(temporary, path)

    def set_aside(self, found: Iterable[Found], generation: int) -> None:
        """Rename files that are not to be found by the program; they are kept for inspection.

        Raises
        ------
        OSError
        """
        for root in (root for each in found for root in each.roots):
            path = self.folder / root
            path.rename(path.with_name(f".set-aside-{generation:04d}-{path.name}"))

    def prune(self, keep: int, *, delete: bool) -> None:
        """Drop all good checkpoints but the newest: their copies, and the program's own files with ``delete``."""
        good = [each for each in self.records() if each.bad is None]
        kept = {part.path for each in good[:keep] for part in each.parts}
        for each in good[keep:]:
            copied = any(part.copy for part in each.parts)
            if not copied and not delete:
                continue
            self._append({"name": each.name, "dropped": True})
            if copied:
                shutil.rmtree(self.checkpoints / each.name, ignore_errors=True)
            if delete:
                self._delete([part for part in each.parts if part.path not in kept])

    def _delete(self, parts: Iterable[Part]) -> None:
        for part in parts:
            path = self.folder / part.path
            with contextlib.suppress(OSError):
                if FileState(part.path, path.stat().st_size, path.stat().st_mtime_ns) == FileState(
                    part.path, part.bytes, part.mtime_ns
                ):
                    path.unlink()


def _of(entry: dict[str, Any]) -> dict[str, Any]:
    names = {each.name for each in dataclasses.fields(Record)}
    known = {key: value for key, value in entry.items() if key in names}
    known["parts"] = tuple(Part(**part) for part in entry["parts"])
    known["roots"] = tuple(entry["roots"])
    return known


def _read(path: Path, copy: Path | None = None) -> str:
    """Return the digest of a file, and write a durable copy on the way."""
    import xxhash

    digest = xxhash.xxh3_128()
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(open(path, "rb"))
        sink = None
        if copy is not None:
            copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            sink = stack.enter_context(open(copy, "wb"))
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            if sink is not None:
                sink.write(chunk)
        if sink is not None:
            sink.flush()
            os.fsync(sink.fileno())
    return digest.hexdigest()
