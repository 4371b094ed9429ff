"""Opening, verifying and repartitioning a saved checkpoint."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from . import rng, values
from .drivers import Input, open_input
from .errors import Mismatch
from .group import Group
from .h5file import Content, read_content
from .held import Held, local_shape
from .items import ArraySpec, Kind
from .layout import Block, Layout
from .manifest import ArrayEntry, Manifest
from .plan import BLOCK
from .save import SLOWEST
from .transfer import Reader, Trouble, load_pieces
from .watchdog import Watchdog

Layouts = Mapping[str, Layout]


class Loaded:
    """A checkpoint that was opened and verified.

    Parameters
    ----------
    path, content
        The file and what it says of itself.
    group, watchdog, deadline, driver
        Of the store.

    Attributes
    ----------
    path, step, info
        Where it is, the step it was saved at, and the program's own JSON value.
    bytes, seconds
        Size of the file; time that opening and reading took.
    specs
        What it holds, by name: arrays, values, generators.
    read_bytes
        How many bytes of arrays this rank has read from the file.
    """

    def __init__(
        self,
        path: Path,
        content: Content,
        group: Group,
        watchdog: Watchdog,
        deadline: float,
        driver: Literal["mpio", "direct"],
    ) -> None:
        self.path = path
        self.step = content.manifest.step
        self.generation = content.manifest.generation
        self.info: Any = values.decode(content.manifest.info)
        self.bytes = content.size
        self.seconds = 0.0
        self.read_bytes = 0
        self._content = content
        self._group, self._watchdog, self._deadline, self._driver = group, watchdog, deadline, driver
        self._ready: dict[str, tuple[Layout, npt.NDArray[Any]]] = {}
        manifest = content.manifest
        self.specs: dict[str, ArraySpec] = {
            each.name: ArraySpec(each.name, "array", each.shape, each.dtype, each.layout) for each in manifest.arrays
        }
        self.specs.update({name: ArraySpec(name, "value") for name in manifest.values})
        self.specs.update({name: ArraySpec(name, "rng") for name in manifest.rngs})

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all items."""
        return tuple(self.specs)

    @property
    def manifest(self) -> Manifest:
        """What the file says of itself."""
        return self._content.manifest

    def array(self, name: str, layout: Layout | None = None) -> npt.NDArray[Any]:
        """Return this rank's part of an array: writable, verified. Collective.

        What was read ahead is handed over without a copy, once; anything else is read again.

        Parameters
        ----------
        name
            The same on every rank.
        layout
            The saved one when None. It need not be the saved one.

        Raises
        ------
        Mismatch
            When there is no such array.
        Damaged
            When the data is not what was written.
        """
        spec = self._spec(name, "array")
        assert spec.shape is not None and spec.layout is not None
        ready = self._ready.get(name)
        wanted = layout if layout is not None else ready[0] if ready is not None else spec.layout.at(self._group.size)
        if ready is not None and _same(ready[0], wanted, spec.shape, self._group.size):
            del self._ready[name]
            return ready[1]
        self.read({name: wanted})
        return self._ready.pop(name)[1]

    def value(self, name: str) -> Any:
        """Return a value. Not collective."""
        self._spec(name, "value")
        return values.decode(self.manifest.values[name])

    def rng(self, name: str) -> np.random.Generator:
        """Return a generator that goes on where the saved one stood. Not collective."""
        self._spec(name, "rng")
        return rng.generator_from(self.manifest.rngs[name])

    def _spec(self, name: str, kind: Kind) -> ArraySpec:
        spec = self.specs.get(name)
        if spec is None:
            held = ", ".join(repr(each) for each in self.specs) or "nothing"
            raise Mismatch(f"{self.path} holds no {kind} {name!r}; it holds {held}")
        if spec.kind != kind:
            raise Mismatch(f"{self.path}: {name!r} was saved as {spec.kind}, and the program asks for a {kind}")
        return spec

    def read(self, layouts: Layouts) -> None:
        """Read and verify arrays in the given layouts, for `array` to hand over. Collective."""
        group = self._group
        index = {each.name: place for place, each in enumerate(self.manifest.arrays)}
        which = sorted(index[name] for name in layouts)
        entries = [self.manifest.arrays[place] for place in which]
        with self._watchdog.watch(f"loading {self.path}", self._deadline):
            trouble = Trouble()
            held: list[Held] = []
            memory: list[npt.NDArray[Any]] = []
            with trouble:
                for entry in entries:
                    layout = layouts[entry.name]
                    local = _memory(entry, layout, group.size, group.rank)
                    memory.append(local)
                    held.append(
                        Held(entry.name, entry.shape, layout, group.size, group.rank, local, entry.piece, writing=False)
                    )
            group.agree(trouble.error, f"loading {self.path}")
            self._watchdog.extend(sum(each.nbytes for each in memory) / SLOWEST)
            source: Input | None = None
            with trouble:
                source = open_input(self._driver, self.path, self.manifest, group)
            try:
                reader = Reader(source, self.path, self.manifest, self._content.digests, trouble)
                load_pieces(group, which, held, reader, trouble)
                group.agree(trouble.error, f"loading {self.path}")
            finally:
                if source is not None:
                    self.read_bytes += source.read_bytes
                    with contextlib.suppress(Exception):
                        source.close()
        for entry, local in zip(entries, memory, strict=True):
            self._ready[entry.name] = layouts[entry.name], local


def open_content(group: Group, path: Path) -> Content:
    """Read and verify what a file says of itself, on rank 0 for all. Collective."""
    error: BaseException | None = None
    text, digests, size = b"", b"", 0
    if group.rank == 0:
        try:
            found = read_content(path)
            text, digests, size = found.text, found.digests.tobytes(), found.size
        except Exception as problem:
            error = problem
    group.agree_on_root(error, f"opening {path}")
    text = group.bcast(text)
    digests = group.bcast(digests)
    size = int.from_bytes(group.bcast(size.to_bytes(8, "little")), "little")
    return Content(Manifest.decode(text), text, np.frombuffer(digests, np.uint64), size)


def load(
    path: Path,
    arrays: Sequence[str] | None,
    layouts: Layouts | None,
    group: Group,
    watchdog: Watchdog,
    deadline: float,
    driver: Literal["mpio", "direct"],
) -> Loaded:
    """Open a checkpoint and read its arrays, or those that are named. Collective."""
    began = time.perf_counter()
    with watchdog.watch(f"loading {path}", deadline):
        content = open_content(group, path)
        found = Loaded(path, content, group, watchdog, deadline, driver)
        chosen = {each.name: each.layout.at(group.size) for each in content.manifest.arrays}
        asked = dict(layouts or {})
        for name in [*asked, *(arrays if arrays is not None else ())]:
            if name not in chosen:
                held = ", ".join(map(repr, chosen)) or "none"
                raise Mismatch(f"{path} holds no array {name!r}; it holds {held}")
        if arrays is not None:
            chosen = {name: chosen[name] for name in arrays}
        found.read({name: asked.get(name, layout) for name, layout in chosen.items()})
    found.seconds = time.perf_counter() - began
    return found


def _memory(entry: ArrayEntry, layout: Layout, ranks: int, rank: int) -> npt.NDArray[Any]:
    """Return memory for a rank's part, placed like its bytes in the file relative to the file's blocks.

    That lets whole pieces be read into place without a copy where the file is read unbuffered.
    """
    shape = local_shape(layout, entry.shape, ranks, rank)
    size = int(np.prod(shape, dtype=np.int64)) * entry.dtype.itemsize
    if size < BLOCK:
        return np.empty(shape, entry.dtype)
    raw = np.empty(size + 2 * BLOCK, np.uint8)
    parts = layout.parts(entry.shape, ranks, rank)
    first = entry.offset + min(part.flat_range(entry.shape)[0] for part in parts if part.size) * entry.dtype.itemsize
    skip = (first - raw.ctypes.data) % BLOCK
    return raw[skip : skip + size].view(entry.dtype).reshape(shape)


def _same(one: Layout, other: Layout, shape: tuple[int, ...], ranks: int) -> bool:
    if one == other:
        return True
    return isinstance(one, Block) and isinstance(other, Block) and one.boxes(shape, ranks) == other.boxes(shape, ranks)


def describe_difference(name: str, saved: ArraySpec, shape: tuple[int, ...], dtype: np.dtype[Any]) -> str | None:
    """Return how a program's declaration of an array differs from what was saved, None when it does not."""
    if saved.kind != "array":
        return f"{name!r}: saved as {saved.kind}, the program declares an array"
    if saved.shape == tuple(shape) and saved.dtype == dtype:
        return None
    return f"array {name!r}: saved as {saved.dtype} {saved.shape}, the program declares {dtype} {tuple(shape)}"
