"""The HDF5 side of a checkpoint, done by one process: laying a file out, and reading what it holds.

Data is not moved here. A file is laid out with all datasets allocated and none filled; ranks then write at the
datasets' places.
"""

from __future__ import annotations

import contextlib
import errno
import io
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import CheckpointError, Damaged
from ..state import dtypes
from ..transfer.plan import BLOCK
from .chunks import Table, check_table, empty_table, raw_bytes, rows_of, stored_ranges
from .h5chunks import Image, check_chunks, first_elements, set_filters
from .manifest import ArrayEntry, Manifest, check_version, seal, seal_chunks
from .opening import Stream, lent

_ESCAPED = {"%": "%25", "/": "%2F", "\0": "%00"}


@dataclass(frozen=True)
class Places:
    """Offsets in the file of what is written at last."""

    digests: int
    seal: int
    size: int


def dataset_name(name: str) -> str:
    """Return a name that HDF5 takes for one link, for any text."""
    text = "".join(f"%u{ord(each):04X}" if "\ud800" <= each <= "\udfff" else _ESCAPED.get(each, each) for each in name)
    return {"": "%", ".": "%2E", "..": "%2E%2E"}.get(text, text)


def lay_out(path: Path, manifest: Manifest, chunks: Table) -> tuple[Manifest, Places]:
    """Create the file with everything allocated and the manifest in place; return where things are.

    HDF5 works on a file in memory, of which what it wrote is then copied: HDF5 1.10 crashes when a disk gets full, and
    a parallel file system takes few large writes better than many small ones.

    ``offset`` of the arrays is set in the manifest that is returned.

    Parameters
    ----------
    path
        A file that is there is written over; of its content, only what arrays will be written over stays.
    chunks
        Of the compressed arrays; the offsets are filled in here.

    Raises
    ------
    OSError
        When the file system says no.
    """
    image = os.memfd_create("dmr.ckpt", os.MFD_CLOEXEC)
    try:
        manifest, places = _lay_out_in_memory(image, manifest, chunks)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            used = os.fstat(handle).st_size > 0
            os.ftruncate(handle, places.size)
            written = list(_written(image, places.size))
            for begin, end in written:
                copy_bytes(image, handle, begin, end)
            if used:
                for begin, end in _gaps([*written, *stored_ranges(manifest, chunks)], places.size):
                    write_all(handle, bytes(end - begin), begin)
        except OSError as error:
            error.filename = str(path)
            raise
        finally:
            os.close(handle)
    finally:
        os.close(image)
    return manifest, places


def _gaps(taken: Sequence[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    """Return the ranges of a file that are in none of the given ones; between datasets these are small."""
    reached = 0
    for begin, end in [*sorted(taken), (size, size)]:
        if begin > reached:
            yield reached, begin
        reached = max(reached, end)


def _lay_out_in_memory(image: int, manifest: Manifest, chunks: Table) -> tuple[Manifest, Places]:
    import h5py

    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_libver_bounds(h5py.h5f.LIBVER_V110, h5py.h5f.LIBVER_V110)
    access.set_alignment(BLOCK, BLOCK)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    creation = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    creation.set_obj_track_times(False)
    stream = Image(image)
    access.set_fileobj_driver(h5py.h5fd.fileobj_driver, stream)
    # HDF5 wants a name, and for this driver one that says where the Python object is.
    name = repr(stream).encode("ascii", "replace")
    file = h5py.h5f.create(name, h5py.h5f.ACC_TRUNC, creation, access)
    try:
        root = h5py.h5g.open(file, b"/")
        untimed = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
        untimed.set_obj_track_times(False)
        group = h5py.h5g.create(root, b"arrays", gcpl=untimed)
        entries = []
        for each in manifest.arrays:
            if each.filter is not None:
                _allocate_chunks(group, each, rows_of(chunks, each), stream)
                entries.append(each)
                continue
            dtype, more = dtypes.storage(each.dtype)
            place = _allocate(group, each.dataset, each.shape + more, dtype)
            entries.append(replace(each, offset=place))
        manifest = replace(manifest, arrays=tuple(entries), places=seal_chunks(chunks))
        text = manifest.encode()
        digests = _allocate(root, "digests", (manifest.pieces,), np.dtype("<u8"))
        table = _allocate(root, "chunks", chunks.shape, np.dtype("<u8")) if len(chunks) else 0
        sealed = _allocate(root, "seal", (16,), np.dtype("u1"))
        place = _allocate(root, "manifest", (), np.dtype(f"S{len(text)}"))
    finally:
        file.close()
        stream.close()
    write_all(image, text, place)
    write_all(image, chunks.astype("<u8").tobytes(), table)
    return manifest, Places(digests, sealed, os.fstat(image).st_size)


def _written(image: int, size: int) -> Iterator[tuple[int, int]]:
    """Return the ranges of a sparse file that were written."""
    end = 0
    while end < size:
        try:
            begin = os.lseek(image, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        end = os.lseek(image, begin, os.SEEK_HOLE)
        yield begin, min(end, size)


def copy_bytes(source: int, target: int, begin: int, end: int) -> None:
    """Copy a range of one open file to the same place of another."""
    while begin < end:
        data = os.pread(source, min(end - begin, 8 << 20), begin)
        if not data:
            raise OSError(errno.EIO, "the file got shorter while it was copied")
        write_all(target, data, begin)
        begin += len(data)


def write_all(file: int, data: bytes | memoryview, offset: int) -> None:
    """Write bytes at an offset of an open file."""
    left = memoryview(data)
    while left:
        count = os.pwrite(file, left, offset)
        left, offset = left[count:], offset + count


def _allocate(parent: Any, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    import h5py

    creation = _creation()
    creation.set_layout(h5py.h5d.CONTIGUOUS)
    creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    offset = _make(parent, name, shape, dtype, creation).get_offset()
    if math.prod(shape) == 0:
        return 0
    if offset is None:
        raise CheckpointError(f"HDF5 gave no place to the dataset {name!r}")
    return int(offset)


def _allocate_chunks(parent: Any, entry: ArrayEntry, rows: Table, image: Image) -> None:
    dtype, more = dtypes.storage(entry.dtype)
    creation = _creation()
    set_filters(creation, entry, more)
    dataset = _make(parent, entry.dataset, entry.shape + more, dtype, creation)
    for row, at in zip(rows, first_elements(entry), strict=True):
        row[0] = image.place(dataset, at + (0,) * len(more), int(row[1]), int(row[2]))


def _creation() -> Any:
    import h5py

    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    creation.set_obj_track_times(False)
    return creation


def _make(parent: Any, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], creation: Any) -> Any:
    import h5py

    link = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    link.set_char_encoding(h5py.h5t.CSET_UTF8)
    space = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
    kind = h5py.h5t.py_create(dtype, logical=True)
    made = h5py.h5d.create(parent, None, kind, space, creation)
    h5py.h5o.link(made, parent, name.encode(), lcpl=link)
    return made


@dataclass(frozen=True)
class Content:
    """What a file holds: manifest, its text, the digests of all pieces, the file's size in bytes, and the places of
    the compressed pieces."""

    manifest: Manifest
    text: bytes
    digests: npt.NDArray[np.uint64]
    size: int
    chunks: Table

    @property
    def raw_bytes(self) -> int:
        """Bytes that the file would have if nothing in it were compressed."""
        return raw_bytes(self.manifest, self.chunks, self.size)


def read_content(path: Path, file: int | None = None) -> Content:
    """Read and verify all but the data.

    Parameters
    ----------
    file
        A descriptor by which it is open; opened here when None.

    Raises
    ------
    Damaged
        When the file is cut short, altered, or no checkpoint.
    UnknownVersion
        When it is of a newer format.
    OSError
        When the file system says no.
    """
    with lent(path, file) as opened:
        size = os.fstat(opened).st_size
        if os.pread(opened, 8, 0) != b"\x89HDF\r\n\x1a\n":
            raise Damaged(f"{path}: no HDF5 file" if size else f"{path}: empty file")
        text, digests, chunks, sealed = _read_parts(path, opened, size)
    if seal(text, digests) != sealed:
        raise Damaged(f"{path}: the seal of manifest and digests is broken")
    try:
        manifest = Manifest.decode(text)
    except CheckpointError as error:
        raise type(error)(f"{path}: {error}") from None
    if manifest.places != seal_chunks(chunks):
        raise Damaged(f"{path}: the table of compressed pieces does not have the digest that was written")
    if len(digests) != manifest.pieces:
        raise Damaged(f"{path}: {len(digests)} digests for {manifest.pieces} pieces")
    for each in manifest.arrays:
        if each.filter is None and (each.offset < 0 or each.offset + each.bytes > size):
            raise Damaged(f"{path}: array {each.name!r} reaches beyond the end of the file")
    check_table(path, manifest, chunks, size)
    return Content(manifest, text, digests, size, chunks)


def _read_parts(path: Path, opened: int, size: int) -> tuple[bytes, npt.NDArray[np.uint64], Table, bytes]:
    """Return manifest, digests, places of compressed pieces, and seal."""
    stream = Stream(opened)
    try:
        with _hdf5(stream) as file:
            text = bytes(_read(file, "manifest", size).tobytes())
            # What else a later version has, and where, is unknown.
            check_version(path, text)
            digests = np.array(_read(file, "digests", size), np.uint64)
            chunks = np.array(_read(file, "chunks", size), np.uint64) if "chunks" in file else empty_table()
            return text, digests, chunks, bytes(_read(file, "seal", size).tobytes())
    except (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError) as error:
        said = _one_line(error)
    # Raised here, without HDF5's error as its context, for what that holds (see `Stream`).
    stream.check(path)
    raise Damaged(f"{path}: HDF5 can't read it ({said})")


def _read(file: Any, name: str, size: int) -> npt.NDArray[Any]:
    """Return a dataset; nothing is made room for that can't be in a file of ``size`` bytes."""
    data = file[name]
    if data.size * data.dtype.itemsize > size:
        raise ValueError(f"{name} has more bytes than the file")
    return np.asarray(data[()])


@contextlib.contextmanager
def _hdf5(stream: Stream) -> Iterator[Any]:
    """Open a file through a stream: HDF5 then takes no lock, nor minds how this process has the file open elsewhere."""
    import h5py

    with io.BufferedReader(stream) as buffered, h5py.File(buffered, "r") as file:
        yield file


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def check_structure(path: Path, content: Content, opened: int) -> list[str]:
    """Return what of the HDF5 structure does not agree with the manifest, as sentences.

    Parameters
    ----------
    opened
        A descriptor by which the file is open.

    Raises
    ------
    OSError
        When the file system says no.
    """

    found = []
    stream = Stream(opened)
    try:
        with _hdf5(stream) as file:
            for each in content.manifest.arrays:
                try:
                    data = file["arrays"][each.dataset]
                    dtype, more = dtypes.storage(each.dtype)
                    place = None if each.filter is not None else data.id.get_offset()
                    if data.shape != each.shape + more or data.dtype.itemsize != dtype.itemsize:
                        found.append(f"dataset of array {each.name!r} has shape {data.shape} and dtype {data.dtype}")
                    elif each.filter is not None:
                        if problem := check_chunks(data.id, each, more, content.chunks):
                            found.append(f"dataset of array {each.name!r} {problem}")
                    elif each.bytes and place != each.offset:
                        found.append(f"dataset of array {each.name!r} is at {place}, not at {each.offset}")
                except (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError) as error:
                    found.append(f"dataset of array {each.name!r} can't be read ({_one_line(error)})")
    except OSError as error:
        found.append(f"HDF5 can't read it ({_one_line(error)})")
    stream.check(path)
    return found
