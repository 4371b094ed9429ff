"""How the elements of an array, in C order, are cut into pieces."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Pieces:
    """The pieces of ``size`` elements.

    Parameters
    ----------
    size
        Number of elements; 0 for what has no bytes, and therefore no pieces.
    each
        Elements of a piece; the last one of a row may have less.
    row
        Elements after which a piece ends in any case, a divisor of ``size``; 0 for all of them. It is what makes
        pieces boxes of an array.
    """

    size: int
    each: int
    row: int = 0

    @property
    def whole(self) -> int:
        """Elements of a row."""
        return self.row or self.size or 1

    @property
    def a_row(self) -> int:
        """Pieces of a row."""
        return -(-self.whole // self.each)

    def __len__(self) -> int:
        return self.size // self.whole * self.a_row

    def span(self, piece: int) -> tuple[int, int]:
        """Return the range of elements of a piece."""
        row, place = divmod(piece, self.a_row)
        begin = row * self.whole
        return begin + place * self.each, begin + min((place + 1) * self.each, self.whole)

    def spans(self, pieces: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the first element of each of some pieces, and one past the last."""
        begin = pieces // self.a_row * self.whole
        lo = pieces % self.a_row * self.each
        return begin + lo, begin + np.minimum(lo + self.each, self.whole)

    def at(self, element: int) -> int:
        """Return the piece that an element is in."""
        row, place = divmod(element, self.whole)
        return row * self.a_row + place // self.each

    def within(self, lo: int, hi: int) -> range:
        """Return the pieces that have some of the elements ``lo`` to ``hi``."""
        return range(self.at(lo), self.at(hi - 1) + 1) if lo < hi else range(0)
