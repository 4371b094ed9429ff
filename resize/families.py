"""Laws of time over size, and their fit by constrained least squares.

All three are linear in non-negative coefficients, T(n) = A/n + B·1 + C·g(n):

``amdahl``
    T = W (f/n + 1 − f). G. M. Amdahl 1967, "Validity of the single processor approach".
``sevcik``
    T = φW/n + α + βn. K. C. Sevcik 1994, "Application scheduling and processor allocation in
    multiprogrammed parallel processing systems".
``usl``
    T = W (1 + σ(n−1) + κn(n−1))/n, the universal scalability law. N. J. Gunther 2007, "Guerrilla Capacity
    Planning"; its fastest size is n* = √((1−σ)/κ).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .samples import Sample

FamilyName = Literal["amdahl", "sevcik", "usl"]
Array = NDArray[np.float64]

_COLUMNS: dict[FamilyName, tuple[Callable[[Array], Array], ...]] = {
    "amdahl": (lambda n: 1 / n, np.ones_like),
    "sevcik": (lambda n: 1 / n, np.ones_like, lambda n: n),
    "usl": (lambda n: 1 / n, np.ones_like, lambda n: n - 1),
}
FAMILIES: tuple[FamilyName, ...] = ("amdahl", "sevcik", "usl")


@dataclass(frozen=True)
class Fit:
    """A law with its coefficients (A, B[, C]) in seconds.

    ``chi2`` is the sum of squared residuals over their variances.
    """

    family: FamilyName
    coefficients: tuple[float, ...]
    chi2: float
    points: int

    def seconds(self, nodes: float) -> float:
        """Return seconds a step at a size."""
        n = np.array([nodes], dtype=np.float64)
        return float(sum(c * column(n)[0] for c, column in zip(self.coefficients, _COLUMNS[self.family], strict=True)))

    def parameters(self) -> dict[str, float]:
        """Return the parameters by the names that the law's author gave them; seconds for times."""
        a, b, c = (*self.coefficients, 0.0)[:3]
        total = a + b or math.inf  # a law of overhead alone
        if self.family == "amdahl":
            return {"seconds_on_one": a + b, "parallel_fraction": a / total}
        if self.family == "sevcik":
            return {"phi_work": a, "alpha": b, "beta": c}
        return {"seconds_on_one": a + b, "sigma": b / total, "kappa": c / total}

    def fastest(self) -> float:
        """Return the size with the least time; inf when more is always faster."""
        a, c = self.coefficients[0], (*self.coefficients, 0.0)[2]
        return math.inf if c <= 0 else math.sqrt(a / c)


def fit(family: FamilyName, samples: Sequence[Sample]) -> Fit | None:
    """Fit a law by least squares, weighted by the samples' errors, all coefficients ≥ 0.

    The least squares problem has at most three unknowns, so the active set is found by trying all of
    them. None when there are fewer sizes than unknowns.
    """
    columns = _COLUMNS[family]
    if len(samples) < len(columns):
        return None
    n = np.array([each.nodes for each in samples], dtype=np.float64)
    y = np.array([each.seconds for each in samples], dtype=np.float64)
    sigma = y * np.array([each.error for each in samples], dtype=np.float64)
    matrix = np.stack([column(n) for column in columns], axis=1) / sigma[:, None]
    target = y / sigma
    best: tuple[float, tuple[float, ...]] | None = None
    for size in range(1, len(columns) + 1):
        for active in combinations(range(len(columns)), size):
            found = np.linalg.lstsq(matrix[:, active], target, rcond=None)[0]
            if (found < 0).any():
                continue
            chi2 = float(((matrix[:, active] @ found - target) ** 2).sum())
            if best is None or chi2 < best[0] - 1e-12 * (1 + best[0]):
                values = dict(zip(active, found, strict=True))
                best = (chi2, tuple(float(values.get(index, 0.0)) for index in range(len(columns))))
    if best is None or sum(best[1]) <= 0:
        return None
    return Fit(family, best[1], best[0], len(samples))
