"""Lossless compression of one piece: a shuffle of its bytes, then zlib or zstd, as HDF5's filters do it."""

from __future__ import annotations

import re
import threading
import zlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..errors import Unsupported

Bytes = npt.NDArray[np.uint8]
Name = Literal["zlib", "zstd"]

NAMES: tuple[Name, ...] = ("zlib", "zstd")
HIGHEST: dict[Name, int] = {"zlib": 9, "zstd": 22}
FILTERS: dict[Name, int] = {"zlib": 1, "zstd": 32015}
"""Numbers of HDF5's filters, as registered with The HDF Group."""
NONE = "none"
_LOOPED = 64
"""Up to so many bytes an element, one copy for each of them is the faster way to shuffle."""
_threads = threading.local()


@dataclass(frozen=True)
class Codec:
    """A way to compress.

    Parameters
    ----------
    name
        ``zlib``, which is HDF5's deflate and is there everywhere, or ``zstd``, which is some fifty times as fast, and
        needs the package zstandard.
    level
        From 1, the fastest, to `HIGHEST`. On floating-point numbers higher ones gain little.
    """

    name: Name
    level: int = 1

    def __str__(self) -> str:
        return f"{self.name}:{self.level}"

    @property
    def slowest(self) -> int:
        """Bytes a second below which compression counts as hanging, on a loaded machine."""
        if self.name == "zlib":
            return 2 << 20 if self.level <= 6 else 1 << 19
        return 16 << 20 if self.level <= 3 else 2 << 20 if self.level <= 12 else 1 << 17

    def compress(self, data: Bytes) -> bytes:
        """Return bytes in the format of HDF5's filter. Lets other threads run meanwhile."""
        if self.name == "zlib":
            return zlib.compress(data.data, self.level)
        made: dict[int, Any] = _threads.__dict__.setdefault("compressors", {})
        if self.level not in made:
            # With the size in the frame, which HDF5's filter wants, and without a checksum, since there are digests.
            made[self.level] = _zstandard().ZstdCompressor(level=self.level, write_content_size=True)
        found: bytes = made[self.level].compress(data)
        return found


def parse(text: str | None) -> Codec | None:
    """Return what ``zlib``, ``zlib:6``, ``zstd`` or ``zstd:3`` stands for; None for None and ``none``.

    Raises
    ------
    Unsupported
        When it is none of these, or its package is not installed.
    """
    if text is None or text == NONE:
        return None
    match = re.fullmatch(r"(zlib|zstd)(?::(\d{1,2}))?", text)
    name: Name | None = next((each for each in NAMES if match is not None and each == match[1]), None)
    level = 1 if match is None or match[2] is None else int(match[2])
    if name is None or not 1 <= level <= HIGHEST[name]:
        raise Unsupported(
            f"there is no compression {text!r}: use 'none', 'zlib' or 'zstd', with a level after a colon where 1 is "
            f"not the right one: 'zlib:6' (up to {HIGHEST['zlib']}), 'zstd:3' (up to {HIGHEST['zstd']})"
        )
    if name == "zstd":
        try:
            _zstandard()
        except Unsupported as error:
            raise Unsupported(f"{error}; or use zlib, which is slower and needs nothing") from None
    return Codec(name, level)


def decompress(name: Name, data: Bytes, size: int) -> Bytes:
    """Return the ``size`` bytes that were compressed. Allocates no more than that, whatever the data says.

    Raises
    ------
    ValueError
        When the data is not what compression made of so many bytes.
    Unsupported
        When the package of the codec is missing.
    """
    if name == "zlib":
        inflater = zlib.decompressobj()
        try:
            found = inflater.decompress(data.data, size + 1)
        except zlib.error as error:
            raise ValueError(str(error)) from None
        if len(found) != size or not inflater.eof or inflater.unused_data:
            raise ValueError(f"it is no stream of zlib with {size} bytes")
        return np.frombuffer(found, np.uint8)
    zstandard = _zstandard()
    try:
        if zstandard.get_frame_parameters(data).content_size != size:
            raise ValueError(f"it is no frame of zstd with {size} bytes")
        found = zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None
    if len(found) != size:
        raise ValueError(f"it is no frame of zstd with {size} bytes")
    return np.frombuffer(found, np.uint8)


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise Unsupported(
            f"the compression zstd needs the package zstandard, which can't be imported ({error}): "
            "pip install zstandard"
        ) from None
    return zstandard


def shuffle(data: Bytes, unit: int) -> Bytes:
    """Return the first bytes of all elements of ``unit`` bytes, then the second ones, and so on."""
    if unit == 1:
        return data
    elements = data.reshape(-1, unit)
    if unit > _LOOPED:
        return np.ascontiguousarray(elements.T).reshape(-1)
    found = np.empty((unit, len(elements)), np.uint8)
    for place in range(unit):
        found[place] = elements[:, place]
    return found.reshape(-1)


def unshuffle(data: Bytes, unit: int, into: Bytes) -> None:
    """Undo `shuffle` for as many of the first elements as ``into`` takes."""
    if unit == 1:
        into[:] = data[: len(into)]
        return
    planes, elements = data.reshape(unit, -1), into.reshape(-1, unit)
    count = len(elements)
    if unit > _LOOPED:
        elements[:] = planes[:, :count].T
        return
    for place in range(unit):
        elements[:, place] = planes[place, :count]
