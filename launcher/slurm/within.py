"""A Slurm job that keeps its nodes: other sizes are a part of them, nothing is asked of the queue or given back."""

from __future__ import annotations

import dataclasses
from typing import Any

from ...resize import words
from ...resize.view import ClusterView
from ..engines.engine import Allocation, EngineError, ShrinkRefused
from .engine import SlurmEngine


class HeldEngine(SlurmEngine):
    """Runs on any part of the job's nodes, larger and smaller, as often as is wanted."""

    name = "held"
    can_submit = False

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._whole: tuple[str, ...] = ()
        self._used = 0

    @property
    def no_shrink(self) -> str | None:
        return None

    def allocation(self) -> Allocation:
        found = super().allocation()
        self._whole, self._used = found.nodes, len(found.nodes)
        return found

    def observe(self) -> ClusterView | None:
        """Return the job's nodes as the whole cluster."""
        found = super().observe()
        if found is None:
            return None
        most = len(self._whole)
        own = tuple(each for each in found.jobs if each.job == self._job)
        return dataclasses.replace(
            found, total=most, idle=max(0, most - self._used), configured=most, max_nodes=most, jobs=own
        )

    def resize_in_place(self, allocation: Allocation, nodes: int) -> Allocation:
        """Return so many of the job's nodes."""
        if not 1 <= nodes <= len(self._whole):
            raise ShrinkRefused(f"the job has {words.nodes(len(self._whole))}, not {nodes}")
        self._used = nodes
        return dataclasses.replace(allocation, nodes=self._whole[:nodes])

    def survivors(self, allocation: Allocation) -> Allocation:
        found = super().survivors(dataclasses.replace(allocation, nodes=self._whole or allocation.nodes))
        self._whole = found.nodes
        return dataclasses.replace(found, nodes=found.nodes[: len(allocation.nodes)])

    def submit(self, submission: Any) -> str:
        raise EngineError("a run that stays within its job submits nothing")
