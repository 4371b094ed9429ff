"""Saving in the background: a copy of the state in memory, written while the program computes on."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .comm.threads import Task
from .comm.watchdog import Watchdog
from .errors import Unsupported
from .state import dtypes, rng, values
from .state.describe import State
from .state.groups import AnyItem, ParticlesItem, PerRankItem, RaggedItem
from .state.items import ArrayItem, RngItem, Saved, ValueItem

Array = npt.NDArray[Any]


class Job(Protocol):
    """A save that is to be done."""

    @property
    def folder(self) -> Path: ...
    @property
    def watchdog(self) -> Watchdog: ...
    def run(self, step: int, items: State, info: Any) -> Saved: ...


class Snapshot:
    """Copies of states, each in the memory of the one before: to get new memory costs more than the copy."""

    def __init__(self) -> None:
        self._memory: dict[str, Array] = {}
        self._used: set[str] = set()

    def take(self, items: State) -> dict[str, AnyItem]:
        """Return a copy of a state that has nothing in common with it."""
        self._used = set()
        found = {name: self._item(name, item) for name, item in items.items()}
        for name in set(self._memory) - self._used:
            del self._memory[name]
        return found

    def _item(self, name: str, item: AnyItem) -> AnyItem:
        if isinstance(item, ArrayItem):
            return replace(item, local=self._array(name, item.local))
        if isinstance(item, ValueItem):
            values.encode(item.value, f"value {name!r}")
            return ValueItem(copy.deepcopy(item.value))
        if isinstance(item, RngItem):
            return RngItem(rng.generator_from(rng.state_of(item.generator, name)))
        if isinstance(item, RaggedItem):
            return RaggedItem(self._array(f"{name}:counts", item.counts), self._array(f"{name}:values", item.values))
        if isinstance(item, ParticlesItem):
            columns: Mapping[str, Array] = {
                key: self._array(f"{name}:{key}", each) for key, each in item.columns.items()
            }
            return ParticlesItem(self._array(f"{name}:id", item.ids), columns)
        if isinstance(item, PerRankItem):
            return replace(item, local=self._array(name, item.local))
        return replace(item, generator=rng.generator_from(rng.state_of(item.generator, name)))

    def _array(self, name: str, source: Array) -> Array:
        dtypes.check(source, name)
        memory = self._memory.get(name)
        if memory is None or memory.shape != source.shape or memory.dtype != source.dtype:
            memory = self._memory[name] = np.empty(source.shape, source.dtype)
        self._used.add(name)
        if source.dtype.itemsize:
            # As opaque bytes, since NumPy's own copy of a struct leaves its padding behind.
            opaque = np.dtype(f"V{source.dtype.itemsize}") if source.dtype.kind == "V" else source.dtype
            np.copyto(memory.view(opaque), source.view(opaque))
        return memory


class Background:
    """One save at a time in a thread of its own."""

    def __init__(self) -> None:
        self._task: Task[Saved] | None = None

    @property
    def busy(self) -> bool:
        """Whether a save is under way on this rank."""
        return self._task is not None and self._task.busy

    @property
    def pending(self) -> bool:
        """Whether a save was started whose outcome nobody has asked for."""
        return self._task is not None

    def start(self, job: Job, step: int, items: State, info: Any, deadline: float, *, root: bool) -> None:
        """Begin a save. The one before has been waited for. Of a program that ends meanwhile, the root tells errors."""
        # The thread may go on when the program is at its end, and no thread can be started.
        job.watchdog.start()

        def run() -> Saved:
            with job.watchdog.watch(f"saving step {step} in {job.folder} in the background", deadline):
                return job.run(step, items, info)

        self._task = Task(run, "save in the background", tell=root)

    def wait(self) -> Saved | None:
        """Wait for the save that is under way; return it, None when there is none. Raises what went wrong in it."""
        task, self._task = self._task, None
        return None if task is None else task.result()


def check_threads(size: int) -> None:
    """Refuse to save in the background where MPI does not let two threads communicate.

    Raises
    ------
    Unsupported
    """
    if size == 1:
        return
    from mpi4py import MPI

    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise Unsupported(
            "to save in the background, MPI has to be started with MPI_THREAD_MULTIPLE, which mpi4py asks for unless "
            "mpi4py.rc.thread_level says otherwise; this MPI or program did not: use save()"
        )
