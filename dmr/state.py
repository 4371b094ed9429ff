"""What a program has declared as its state, held against what a checkpoint holds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from .arrays import Array
from .ckpt import ArrayItem, Block, Replicated, RngItem, ValueItem
from .errors import Error
from .values import Value


class State:
    """Arrays, values and generators by name.

    Parameters
    ----------
    rank, ranks
        This rank and how many there are.
    loaded
        The checkpoint that the program was restarted from, None at a fresh start.
    """

    def __init__(self, rank: int, ranks: int, loaded: Any = None) -> None:
        self._rank, self._ranks = rank, ranks
        self._loaded = loaded
        self._arrays: dict[str, Array] = {}
        self._values: dict[str, Value] = {}
        self._generators: dict[str, np.random.Generator] = {}

    def array(self, name: str, shape: Sequence[int] | int, dtype: Any, layout: Any, halo: int) -> Array:
        self._refuse_taken(name, "array")
        shape = (int(shape),) if isinstance(shape, int | np.integer) else tuple(int(extent) for extent in shape)
        layout = layout if layout is not None else Block(axis=0) if shape else Replicated()
        array = Array(name, shape, np.dtype(dtype), layout, self._rank, self._ranks, halo)
        if self._loaded is not None:
            self._must_hold(name, "array")
            spec = self._loaded.specs[name]
            saved, declared = (np.dtype(spec.dtype), tuple(spec.shape)), (array.dtype, shape)
            if saved != declared:
                raise Error(
                    f"array {name!r}: {self._where} holds {saved[0]} {saved[1]}, the program declares "
                    f"{declared[0]} {declared[1]}; go on with the program that wrote it, or start a new run directory"
                )
            array.local = self._loaded.array(name, layout)
        self._arrays[name] = array
        return array

    def value(self, name: str, initial: Any) -> Value:
        self._refuse_taken(name, "value")
        if self._loaded is not None:
            self._must_hold(name, "value")
            initial = self._loaded.value(name)
        self._values[name] = Value(name, initial)
        return self._values[name]

    def rng(self, name: str, seed: int | Sequence[int]) -> np.random.Generator:
        self._refuse_taken(name, "generator")
        if self._loaded is not None:
            self._must_hold(name, "rng")
            generator = self._loaded.rng(name)
        else:
            generator = np.random.Generator(np.random.PCG64(seed))
        self._generators[name] = generator
        return generator

    def complete(self) -> None:
        """Refuse state in the checkpoint that the program has not declared, then let go of the checkpoint.

        Raises
        ------
        Error
            It would be lost at the next checkpoint.
        """
        if self._loaded is None:
            return
        left = sorted(set(self._loaded.specs) - {*self._arrays, *self._values, *self._generators})
        if left:
            raise Error(
                f"{self._where} holds {', '.join(map(repr, left))}, which the program has not declared before its "
                "loop: it would be lost at the next checkpoint; declare it, or start a new run directory"
            )
        self._loaded = None

    def items(self) -> dict[str, Any]:
        """Return what a checkpoint is to hold."""
        return {
            **{name: ArrayItem(array.local, array.layout, array.shape) for name, array in self._arrays.items()},
            **{name: ValueItem(value.value) for name, value in self._values.items()},
            **{name: RngItem(generator) for name, generator in self._generators.items()},
        }

    @property
    def _where(self) -> str:
        return f"checkpoint {os.path.basename(str(self._loaded.path))}"

    def _refuse_taken(self, name: str, kind: str) -> None:
        if not isinstance(name, str) or not name:
            raise Error(f"{kind} {name!r}: a name is a text of at least one character")
        if name in self._arrays or name in self._values or name in self._generators:
            raise Error(
                f"{kind} {name!r}: the name is taken already; names are unique over arrays, values and generators"
            )

    def _must_hold(self, name: str, kind: str) -> None:
        spec = self._loaded.specs.get(name)
        if spec is not None and spec.kind == kind:
            return
        what = f"holds {name!r} as {spec.kind}" if spec is not None else "does not hold it"
        raise Error(
            f"{kind} {name!r}: {self._where} {what} (it holds {', '.join(sorted(self._loaded.specs)) or 'nothing'}); "
            "go on with the program that wrote it, or start a new run directory"
        )
