"""Arrays whose rows are named by global index, as in unstructured meshes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..errors import Mismatch, Unsupported
from .box import Box
from .layout import Block, Layout, Shape
from .parts import Part


@dataclass(frozen=True, eq=False)
class Indices:
    """Rows by their global index along the first axis; each rank names its own, in any order.

    Several ranks may hold a row (ghosts); exactly one of them owns it, and its copy is what is saved. A load fills
    ghosts too. Loaded without a list, the array comes in blocks.

    Parameters
    ----------
    indices
        Global index of each local row, shape ``(rows,)``, any integer dtype. No index twice on one rank.
    owned
        Which local rows this rank owns: booleans of the same shape, or how many rows from the first on. All when None.
    """

    indices: npt.NDArray[Any]
    owned: npt.NDArray[Any] | int | None = None

    kind: ClassVar[str] = "indices"
    flat: ClassVar[bool] = False

    def __post_init__(self) -> None:
        indices = np.asarray(self.indices)
        if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
            raise ValueError(f"Indices: a one-dimensional array of integers, not {indices.dtype} {indices.shape}")
        indices = indices.astype(np.int64)
        if self.owned is None:
            owned = np.ones(len(indices), bool)
        elif isinstance(self.owned, (int, np.integer)):
            owned = np.arange(len(indices)) < self.owned
        else:
            owned = np.asarray(self.owned)
            if owned.shape != indices.shape or owned.dtype != bool:
                raise ValueError("Indices(owned=...): a boolean for each index, or their number")
        object.__setattr__(self, "indices", indices)
        object.__setattr__(self, "owned", owned)

    def order(self, shape: Shape, *, writing: bool) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return global indices in ascending order, and the local row of each; only the owned ones for writing.

        Raises
        ------
        Mismatch
            When an index is outside of the array, or twice in the list.
        """
        if not shape:
            raise Unsupported("Indices names rows, and a 0-d array has none")
        rows = np.flatnonzero(np.asarray(self.owned)) if writing else np.arange(len(self.indices))
        order = rows[np.argsort(self.indices[rows], kind="stable")]
        ascending = self.indices[order]
        if len(ascending) and not 0 <= ascending[0] <= ascending[-1] < shape[0]:
            raise Mismatch(f"Indices has {ascending[0]} to {ascending[-1]}, and the array has rows 0 to {shape[0] - 1}")
        twice = np.flatnonzero(np.diff(ascending) == 0)
        if len(twice):
            raise Mismatch(f"Indices has {ascending[twice[0]]} twice on one rank")
        return ascending, order

    def parts(self, shape: Shape, ranks: int, rank: int) -> tuple[Part, ...]:
        """Return what this rank holds; it knows of no other's."""
        ascending, _ = self.order(shape, writing=False)
        return (Part((ascending, *((0, extent) for extent in shape[1:]))),)

    def boxes(self, shape: Shape, ranks: int) -> tuple[tuple[Box, ...], ...]:
        """Refused, since each rank knows its own rows alone.

        Raises
        ------
        Unsupported
        """
        raise Unsupported("Indices has no boxes: each rank knows its own rows alone")

    def at(self, ranks: int) -> Layout:
        """Return blocks, since the lists are not in the file."""
        return Block()

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Indices:
        return cls(np.zeros(0, np.int64))
