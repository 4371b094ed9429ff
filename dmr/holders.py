"""State that is more than an array: rows of uneven length, particles, what each rank has of its own.

A program assigns new parts as it goes; what stands there at a checkpoint is saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from .ckpt import ParticlesItem, PerRankItem, RaggedItem
from .errors import Error


class Ragged:
    """This rank's rows of uneven length. Made by `Run.ragged`.

    Attributes
    ----------
    counts : numpy.ndarray
        Number of values of each local row, shape ``(rows,)``, int64.
    values : numpy.ndarray
        The values of all local rows, one row after the other, shape ``(counts.sum(), *item_shape)``.
    first_row : int
        Global number of the first local row after a restart; 0 at a fresh start, when rows are numbered in the order
        of ranks.
    """

    kind: ClassVar[str] = "ragged"

    def __init__(self, name: str, dtype: np.dtype[Any], item_shape: tuple[int, ...]) -> None:
        self.name, self.dtype, self.item_shape = name, dtype, item_shape
        self.counts: np.ndarray[Any, Any] = np.zeros(0, np.int64)
        self.values: np.ndarray[Any, Any] = np.zeros((0, *item_shape), dtype)
        self.first_row = 0

    def item(self) -> RaggedItem:
        _refuse_other(f"ragged {self.name!r}: values", self.values, self.dtype, self.item_shape)
        return RaggedItem(self.counts, self.values)


class Particles:
    """This rank's particles. Made by `Run.particles`.

    Attributes
    ----------
    ids : numpy.ndarray
        A 64-bit id for each, unique over all ranks, shape ``(n,)``, int64 or uint64.
    columns : dict of str to numpy.ndarray
        What they have, each of shape ``(n, ...)``.
    """

    kind: ClassVar[str] = "particles"

    def __init__(self, name: str, columns: Mapping[str, Any]) -> None:
        self.name = name
        self._kinds: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
        for key, what in columns.items():
            plain = np.dtype(what)
            self._kinds[key] = (plain.base, plain.shape)
        self.ids: np.ndarray[Any, Any] = np.zeros(0, np.int64)
        self.columns: dict[str, np.ndarray[Any, Any]] = {
            key: np.zeros((0, *shape), dtype) for key, (dtype, shape) in self._kinds.items()
        }

    def item(self) -> ParticlesItem:
        if set(self.columns) != set(self._kinds):
            raise Error(
                f"particles {self.name!r}: declared with the columns {', '.join(self._kinds) or 'none'}, "
                f"but it has {', '.join(self.columns) or 'none'}"
            )
        for key, (dtype, shape) in self._kinds.items():
            _refuse_other(f"particles {self.name!r}: column {key!r}", self.columns[key], dtype, shape)
        return ParticlesItem(self.ids, self.columns)


class PerRank:
    """An array that each rank has of its own. Made by `Run.per_rank`.

    Attributes
    ----------
    local : numpy.ndarray
        This rank's.
    """

    kind: ClassVar[str] = "per-rank"

    def __init__(self, name: str, local: np.ndarray[Any, Any], rule: Any) -> None:
        if rule is None:
            raise Error(
                f"per-rank {name!r}: say what becomes of it at another process count: rule='concat', 'sum', 'first', "
                "or a function of (values, rank, ranks)"
            )
        self.name, self.local, self.rule = name, local, rule

    def item(self) -> PerRankItem:
        return PerRankItem(self.local, self.rule)


def _refuse_other(what: str, found: Any, dtype: np.dtype[Any], item_shape: tuple[int, ...]) -> None:
    if isinstance(found, np.ndarray) and found.dtype == dtype and found.ndim and found.shape[1:] == item_shape:
        return
    is_ = f"{found.dtype} {found.shape}" if isinstance(found, np.ndarray) else type(found).__name__
    declared = ", ".join(("n", *map(str, item_shape)))
    raise Error(f"{what} is declared as {dtype} ({declared}), but it is {is_}")
