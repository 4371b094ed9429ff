"""The manifest: what a checkpoint holds and where, as JSON in the file, under a seal."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from ..errors import CheckpointError, Damaged, UnknownVersion
from ..layouts.layout import Layout
from ..layouts.registry import layout_from_json
from ..state import dtypes
from ..transfer.pieces import Pieces
from .filters import Filter

FORMAT = "dmr-checkpoint"
GROUPS = ("ragged", "particles", "per-rank", "stream")
"""Kinds of state that is kept as several arrays."""
VERSION = 2
PLAIN = 1
"""Version of files in which nothing is compressed."""


@dataclass(frozen=True)
class ArrayEntry:
    """One array of the file.

    ``dataset`` is its name in ``/arrays``, ``offset`` where its bytes begin in the file, ``piece`` the number of
    elements of a piece, ``first`` the index of its first piece's digest. With a ``filter`` it is compressed, and
    ``offset`` is 0: the pieces have places of their own.
    """

    name: str
    dataset: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    layout: Layout
    offset: int
    piece: int
    first: int
    filter: Filter | None = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def row(self) -> int:
        """Elements after which a piece ends in any case; 0 for all."""
        return 0 if self.filter is None else self.filter.row(self.shape)

    @cached_property
    def cut(self) -> Pieces:
        """Its pieces."""
        return Pieces(self.size if self.dtype.itemsize else 0, self.piece, self.row)

    @property
    def pieces(self) -> int:
        return len(self.cut)

    @property
    def whole(self) -> int:
        """Bytes of a piece that is not cut short."""
        return self.piece * self.dtype.itemsize

    def to_json(self) -> dict[str, Any]:
        found = {
            "name": self.name,
            "dataset": self.dataset,
            "shape": list(self.shape),
            "dtype": dtypes.to_json(self.dtype, self.name),
            "layout": self.layout.to_json(),
            "offset": self.offset,
            "bytes": self.bytes,
            "piece": self.piece,
            "first": self.first,
            "pieces": self.pieces,
        }
        return found if self.filter is None else {**found, "filter": self.filter.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ArrayEntry:
        entry = cls(
            str(data["name"]),
            str(data["dataset"]),
            tuple(int(each) for each in data["shape"]),
            dtypes.from_json(data["dtype"]),
            layout_from_json(data["layout"]),
            int(data["offset"]),
            int(data["piece"]),
            int(data["first"]),
            Filter.from_json(data["filter"]) if "filter" in data else None,
        )
        packed = entry.filter
        if packed is not None and not (packed.fits(entry.shape, entry.dtype) and packed.elements == entry.piece):
            raise Damaged(f"array {entry.name!r} can't be compressed as it is said to be")
        if entry.piece < 1 or (entry.bytes, entry.pieces) != (data["bytes"], data["pieces"]):
            raise Damaged(f"array {entry.name!r} has sizes that don't fit each other")
        return entry


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint holds.

    ``values`` and ``info`` are in the JSON form of `values.encode`, ``rngs`` in that of `rng.state_of`; ``groups`` says
    which arrays are kept for items that are more than an array; ``places`` is what `seal_chunks` makes of the places of
    the compressed pieces.
    """

    step: int
    generation: int
    run: str
    token: str
    ranks: int
    info: Any
    arrays: tuple[ArrayEntry, ...]
    values: Mapping[str, Any]
    rngs: Mapping[str, Any]
    groups: Mapping[str, Any] = field(default_factory=dict)
    places: str = ""

    @property
    def pieces(self) -> int:
        """Number of pieces of all arrays."""
        return sum(each.pieces for each in self.arrays)

    @property
    def chunks(self) -> int:
        """Number of pieces of the arrays that are compressed."""
        return sum(each.pieces for each in self.arrays if each.filter is not None)

    @property
    def version(self) -> int:
        """The first version of the format that has all that is in it."""
        return PLAIN if all(each.filter is None for each in self.arrays) else VERSION

    def encode(self) -> bytes:
        """Return the manifest as ASCII JSON."""
        found = {
            "format": FORMAT,
            "version": self.version,
            "step": self.step,
            "generation": self.generation,
            "run": self.run,
            "token": self.token,
            "ranks": self.ranks,
            "info": self.info,
            "arrays": [each.to_json() for each in self.arrays],
            "values": dict(self.values),
            "rngs": dict(self.rngs),
            "groups": dict(self.groups),
        }
        if self.places:
            found["chunks"] = self.places
        return json.dumps(found, allow_nan=False).encode("ascii")

    @classmethod
    def decode(cls, text: bytes) -> Manifest:
        """Read a manifest.

        Raises
        ------
        Unsupported
            When it is compressed in a way that is unknown here.
        Damaged
            When it is none.
        """
        try:
            data = json.loads(text)
            if data["format"] != FORMAT:
                raise ValueError(f"format {data['format']!r}")
            found = cls(
                int(data["step"]),
                int(data["generation"]),
                str(data["run"]),
                str(data["token"]),
                int(data["ranks"]),
                data["info"],
                tuple(ArrayEntry.from_json(each) for each in data["arrays"]),
                dict(data["values"]),
                dict(data["rngs"]),
                dict(data["groups"]),
                str(data.get("chunks", "")),
            )
        except CheckpointError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise Damaged(f"the manifest is malformed ({error!r})") from None
        first = chunk = 0
        for each in found.arrays:
            if each.first != first or (each.filter is not None and each.filter.first != chunk):
                raise Damaged(f"the digests of array {each.name!r} are out of place")
            first += each.pieces
            chunk += 0 if each.filter is None else each.pieces
        for name, entry in found.groups.items():
            columns = entry.get("columns", []) if isinstance(entry, dict) else None
            if not isinstance(columns, list) or entry.get("kind") not in GROUPS or not all(map(_is_text, columns)):
                raise Damaged(f"the manifest is malformed (what makes up {name!r})")
        return found


def _is_text(each: Any) -> bool:
    return isinstance(each, str)


def digest(data: Any) -> int:
    """Return the 64-bit XXH3 digest of bytes."""
    return xxhash.xxh3_64_intdigest(data)


def check_version(path: str | os.PathLike[str], text: bytes) -> None:
    """Refuse a manifest of a later version; of anything else, the seal tells whether it is one.

    Raises
    ------
    UnknownVersion
    """
    try:
        data = json.loads(text)
        version = data["version"] if data["format"] == FORMAT else 0
    except (KeyError, TypeError, ValueError, RecursionError):
        return
    if isinstance(version, int) and version > VERSION:
        raise UnknownVersion(
            f"{path}: the checkpoint is of format version {version}, and this version of dmr reads up to {VERSION}: "
            "update dmr"
        )


def seal_chunks(chunks: npt.NDArray[np.uint64]) -> str:
    """Return what guards the places of the compressed pieces: a digest in hexadecimal, empty without any."""
    return xxhash.xxh3_128_hexdigest(chunks.astype("<u8").tobytes()) if len(chunks) else ""


def seal(manifest: bytes, digests: npt.NDArray[np.uint64]) -> bytes:
    """Return the 16 bytes that seal a manifest and the digests of all pieces, in every version of the format.

    So an older reader finds the seal of a later file whole, and knows it by its version rather than as damaged.
    """
    hasher = xxhash.xxh3_128()
    hasher.update(len(manifest).to_bytes(8, "little"))
    hasher.update(manifest)
    hasher.update(digests.astype("<u8").tobytes())
    return hasher.digest()
