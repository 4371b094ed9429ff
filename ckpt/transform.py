"""Checkpoints from and to other files, and with other types or layouts; by one process, without MPI."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from . import dtypes, h5file
from .commit import Staging, Writer, own_staging
from .describe import Described
from .errors import Mismatch, Unsupported
from .group import Group
from .held import Held, carrier
from .items import ArrayItem, Saved, ValueItem
from .layout import Block, Layout, Replicated
from .manifest import ArrayEntry
from .pace import Pace
from .plan import elements_per_piece
from .reader import CheckpointFile
from .retention import KeepLast
from .save import SaveJob
from .store import Store
from .watchdog import Watchdog

Array = npt.NDArray[Any]
Progress = Callable[[int], None]


def export(
    file: CheckpointFile, target: Path, names: Sequence[str] = (), progress: Progress | None = None
) -> list[Path]:
    """Write arrays, verified, to plain files; return their paths.

    Parameters
    ----------
    target
        ``….npy`` for one array, ``….npz`` or ``….h5`` for any number; a folder for one ``.npy`` each. To a folder and
        an ``.h5`` file the values are written too (``values.json``, attribute ``values``).
    names
        All arrays when empty.

    Raises
    ------
    Mismatch
        When there is no such array, or several are to go to a ``.npy`` file.
    FileExistsError
        When a file is there already.
    """
    chosen = list(names) or list(file)
    for name in chosen:
        if name not in file:
            raise Mismatch(f"{file.path} holds no array {name!r}; it holds {', '.join(map(repr, file)) or 'none'}")
    if target.suffix == ".npy":
        if len(chosen) != 1:
            raise Mismatch(
                f"{target} takes one array, and {len(chosen)} are to be written: name one, or use .npz or .h5"
            )
        _to_npy(file, chosen[0], target, progress)
        return [target]
    if target.suffix == ".npz":
        _refuse_existing(target)
        np.savez(target, **{name: _read(file, name, progress) for name in chosen})
        return [target]
    if target.suffix in (".h5", ".hdf5"):
        _to_hdf5(file, chosen, target, progress)
        return [target]
    if target.suffix and not target.is_dir():
        raise Unsupported(f"{target}: write to .npy, .npz, .h5 or a folder")
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for name in chosen:
        written.append(target / f"{h5file.dataset_name(name)}.npy")
        _to_npy(file, name, written[-1], progress)
    if file.manifest.values:
        written.append(target / "values.json")
        _refuse_existing(written[-1])
        written[-1].write_text(json.dumps(dict(file.manifest.values), indent=2))
    return written


def _to_npy(file: CheckpointFile, name: str, target: Path, progress: Progress | None) -> None:
    _refuse_existing(target)
    entry = next(each for each in file.manifest.arrays if each.name == name)
    out = np.lib.format.open_memmap(target, "w+", _npy_dtype(entry.dtype), entry.shape)  # type: ignore[no-untyped-call]
    if entry.bytes:
        flat = out.reshape(-1).view(carrier(entry.dtype.itemsize))
        for lo, part in _parts(file, entry, progress):
            flat[lo : lo + len(part)] = part.view(flat.dtype)
    out.flush()


def _npy_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"V{dtype.itemsize}") if dtype.name in dtypes.ML_DTYPES else dtype


def _to_hdf5(file: CheckpointFile, names: Sequence[str], target: Path, progress: Progress | None) -> None:
    import h5py

    _refuse_existing(target)
    with h5py.File(target, "x") as out:
        for name in names:
            entry = next(each for each in file.manifest.arrays if each.name == name)
            stored, more = dtypes.storage(entry.dtype)
            data = out.create_dataset(h5file.dataset_name(name), entry.shape + more, stored)
            data.attrs["dtype"] = json.dumps(dtypes.to_json(entry.dtype, name))
            if entry.bytes:
                raw = _read(file, name, progress)
                data[...] = np.ascontiguousarray(raw).view(stored).reshape(entry.shape + more)
        out.attrs["values"] = json.dumps(dict(file.manifest.values))
        out.attrs["step"] = file.step


def _read(file: CheckpointFile, name: str, progress: Progress | None) -> Array:
    entry = next(each for each in file.manifest.arrays if each.name == name)
    found = np.empty(entry.shape, entry.dtype)
    if entry.bytes:
        flat = found.reshape(-1).view(carrier(entry.dtype.itemsize))
        for lo, part in _parts(file, entry, progress):
            flat[lo : lo + len(part)] = part.view(flat.dtype)
    return found


def _parts(file: CheckpointFile, entry: ArrayEntry, progress: Progress | None) -> Iterator[tuple[int, Array]]:
    for piece in range(entry.pieces):
        lo, hi = piece * entry.piece, min((piece + 1) * entry.piece, entry.size)
        yield lo, file.elements(entry.name, lo, hi)
        if progress is not None:
            progress((hi - lo) * entry.dtype.itemsize)


def _refuse_existing(path: Path) -> None:
    if path.exists():
        raise FileExistsError(17, "it exists already, and is not overwritten", str(path))


def read_arrays(path: Path) -> dict[str, Array]:
    """Return the arrays of a ``.npy``, ``.npz`` or ``.h5`` file that another program wrote, by name.

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
            data = node[()]
            found[name] = np.asarray(data)
            if found[name].dtype.hasobject:
                raise Unsupported(f"{path}: dataset {name!r} holds text of variable length or references")

    with h5py.File(path, "r") as file:
        file.visititems(take)
    return found


def import_arrays(
    folder: Path,
    arrays: Mapping[str, Array],
    step: int = 0,
    layouts: Mapping[str, Layout] | None = None,
    given: Mapping[str, Any] | None = None,
) -> Saved:
    """Write arrays that others made as a checkpoint that a run can begin from.

    Parameters
    ----------
    layouts
        How ranks are to hold them at first; ``Block(axis=0)`` for the others, ``Replicated()`` for 0-d ones.
    given
        JSON values to keep beside.
    """
    items: dict[str, ArrayItem | ValueItem] = {name: ValueItem(value) for name, value in (given or {}).items()}
    for name, array in arrays.items():
        layout = (layouts or {}).get(name) or (Block() if array.ndim else Replicated())
        items[name] = ArrayItem(np.asarray(array), layout, array.shape)
    with Store(folder) as store:
        return store.save(step, items)


def convert(
    file: CheckpointFile,
    folder: Path,
    types: Mapping[str, np.dtype[Any]] | None = None,
    layouts: Mapping[str, Layout] | None = None,
    *,
    unsafe: bool = False,
) -> Saved:
    """Write a checkpoint anew with other dtypes or layouts for some arrays; all else stays.

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
    old = file.manifest
    described = Described(values=dict(old.values), rngs=dict(old.rngs), groups=dict(old.groups), info=old.info)
    first = 0
    for entry in old.arrays:
        dtype = types.get(entry.name, entry.dtype)
        if not unsafe and not np.can_cast(entry.dtype, dtype, "same_kind"):
            raise Mismatch(f"array {entry.name!r} of {entry.dtype} as {dtype} would not keep its values")
        data = file.read(entry.name)
        local = data if dtype == entry.dtype else data.astype(dtype)
        layout = layouts.get(entry.name, entry.layout)
        if entry.name in layouts:
            layout.at(1).parts(entry.shape, 1, 0)  # refuses axes that are not there
        piece = elements_per_piece(dtype.itemsize)
        described.held.append(Held(entry.name, entry.shape, Replicated(), 1, 0, local, piece, writing=True))
        described.entries.append(replace(entry, dtype=dtype, layout=layout, offset=0, piece=piece, first=first))
        first += described.entries[-1].pieces
    path = own_staging(folder)
    staging = Staging(folder, Writer(old.run, old.generation, old.token, path), path)
    job = SaveJob(folder, Group(), staging, "direct", KeepLast(1 << 30), False, Watchdog(None, 0), Pace())
    saved = job.write(old.step, described, old.ranks)
    staging.close()
    return saved
