"""Opening, verifying and repartitioning a saved checkpoint."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .comm.cores import threads_of
from .comm.group import Group
from .comm.trouble import Trouble
from .comm.watchdog import Watchdog
from .errors import Mismatch
from .layouts.layout import Block, Layout
from .save import SLOWEST
from .state import regroup, rng, values
from .state.groups import Rule
from .state.items import ArraySpec, Kind
from .state.regroup import ParticlesPart, RaggedPart
from .state.specs import specs_of
from .storage.chunks import COLUMNS
from .storage.drivers import Input, open_input
from .storage.h5file import Content, read_content
from .storage.manifest import Manifest
from .transfer.held import Held, local_shape
from .transfer.scatter import Reader, load_pieces

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
    bytes, raw_bytes, seconds
        Size of the file; that without compression; time that opening and reading took.
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
        self.bytes, self.raw_bytes = content.size, content.raw_bytes
        self.seconds = 0.0
        self.read_bytes = 0
        self._content = content
        self._group, self._watchdog, self._deadline, self._driver = group, watchdog, deadline, driver
        self._ready: dict[str, tuple[Layout, npt.NDArray[Any]]] = {}
        self._entries = {each.name: each for each in content.manifest.arrays}
        self.specs = specs_of(content.manifest)

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
        if name not in self._entries:
            self._spec(name, "array")
        entry = self._entries[name]
        ready = self._ready.get(name)
        wanted = layout if layout is not None else ready[0] if ready is not None else entry.layout.at(self._group.size)
        if ready is not None and _same(ready[0], wanted, entry.shape, self._group.size):
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

    def ragged(self, name: str, by: Literal["rows", "values"] | None = None) -> RaggedPart:
        """Return this rank's rows of uneven length, in the order in which they were saved. Collective.

        Parameters
        ----------
        by
            ``rows``: ranks get about the same number of rows. ``values``: of values. None: the rows that each rank had
            at the same number of ranks, else ``rows``.
        """
        self._spec(name, "ragged")
        return regroup.ragged(self, name, by)

    def particles(
        self,
        name: str,
        by: Literal["stored", "id", "weight"] | regroup.Place = "stored",
        weight: str | None = None,
    ) -> ParticlesPart:
        """Return this rank's particles. Collective.

        The global count and a checksum of all ids are compared with what was saved.

        Parameters
        ----------
        by
            ``stored``: those that each rank had at the same number of ranks, else blocks of the order in which they
            were saved. ``id``: blocks of the sorted ids. ``weight``: runs of the stored order of about the same
            weight. Or a function of ids and columns that returns the rank of each particle. With ``id`` and a
            function, a rank's particles are sorted by id.
        weight
            Name of the column of weights, not negative.
        """
        self._spec(name, "particles")
        return regroup.particles(self, name, by, weight)

    def per_rank(self, name: str, rule: Rule | None = None) -> npt.NDArray[Any]:
        """Return this rank's own array at the same number of ranks, else what the rule makes of all. Collective.

        Parameters
        ----------
        rule
            See `PerRankItem`; the saved one when None. A function is not saved and has to be given.
        """
        self._spec(name, "per-rank")
        return regroup.per_rank(self, name, rule)

    def stream(self, name: str) -> np.random.Generator:
        """Return this rank's own generator; at another number of ranks a fresh one, see `StreamItem`. Collective."""
        self._spec(name, "stream")
        return regroup.stream(self, name)

    @property
    def group(self) -> Group:
        """The ranks that have it open."""
        return self._group

    def _spec(self, name: str, kind: Kind) -> ArraySpec:
        spec = self.specs.get(name)
        if spec is None:
            held = ", ".join(repr(each) for each in self.specs) or "nothing"
            raise Mismatch(f"{self.path} holds no {kind} {name!r}; it holds {held}")
        if spec.kind != kind:
            raise Mismatch(f"{self.path}: {name!r} was saved as {spec.kind}, and the program asks for it as {kind}")
        return spec

    def read_dependent(self) -> None:
        """Read ahead what is placed by the content of what has been read. Collective."""
        wanted: dict[str, Layout] = {}
        for name, entry in self.manifest.groups.items():
            if entry["kind"] == "ragged" and f"{name}:offsets" in self._ready:
                wanted[f"{name}:values"] = regroup.ragged_values(self, name, self._ready[f"{name}:offsets"][1])
        if wanted:
            self.read(wanted)

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
                    local = np.empty(local_shape(layout, entry.shape, group.size, group.rank), entry.dtype)
                    memory.append(local)
                    name, shape, piece, row = entry.name, entry.shape, entry.piece, entry.row
                    held.append(Held(name, shape, layout, group.size, group.rank, local, piece, writing=False, row=row))
            seconds = sum(each.nbytes for each in memory) / SLOWEST
            self._watchdog.extend(group.agree(trouble.error, f"loading {self.path}", seconds))
            threads = threads_of(group) if any(entry.filter is not None for entry in entries) else 1
            source: Input | None = None
            with trouble:
                source = open_input(self._driver, self.path, self.manifest, group)
            reader = Reader(source, self.path, self._content, trouble, threads)
            try:
                load_pieces(group, which, held, reader, trouble)
                group.agree(trouble.error, f"loading {self.path}")
            finally:
                reader.close()
                if source is not None:
                    self.read_bytes += source.read_bytes
                    with contextlib.suppress(Exception):
                        source.close()
        for entry, local in zip(entries, memory, strict=True):
            self._ready[entry.name] = layouts[entry.name], local


def open_content(group: Group, path: Path) -> Content:
    """Read and verify what a file says of itself, on rank 0 for all. Collective."""
    error: BaseException | None = None
    text, digests, chunks, size = b"", b"", b"", 0
    if group.rank == 0:
        try:
            found = read_content(path)
            text, digests, chunks, size = found.text, found.digests.tobytes(), found.chunks.tobytes(), found.size
        except Exception as problem:
            error = problem
    group.agree_on_root(error, f"opening {path}")
    text = group.bcast(text)
    digests = group.bcast(digests)
    chunks = group.bcast(chunks)
    size = int.from_bytes(group.bcast(size.to_bytes(8, "little")), "little")
    table = np.frombuffer(chunks, np.uint64).reshape(-1, COLUMNS)
    trouble = Trouble()
    manifest: Manifest | None = None
    with trouble:
        manifest = Manifest.decode(text)
    group.agree(trouble.error, f"opening {path}")
    assert manifest is not None
    return Content(manifest, text, np.frombuffer(digests, np.uint64), size, table)


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
        chosen = regroup.read_ahead(content.manifest, group.size)
        asked = dict(layouts or {})
        known = {each.name for each in content.manifest.arrays}
        for name in [*asked, *(arrays if arrays is not None else ())]:
            if name not in known:
                held = ", ".join(map(repr, sorted(known))) or "none"
                raise Mismatch(f"{path} holds no array {name!r}; it holds {held}")
        if arrays is not None:
            chosen = {name: chosen[name] for name in arrays if name in chosen}
        found.read({name: asked.get(name, layout) for name, layout in chosen.items()})
        found.read_dependent()
    found.seconds = time.perf_counter() - began
    return found


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
