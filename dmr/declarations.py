"""The state of a run, as a program declares it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .arrays import Array
from .holders import Particles, PerRank, Ragged
from .state import State
from .values import Value


class Declarations:
    """What a `Run` offers to declare state that is saved and restored."""

    def __init__(self, state: State) -> None:
        self._state = state

    def array(
        self, name: str, shape: Sequence[int] | int, dtype: Any = "f8", layout: Any = None, *, halo: int = 0
    ) -> Array:
        """Declare a distributed array and return this rank's part. Collective.

        Parameters
        ----------
        name
            Any text; unique in the run.
        shape
            Shape of the whole array.
        dtype
            Anything that `numpy.dtype` takes.
        layout
            How it is spread over the ranks: ``dmr.Block(axis=0)`` (the default), ``dmr.Block(axes=(0, 1))``
            over a process grid, ``dmr.Replicated()``: the whole on each rank, or any other of `dmr.ckpt`:
            ``BlockCyclic``, ``Boxes``, ``Counts``, ``Indices``.
        halo
            Cells more on both sides of each split axis, in `Array.padded`; not saved.

        Returns
        -------
        Array
            Zeros at a fresh start; after a restart the saved data in this process count's partition.

        Raises
        ------
        Error
            When the name is taken, or when the checkpoint holds it with another shape or dtype, or does
            not hold it.
        """
        return self._state.array(name, shape, dtype, layout, halo)

    def value(self, name: str, initial: Any = None) -> Value:
        """Declare a replicated JSON value that holds ``initial`` at a fresh start. Read and assign its ``.value``."""
        return self._state.value(name, initial)

    def rng(self, name: str, seed: int | Sequence[int] = 0, *, per_rank: bool = False) -> np.random.Generator:
        """Declare a random generator whose state is saved; at a fresh start a PCG64 of this seed.

        It is replicated: every rank holds the same one and has to draw the same numbers from it, so that the
        result does not depend on the process count; ranks that drew differently are an error at
        the next checkpoint. For a part of an array, draw the whole and take the part, or seed a generator
        of your own from the step and the global index.

        With ``per_rank`` each rank has a stream of its own. At the same process count it goes on; at another
        one, fresh streams are derived from seed, step, process count and rank, and that is said: the numbers, and
        with them the result, then depend on the sizes that the run had.
        """
        return self._state.rng(name, seed, per_rank)

    def ragged(self, name: str, dtype: Any = "f8", item_shape: Sequence[int] = (), *, by: str | None = None) -> Ragged:
        """Declare rows of uneven length (CSR). Collective.

        Parameters
        ----------
        name
            Any text; unique in the run.
        dtype, item_shape
            Of a value.
        by
            After a restart at another process count ranks get about the same number of ``rows`` (the default), or of
            ``values``.
        """
        return self._state.ragged(name, dtype, item_shape, by)

    def particles(
        self, name: str, columns: Mapping[str, Any], *, by: Any = "stored", weight: str | None = None
    ) -> Particles:
        """Declare particles: a 64-bit id each, and columns. Collective.

        Parameters
        ----------
        name
            Any text; unique in the run.
        columns
            Dtype of each column by its name; ``("f8", (3,))`` for one of vectors.
        by
            Where they go after a restart: ``stored`` (blocks of the order in which they were saved), ``id``,
            ``weight``, or a function of ids and columns that returns the rank of each.
        weight
            Column of weights, for ``by="weight"``.
        """
        return self._state.particles(name, columns, by, weight)

    def per_rank(self, name: str, initial: Any, *, rule: Any = None) -> PerRank:
        """Declare an array that each rank has of its own. Collective.

        Parameters
        ----------
        name
            Any text; unique in the run.
        initial
            What this rank holds at a fresh start.
        rule
            What becomes of it at another process count: ``concat``, ``sum``, ``first``, or a function of
            ``(values, rank, ranks)``. It has to be given.
        """
        return self._state.per_rank(name, initial, rule)
