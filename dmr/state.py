"""What a program has declared as its state, held against what a checkpoint holds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from .arrays import Array
from .ckpt import Block, Replicated, RngItem, StreamItem
from .errors import Error
from .holders import Particles, PerRank, Ragged
from .values import Value


class Held(Protocol):
    """State of one name: gives the item that is to be saved."""

    @property
    def kind(self) -> str: ...

    def item(self) -> Any: ...


Holder = TypeVar("Holder", bound=Held)


class State:
    """All that a program has declared, by name.

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
        self._held: dict[str, Held] = {}

    def array(self, name: str, shape: Sequence[int] | int, dtype: Any, layout: Any, halo: int) -> Array:
        shape = (int(shape),) if isinstance(shape, int | np.integer) else tuple(int(extent) for extent in shape)
        layout = layout if layout is not None else Block(axis=0) if shape else Replicated()
        array = Array(name, shape, np.dtype(dtype), layout, self._rank, self._ranks, halo)

        def load(loaded: Any) -> None:
            spec = loaded.specs[name]
            if (np.dtype(spec.dtype), tuple(spec.shape)) != (array.dtype, shape):
                raise Error(
                    f"array {name!r}: {self._where} holds {spec.dtype} {tuple(spec.shape)}, the program declares "
                    f"{array.dtype} {shape}; go on with the program that wrote it, or start a new run directory"
                )
            array.local = loaded.array(name, layout)

        return self._declare(name, array, load)

    def value(self, name: str, initial: Any) -> Value:
        value = Value(name, initial)
        return self._declare(name, value, lambda loaded: setattr(value, "value", loaded.value(name)))

    def rng(self, name: str, seed: int | Sequence[int], per_rank: bool) -> np.random.Generator:
        if per_rank and not isinstance(seed, int | np.integer):
            raise Error(f"generator {name!r}: one of each rank takes a single number for its seed, not {seed!r}")
        spawn_key = (0, self._ranks, self._rank) if per_rank else ()
        seeds = np.random.SeedSequence(seed, spawn_key=spawn_key)
        generator = _Generator(np.random.Generator(np.random.PCG64(seeds)), int(seed) if per_rank else None)  # type: ignore[arg-type]

        def load(loaded: Any) -> None:
            generator.generator = loaded.stream(name) if per_rank else loaded.rng(name)

        return self._declare(name, generator, load).generator

    def ragged(self, name: str, dtype: Any, item_shape: Sequence[int], by: str | None) -> Ragged:
        ragged = Ragged(name, np.dtype(dtype), tuple(item_shape))

        def load(loaded: Any) -> None:
            part = loaded.ragged(name, by)
            ragged.first_row, ragged.counts, ragged.values = part.first_row, part.counts, part.values
            ragged.item()

        return self._declare(name, ragged, load)

    def particles(self, name: str, columns: Mapping[str, Any], by: Any, weight: str | None) -> Particles:
        particles = Particles(name, columns)

        def load(loaded: Any) -> None:
            part = loaded.particles(name, by, weight)
            particles.ids, particles.columns = part.ids, dict(part.columns)
            particles.item()

        return self._declare(name, particles, load)

    def per_rank(self, name: str, initial: Any, rule: Any) -> PerRank:
        own = PerRank(name, np.asarray(initial), rule)
        return self._declare(name, own, lambda loaded: setattr(own, "local", loaded.per_rank(name, rule)))

    def complete(self) -> None:
        """Refuse state in the checkpoint that the program has not declared, then let go of the checkpoint.

        Raises
        ------
        Error
            It would be lost at the next checkpoint.
        """
        if self._loaded is None:
            return
        left = sorted(set(self._loaded.specs) - set(self._held))
        if left:
            raise Error(
                f"{self._where} holds {', '.join(map(repr, left))}, which the program has not declared before its "
                "loop: it would be lost at the next checkpoint; declare it, or start a new run directory"
            )
        self._loaded = None

    def items(self) -> dict[str, Any]:
        """Return what a checkpoint is to hold."""
        return {name: held.item() for name, held in self._held.items()}

    def _declare(self, name: str, held: Holder, load: Callable[[Any], object]) -> Holder:
        if not isinstance(name, str) or not name:
            raise Error(f"{held.kind} {name!r}: a name is a text of at least one character")
        if name in self._held:
            raise Error(f"{held.kind} {name!r}: the name is taken already by the {self._held[name].kind} {name!r}")
        if self._loaded is not None:
            self._must_hold(name, held.kind)
            load(self._loaded)
        self._held[name] = held
        return held

    @property
    def _where(self) -> str:
        return f"checkpoint {os.path.basename(str(self._loaded.path))}"

    def _must_hold(self, name: str, kind: str) -> None:
        spec = self._loaded.specs.get(name)
        if spec is not None and spec.kind == kind:
            return
        what = f"holds {name!r} as {spec.kind}" if spec is not None else "does not hold it"
        raise Error(
            f"{kind} {name!r}: {self._where} {what} (it holds {', '.join(sorted(self._loaded.specs)) or 'nothing'}); "
            "go on with the program that wrote it, or start a new run directory"
        )


class _Generator:
    """A generator: the same on all ranks, or with a seed one of each rank."""

    def __init__(self, generator: np.random.Generator, seed: int | None) -> None:
        self.generator, self.seed = generator, seed
        self.kind = "rng" if seed is None else "stream"

    def item(self) -> RngItem | StreamItem:
        return RngItem(self.generator) if self.seed is None else StreamItem(self.generator, self.seed)
