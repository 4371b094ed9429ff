"""Checkpoints made of other programs' files, and of others with other types or layouts.

By one process, or by ranks together: each reads and writes its rows of every array, whatever the layout is to be.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..comm.group import Group
from ..comm.trouble import Trouble
from ..comm.watchdog import Watchdog
from ..commit import Staging, Writer, own_staging
from ..errors import Mismatch, Unsupported
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
    try:
        if path.suffix == ".npy":
            return {path.stem: np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))}
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
    except ValueError as error:
        raise Unsupported(f"{path}: {error}") from None
    if path.suffix not in (".h5", ".hdf5"):
        raise Unsupported(f"{path}: only .npy, .npz and .h5 files can be imported")
    import h5py

    found: dict[str, Array] = {}

    def take(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset):
            found[name] = _mapped(path, node)
            if found[name].dtype.hasobject:
                raise Unsupported(f"{path}: dataset {name!r} holds text of variable length or references")

    with h5py.File(path, "r") as file:
        file.visititems(take)
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

    Raises
    ------
    CheckpointError
        The same on every rank.
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
    return _write(group, folder, described, None, step, 1)


def _rows(group: Group, entry: ArrayEntry, read: Callable[[Box], Array]) -> Held:
    """Return this rank's rows of an array, by which it is moved whatever its layout."""
    shape = entry.shape
    layout = Block() if shape else Replicated()
    box = layout.boxes(shape, group.size)[group.rank][0] if shape else Box((), ())
    local = np.ascontiguousarray(read(box), entry.dtype).reshape(box.shape)
    return Held(entry.name, shape, layout, group.size, group.rank, local, entry.piece, writing=True, row=entry.row)


def _write(group: Group, folder: Path, described: Described, writer: Writer | None, step: int, ranks: int) -> Saved:
    """Write and commit what has been described. Collective."""
    path = Path(os.fsdecode(group.bcast(os.fsencode(own_staging(folder)))))
    writer = None if writer is None else replace(writer, staging=path)
    staging = Staging(folder, writer, path)
    watchdog = Watchdog(group.comm, group.rank)
    try:
        job = SaveJob(folder, group, staging, "direct", KeepLast(1 << 30), False, watchdog, Pace())
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
) -> Saved:
    """Write a checkpoint anew with other dtypes or layouts for some arrays; all else stays. Collective over the group.

    Each rank holds its share of all arrays in memory.

    Parameters
    ----------
    compress
        As for `.store.Store`, of all arrays; each is compressed as it was when None.
    group
        The ranks that have it open; this process alone when None.

    Raises
    ------
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
    return _write(group, folder, described, writer, old.step, old.ranks)


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
