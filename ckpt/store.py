"""A folder of checkpoints: save, find the newest good one, load."""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from . import dtypes, rng, values
from .errors import CheckpointError, Fenced, Mismatch
from .items import ArrayItem, ArraySpec, CheckpointInfo, RngItem, Saved, State, ValueItem
from .layout import Layout, layout_from_json

Driver = Literal["auto", "mpio", "direct"]
NAME = re.compile(r"step-(\d{12})-g(\d{4,})\.h5")


@dataclass(frozen=True)
class Writer:
    """Which generation of which run writes, and how it is kept from committing when it is late.

    Parameters
    ----------
    run, generation, token
        Who writes; kept in the file.
    staging
        Folder in the same file system in which files are written before they get their name. A later
        generation renames it away.
    check
        Called by rank 0 just before the rename; raises when a later generation has taken over.
    """

    run: str
    generation: int
    token: str
    staging: Path
    check: Callable[[], None] | None = None


class Loaded:
    """A checkpoint that was opened and verified. Every method is collective, with the same arguments."""

    def __init__(self, path: Path, manifest: Mapping[str, Any], comm: Any) -> None:
        self.path = path
        self.step: int = manifest["step"]
        self.info: Any = values.decode(manifest["info"])
        self.bytes: int = path.stat().st_size
        self.seconds = 0.0
        self._manifest = manifest
        self._rank, self._size = (0, 1) if comm is None else (comm.rank, comm.size)
        self.specs: dict[str, ArraySpec] = {}
        for name, each in manifest["arrays"].items():
            self.specs[name] = ArraySpec(
                name, "array", tuple(each["shape"]), dtypes.from_json(each["dtype"]), layout_from_json(each["layout"])
            )
        for name in manifest["values"]:
            self.specs[name] = ArraySpec(name, "value")
        for name in manifest["rngs"]:
            self.specs[name] = ArraySpec(name, "rng")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.specs)

    def array(self, name: str, layout: Layout | None = None) -> np.ndarray[Any, Any]:
        """Return this rank's part, writable, in the saved layout or in another one. Collective."""
        import h5py

        spec = self._spec(name, "array")
        assert spec.shape is not None and spec.dtype is not None and spec.layout is not None
        box = (layout or spec.layout).boxes(spec.shape, self._size)[self._rank][0]
        with h5py.File(self.path, "r") as file:
            data = file["arrays"][self._manifest["arrays"][name]["dataset"]]
            raw = data[box.slices] if box.size else np.empty(box.shape + data.shape[len(box.shape) :], data.dtype)
        return np.ascontiguousarray(raw).view(spec.dtype).reshape(box.shape)

    def value(self, name: str) -> Any:
        self._spec(name, "value")
        return values.decode(self._manifest["values"][name])

    def rng(self, name: str) -> np.random.Generator:
        self._spec(name, "rng")
        return rng.generator_from(self._manifest["rngs"][name])

    def _spec(self, name: str, kind: str) -> ArraySpec:
        spec = self.specs.get(name)
        if spec is None or spec.kind != kind:
            raise Mismatch(f"{self.path} holds no {kind} {name!r}; it holds {', '.join(map(repr, self.specs)) or 'nothing'}")
        return spec


class Store:
    """A folder of checkpoints.

    Parameters
    ----------
    folder
        Made, with mode 0700, when it is missing.
    comm
        mpi4py communicator whose ranks save and load together; None for one process without MPI.
    driver
        ``direct``: every rank writes at its own offsets. ``mpio``: parallel HDF5. ``auto``: ``direct``.
    keep
        How many good checkpoints stay.
    writer
        Who writes, for fencing; None for a program on its own.
    deadline
        Seconds after which ranks that wait for a lost one are ended.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        comm: Any = None,
        *,
        driver: Driver = "auto",
        keep: int = 2,
        writer: Writer | None = None,
        deadline: float = 60.0,
    ) -> None:
        self.folder = Path(folder)
        self.driver, self.keep, self.writer, self.deadline = driver, keep, writer, deadline
        self._comm = None if comm is None else comm.Dup()
        if self._rank == 0:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if writer is None:
            self._staging = self.folder / f".staging-own-{secrets.token_hex(4)}"
        else:
            self._staging = Path(writer.staging)

    @property
    def _rank(self) -> int:
        return 0 if self._comm is None else int(self._comm.rank)

    def close(self) -> None:
        """Free the communicator. Collective."""
        if self._comm is not None:
            self._comm.Free()
            self._comm = None

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def list(self) -> list[CheckpointInfo]:
        """Return the committed checkpoints, newest first. Not collective; needs no MPI."""
        found = []
        for path in self.folder.glob("step-*.h5") if self.folder.is_dir() else ():
            if match := NAME.fullmatch(path.name):
                stat = path.stat()
                found.append(CheckpointInfo(path, int(match[1]), int(match[2]), stat.st_size, stat.st_mtime))
        return sorted(found, key=lambda each: (each.generation, each.step), reverse=True)

    def save(self, step: int, items: State, info: Any = None) -> Saved:
        """Save a state; durable under its name when this returns. Collective."""
        began = time.perf_counter()
        parts = {name: item.local for name, item in items.items() if isinstance(item, ArrayItem)}
        gathered = [parts] if self._comm is None else self._comm.gather(parts)
        generation = self.writer.generation if self.writer else 0
        path = self.folder / f"step-{step:012d}-g{generation:04d}.h5"
        error: CheckpointError | None = None
        size = 0
        if gathered is not None:
            try:
                size = self._write(path, step, items, info, gathered)
            except FileNotFoundError as problem:
                error = Fenced(f"{path.name} was refused: a later generation has taken over ({problem})")
            except CheckpointError as problem:
                error = problem
        if self._comm is not None:
            error, size = self._comm.bcast((error, size))
        if error is not None:
            raise error
        return Saved(path, step, size, time.perf_counter() - began)

    def _write(self, path: Path, step: int, items: State, info: Any, gathered: Any) -> int:
        import h5py

        temporary = self._staging / path.name
        self._staging.mkdir(mode=0o700, exist_ok=True)
        manifest: dict[str, Any] = {"step": step, "info": values.encode(info), "arrays": {}, "values": {}, "rngs": {}}
        with h5py.File(temporary, "w", libver="latest") as file:
            group = file.create_group("arrays")
            for index, (name, item) in enumerate(items.items()):
                if isinstance(item, ValueItem):
                    manifest["values"][name] = values.encode(item.value)
                elif isinstance(item, RngItem):
                    manifest["rngs"][name] = rng.state_of(item.generator, name)
                else:
                    dtypes.check(item.local, name)
                    dtype, more = dtypes.storage(item.local.dtype)
                    data = group.create_dataset(str(index), item.shape + more, dtype, track_times=False)
                    for parts, boxes in zip(gathered, item.layout.boxes(item.shape, len(gathered)), strict=True):
                        if boxes[0].size:
                            raw = np.ascontiguousarray(parts[name]).view(dtype)
                            data[boxes[0].slices] = raw.reshape(boxes[0].shape + more)
                    manifest["arrays"][name] = {
                        "dataset": str(index),
                        "shape": list(item.shape),
                        "dtype": dtypes.to_json(item.local.dtype),
                        "layout": item.layout.to_json(),
                    }
            file["manifest"] = np.frombuffer(json.dumps(manifest).encode(), np.uint8)
        with open(temporary, "rb") as stream:
            os.fsync(stream.fileno())
        if self.writer is not None and self.writer.check is not None:
            self.writer.check()
        os.rename(temporary, path)
        for old in self.list()[self.keep :]:
            old.path.unlink()
        return path.stat().st_size

    def load_newest(self, layouts: Mapping[str, Layout] | None = None) -> Loaded | None:
        """Load the newest good checkpoint, None when there is none at all. Collective."""
        found = [each.path for each in self.list()[:1]] if self._rank == 0 else None
        if self._comm is not None:
            found = self._comm.bcast(found)
        return self.load(found[0]) if found else None

    def load(
        self, which: str | os.PathLike[str] | int, arrays: Any = None, layouts: Mapping[str, Layout] | None = None
    ) -> Loaded:
        """Load one checkpoint, by path or by step. Collective."""
        import h5py

        if isinstance(which, int):
            which = next(each.path for each in self.list() if each.step == which)
        with h5py.File(which, "r") as file:
            manifest = json.loads(file["manifest"][()].tobytes())
        return Loaded(Path(which), manifest, self._comm)
