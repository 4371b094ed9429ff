"""Checkpoints made of other programs' files, and of others with other types or layouts.

By one process, or by ranks together: each reads and writes its rows of every array, whatever the layout is to be.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..comm.group import Group
from ..comm.trouble import Trouble
from ..comm.watchdog import Watchdog
from ..commit import Staging, Writer, file_name, own_staging
from ..errors import Mismatch, StorageError, Unsupported
from ..layouts.box import Box
from ..layouts.layout import Block, Layout, Replicated
from ..reader import CheckpointFile
from ..retention import KeepLast
from ..save import SaveJob
from ..state.describe import Described, describe
from ..state.items import ArrayItem, Saved, ValueItem
from ..storage.codec import parse
from ..storage.filters import choose
from ..storage.manifest import ArrayEntry
from ..storage.pace import Pace
from ..transfer.held import Held
from ..transfer.plan import elements_per_piece

Array = npt.NDArray[Any]
_HANGING = 600.0


def read_arrays(path: Path) -> dict[str, Array]:
    """Return the arrays of a ``.npy``, ``.npz`` or ``.h5`` file that another program wrote, by name.

    Those of a ``.npy`` file, and plain ones of an ``.h5`` file, are not in memory yet.

    Raises
    ------
    Unsupported
        When it is none of these, or holds pickled objects.
    """
    readers = {".npy": _read_npy, ".npz": _read_npz, ".h5": _read_hdf5, ".hdf5": _read_hdf5}
    if path.suffix not in readers:
        raise Unsupported(f"{path}: only .npy, .npz and .h5 files can be imported")
    if not path.stat().st_size:
        raise Unsupported(f"{path} is empty")
    try:
        return readers[path.suffix](path)
    except MemoryError as error:
        raise Unsupported(f"{path}: there is no memory for it ({error})") from None
    except (ValueError, EOFError, KeyError, RuntimeError, TypeError, zlib.error, zipfile.BadZipFile) as error:
        raise Unsupported(f"{path} can't be read: {' '.join(str(error).split())}") from None


def _read_npy(path: Path) -> dict[str, Array]:
    return {path.stem: np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))}


def _read_npz(path: Path) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as file:
        found = {name: file[name] for name in file.files}
    for name, array in found.items():
        if not isinstance(array, np.ndarray):
            raise Unsupported(f"{path}: {name!r} is no array")
    return found


def _read_hdf5(path: Path) -> dict[str, Array]:
    import h5py

    found: dict[str, Array] = {}

    def take(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset):
            if node.shape is None:
                raise Unsupported(f"{path}: dataset {name!r} is empty, without a shape")
            found[name] = _mapped(path, node)
            if found[name].dtype.hasobject:
                raise Unsupported(f"{path}: dataset {name!r} holds text of variable length or references")

    try:
        with h5py.File(path, "r") as file:
            file.visititems(take)
    except OSError as error:
        raise Unsupported(f"{path} can't be read: {' '.join(str(error).split())}") from None
    return found


def _mapped(path: Path, data: Any) -> Array:
    """Return a dataset as a map of the file, where it stands there as in NumPy's memory, else its content."""
    place = data.id.get_offset()
    if place is None or data.chunks is not None or not data.size or data.dtype.hasobject or data.dtype.kind == "V":
        return np.asarray(data[()])
    if not data.id.get_type().equal(_native(data.dtype)):
        return np.asarray(data[()])
    return np.asarray(np.memmap(path, data.dtype, "r", place, data.shape))


def _native(dtype: np.dtype[Any]) -> Any:
    import h5py

    return h5py.h5t.py_create(dtype)


def import_arrays(
    folder: Path,
    arrays: Mapping[str, Array],
    step: int = 0,
    layouts: Mapping[str, Layout] | None = None,
    given: Mapping[str, Any] | None = None,
    group: Group | None = None,
    *,
    overwrite: bool = False,
) -> Saved:
    """Write arrays that others made as a checkpoint that a run can begin from. Collective over the group.

    Parameters
    ----------
    arrays
        Whole, on every rank; what is a map of a file is read in parts.
    layouts
        How ranks are to hold them at first; ``Block(axis=0)`` for the others, ``Replicated()`` for 0-d ones.
    given
        JSON values to keep beside.
    group
        The ranks that write; this process alone when None.
    overwrite
        Whether a checkpoint of the same step may be replaced.

    Raises
    ------
    CheckpointError
        The same on every rank; `StorageError` where there is a checkpoint of this step.
    """
    group = Group() if group is None else group
    items: dict[str, ArrayItem | ValueItem] = {name: ValueItem(value) for name, value in (given or {}).items()}
    trouble = Trouble()
    described = Described()
    with trouble:
        for name, array in arrays.items():
            layout = (layouts or {}).get(name) or (Block() if array.ndim else Replicated())
            items[name] = ArrayItem(array, layout, array.shape)
        described = describe(Group(), step, items, None)
        for place, each in enumerate(described.entries):

            def read(box: Box, name: str = each.name) -> Array:
                part: Array = arrays[name][box.slices]
                return part

            described.held[place] = _rows(group, each, read)
    group.agree(trouble.error, f"importing into {folder}")
    return _write(group, folder, described, None, step, 1, overwrite)


def _rows(group: Group, entry: ArrayEntry, read: Callable[[Box], Array]) -> Held:
    """Return this rank's rows of an array, by which it is moved whatever its layout."""
    shape = entry.shape
    layout = Block() if shape else Replicated()
    box = layout.boxes(shape, group.size)[group.rank][0] if shape else Box((), ())
    local = np.ascontiguousarray(read(box), entry.dtype).reshape(box.shape)
    return Held(entry.name, shape, layout, group.size, group.rank, local, entry.piece, writing=True, row=entry.row)


def _write(
    group: Group, folder: Path, described: Described, writer: Writer | None, step: int, ranks: int, overwrite: bool
) -> Saved:
    """Write and commit what has been described. Collective."""
    target = folder / file_name(step, 0 if writer is None else writer.generation)
    there = StorageError(f"{target} exists already, and is not overwritten unless told to (--force)")
    group.agree_on_root(there if not overwrite and target.exists() else None, f"writing {target}")
    path = Path(os.fsdecode(group.bcast(os.fsencode(own_staging(folder)))))
    writer = None if writer is None else replace(writer, staging=path)
    staging = Staging(folder, writer, path)
    watchdog = Watchdog(group.comm, group.rank)
    try:
        job = SaveJob(
            folder=folder,
            group=group,
            staging=staging,
            driver="direct",
            keep=KeepLast(1 << 30),
            recycle=False,
            watchdog=watchdog,
            pace=Pace(),
        )
        with watchdog.watch(f"writing {folder}", _HANGING):
            return job.write(step, described, ranks)
    finally:
        watchdog.close()
        if group.rank == 0:
            staging.close()


def convert(
    file: CheckpointFile,
    folder: Path,
    types: Mapping[str, np.dtype[Any]] | None = None,
    layouts: Mapping[str, Layout] | None = None,
    *,
    unsafe: bool = False,
    compress: str | None = None,
    group: Group | None = None,
    overwrite: bool = False,
) -> Saved:
    """Write a checkpoint anew with other dtypes or layouts for some arrays; all else stays. Collective over the group.

    Each rank holds its share of all arrays in memory.

    Parameters
    ----------
    compress
        As for `.store.Store`, of all arrays; each is compressed as it was when None.
    group
        The ranks that have it open; this process alone when None.
    overwrite
        Whether a checkpoint of the same step and generation may be replaced.

    Raises
    ------
    StorageError
        When there is one already.
    Mismatch
        When there is no such array, or a type can't hold the other's values (``float64`` as ``int32``) and it is not
        ``unsafe``.
    """
    types, layouts = types or {}, layouts or {}
    for name in [*types, *layouts]:
        if name not in file:
            raise Mismatch(f"{file.path} holds no array {name!r}; it holds {', '.join(map(repr, file)) or 'none'}")
    group = Group() if group is None else group
    trouble = Trouble()
    described = Described()
    with trouble:
        described = _converted(file, types, layouts, unsafe, compress, group)
    group.agree(trouble.error, f"converting {file.path}")
    old = file.manifest
    writer = Writer(old.run, old.generation, old.token, folder)
    return _write(group, folder, described, writer, old.step, old.ranks, overwrite)


def _converted(
    file: CheckpointFile,
    types: Mapping[str, np.dtype[Any]],
    layouts: Mapping[str, Layout],
    unsafe: bool,
    compress: str | None,
    group: Group,
) -> Described:
    old = file.manifest
    described = Described(values=dict(old.values), rngs=dict(old.rngs), groups=dict(old.groups), info=old.info)
    wanted = parse(compress)
    first = chunk = 0
    for entry in old.arrays:
        dtype = types.get(entry.name, entry.dtype)
        if not unsafe and not np.can_cast(entry.dtype, dtype, "same_kind"):
            what = f"array {entry.name!r} of {entry.dtype} as {dtype}"
            raise Mismatch(f"{what} would not keep its values; unsafe (--unsafe) allows it")
        layout = layouts.get(entry.name, entry.layout)
        if entry.name in layouts:
            layout.at(1).parts(entry.shape, 1, 0)  # refuses axes that are not there
        codec = entry.filter.codec if compress is None and entry.filter is not None else wanted
        packed = choose(codec, entry.shape, dtype, chunk)
        piece = elements_per_piece(dtype.itemsize) if packed is None else packed.elements
        made = replace(entry, dtype=dtype, layout=layout, offset=0, piece=piece, first=first, filter=packed)

        def read(box: Box, name: str = entry.name, dtype: np.dtype[Any] = dtype) -> Array:
            data = file.read(name, box)
            return data if data.dtype == dtype else data.astype(dtype)

        described.held.append(_rows(group, made, read))
        described.entries.append(made)
        first += made.pieces
        chunk += 0 if packed is None else made.pieces
    return described
