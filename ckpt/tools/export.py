"""Arrays of a checkpoint as plain files: ``.npy``, ``.npz``, ``.h5``. By one process, or by ranks together."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..comm.cores import threads_of
from ..comm.group import Group
from ..comm.trouble import Trouble
from ..commit import sync_file
from ..errors import Mismatch, Unsupported
from ..reader import CheckpointFile
from ..state import dtypes
from ..storage import h5file
from ..storage.manifest import ArrayEntry
from ..transfer.held import carrier
from ..transfer.plan import window
from .ahead import ahead

Array = npt.NDArray[Any]
Progress = Callable[[int], None]


def export(
    file: CheckpointFile,
    target: Path,
    names: Sequence[str] = (),
    progress: Progress | None = None,
    group: Group | None = None,
) -> list[Path]:
    """Write arrays, verified, to plain files; return their paths. Collective over the group.

    A file gets its name when it is complete. The ranks of a group write the parts of ``.npy`` files together; the other
    kinds are written by rank 0.

    Parameters
    ----------
    target
        ``….npy`` for one array, ``….npz`` or ``….h5`` for any number; a folder for one ``.npy`` each. To a folder and
        an ``.h5`` file the values are written too (``values.json``, attribute ``values``).
    names
        All arrays when empty.
    progress
        Called on each rank with a number of bytes each time that it has written that many more.
    group
        The ranks that have the checkpoint open; this process alone when None.

    Raises
    ------
    Mismatch
        When there is no such array, or several are to go to a ``.npy`` file.
    StorageError
        When a file is there already, or can't be written.
    Damaged
        When the data is not what was written.
    """
    group = Group() if group is None else group
    threads = threads_of(group)
    chosen = list(names) or list(file)
    for name in chosen:
        if name not in file:
            raise Mismatch(f"{file.path} holds no array {name!r}; it holds {', '.join(map(repr, file)) or 'none'}")
    entries = {each.name: each for each in file.manifest.arrays}
    if target.suffix == ".npy":
        if len(chosen) != 1:
            raise Mismatch(
                f"{target} takes one array, and {len(chosen)} are to be written: name one, or use .npz or .h5"
            )
        _to_npy(file, entries[chosen[0]], target, progress, group, threads)
        return [target]
    if target.suffix in (".npz", ".h5", ".hdf5"):
        write = _write_npz if target.suffix == ".npz" else _write_hdf5
        entry_list = [entries[name] for name in chosen]

        def begin(part: Path) -> None:
            # HDF5 1.10 crashes when a disk gets full.
            _check_space(part, sum(each.bytes for each in entry_list))
            write(file, entry_list, part, progress, threads)

        _make(target, group, begin)
        return [target]
    if target.suffix and not target.is_dir():
        raise Unsupported(f"{target}: write to .npy, .npz, .h5 or a folder")
    trouble = Trouble()
    with trouble:
        if group.rank == 0:
            target.mkdir(parents=True, exist_ok=True)
    group.agree(trouble.error, f"exporting to {target}")
    written = []
    for name in chosen:
        written.append(target / f"{h5file.dataset_name(name)}.npy")
        _to_npy(file, entries[name], written[-1], progress, group, threads)
    if file.manifest.values:
        written.append(target / "values.json")
        text = json.dumps(dict(file.manifest.values), indent=2)
        _make(written[-1], group, lambda part: _write_text(part, text))
    return written


def _make(
    target: Path, group: Group, begin: Callable[[Path], None], rest: Callable[[Path], None] | None = None
) -> None:
    """Make a file: rank 0 begins it, all ranks do the rest, and when it is complete it gets its name. Collective."""
    doing = f"exporting to {target}"
    # Not longer than the target's own, which may be as long as a name can be.
    name = group.bcast(os.fsencode(f".dmr-part-{secrets.token_hex(4)}"))
    part = target.with_name(os.fsdecode(name))
    trouble = Trouble()
    try:
        with trouble:
            if group.rank == 0:
                _refuse_existing(target)
                begin(part)
        group.agree(trouble.error, doing)
        if rest is not None:
            with trouble:
                rest(part)
            group.agree(trouble.error, doing)
        with trouble:
            if group.rank == 0:
                sync_file(part)
                _give_name(part, target)
        group.agree(trouble.error, doing)
    finally:
        if group.rank == 0:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)


def _to_npy(
    file: CheckpointFile, entry: ArrayEntry, target: Path, progress: Progress | None, group: Group, threads: int
) -> None:
    dtype = _npy_dtype(entry.dtype)

    def begin(part: Path) -> None:
        np.lib.format.open_memmap(part, "w+", dtype, entry.shape)  # type: ignore[no-untyped-call]
        _reserve(part)

    def rest(part: Path) -> None:
        # Not through a map of the file: ranks of several nodes would write over each other's parts of a page, and where
        # there is no room a map ends the process.
        out = os.open(part, os.O_WRONLY | os.O_CLOEXEC)
        try:
            offset = os.fstat(out).st_size - entry.bytes
            for lo, data in _pieces(file, entry, group.share(entry.pieces), progress, threads):
                raw = data.view(carrier(entry.dtype.itemsize)).view(np.uint8)
                h5file.write_all(out, raw.data, offset + lo * entry.dtype.itemsize)
            os.fsync(out)
        except OSError as error:
            error.filename = str(target)
            raise
        finally:
            os.close(out)

    _make(target, group, begin, rest if entry.bytes else None)


def _reserve(path: Path) -> None:
    """Make room for all of a file, so that no write to it can fail for want of it; where that can be had."""
    out = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.posix_fallocate(out, 0, os.fstat(out).st_size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV):
            error.filename = str(path.parent)
            raise
    finally:
        os.close(out)


def _check_space(part: Path, needed: int) -> None:
    free = os.statvfs(part.parent)
    if needed > free.f_bavail * free.f_frsize:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(part.parent))


def _npy_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"V{dtype.itemsize}") if dtype.name in dtypes.ML_DTYPES else dtype


def _write_npz(
    file: CheckpointFile, entries: Sequence[ArrayEntry], target: Path, progress: Progress | None, threads: int
) -> None:
    for entry in entries:
        if any(each == "\0" or "\ud800" <= each <= "\udfff" for each in entry.name):
            raise Unsupported(f"the array {entry.name!r} can't have its name in a .npz file: export to .h5 or a folder")
    with zipfile.ZipFile(target, "x", allowZip64=True) as archive:
        for entry in entries:
            found = np.empty(entry.shape, entry.dtype)
            if entry.bytes:
                flat = found.reshape(-1).view(carrier(entry.dtype.itemsize))
                for lo, data in _pieces(file, entry, range(entry.pieces), progress, threads):
                    flat[lo : lo + len(data)] = data.view(flat.dtype)
            with archive.open(f"{entry.name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, found, allow_pickle=False)  # type: ignore[no-untyped-call]


def _write_hdf5(
    file: CheckpointFile, entries: Sequence[ArrayEntry], target: Path, progress: Progress | None, threads: int
) -> None:
    import h5py

    with h5py.File(target, "x") as out:
        for entry in entries:
            stored, more = dtypes.storage(entry.dtype)
            made = out.create_dataset(h5file.dataset_name(entry.name), entry.shape + more, stored)
            made.attrs["dtype"] = json.dumps(dtypes.to_json(entry.dtype, entry.name))
            if not entry.bytes:
                continue
            for lo, data in _pieces(file, entry, range(entry.pieces), progress, threads):
                at = 0
                for box in window(entry.shape, lo, lo + len(data)):
                    part = np.ascontiguousarray(data[at : at + box.size]).view(stored)
                    made[(*box.slices, ...)] = part.reshape(box.shape + more)
                    at += box.size
        out.attrs["values"] = json.dumps(dict(file.manifest.values))
        out.attrs["step"] = file.step


def _write_text(path: Path, text: str) -> None:
    path.write_text(text)


def _pieces(
    file: CheckpointFile, entry: ArrayEntry, which: Iterable[int], progress: Progress | None, threads: int
) -> Iterator[tuple[int, Array]]:
    """Yield the first element and the elements of pieces, read and verified ahead."""
    spans = [entry.cut.span(piece) for piece in which]
    read = ahead(lambda span: file.elements(entry.name, *span), spans, threads)
    for (lo, hi), data in zip(spans, read, strict=True):
        yield lo, data
        if progress is not None:
            progress((hi - lo) * entry.dtype.itemsize)


def _give_name(part: Path, target: Path) -> None:
    """Rename a file, to a name that is not there."""
    try:
        os.link(part, target)
    except FileExistsError:
        raise _existing(target) from None
    except OSError:  # no hard links in this file system
        _refuse_existing(target)
        os.rename(part, target)


def _refuse_existing(path: Path) -> None:
    if path.exists():
        raise _existing(path)


def _existing(path: Path) -> FileExistsError:
    return FileExistsError(errno.EEXIST, "it exists already, and is not overwritten", str(path))
