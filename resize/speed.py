"""How long a step takes at each size, with an interval, from whatever was measured.

Every law of `families` is laid out on a grid of its dimensionless parameters; measurements weigh its points,
the weight of a law is its evidence, and the spread of the weighted predictions is the interval. With one size
measured nothing weighs yet, and the interval is the prior's: from change in proportion to none at all. It
narrows as sizes are added.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from .families import FAMILIES, FamilyName, Fit, fit
from .posterior import PRIOR, Posterior, from_one_size, posterior
from .samples import Cleaned, Sample, clean
from .view import Rate
from .words import count

NINETY = 1.645
"""Standard deviations on either side that hold 90 %."""

FEW_STEPS = 10
"""From fewer steps at a size how the program scales is not told."""
LEAST_FRACTION = 0.005
"""A parallel part that is smaller is none."""


@dataclass(frozen=True)
class Estimate:
    """Seconds a step: the likely value, and a 90 % interval.

    ``measured`` is whether this very size was measured by this run.
    """

    value: float
    low: float
    high: float
    measured: bool


class Speed:
    """Seconds a step over size.

    Parameters
    ----------
    rates, earlier
        Measurements of this run and of earlier ones, in order of time.
    phase
        The phase whose speed is wanted.
    """

    def __init__(self, rates: Iterable[Rate], phase: str | None = None, earlier: Iterable[Rate] = ()) -> None:
        self.cleaned: Cleaned = clean(rates, earlier, phase)
        self.samples: dict[int, Sample] = {each.nodes: each for each in self.cleaned.samples}
        self._known: dict[int, Estimate] = {}

    @property
    def largest(self) -> int:
        """Largest size measured, 0 when there is none."""
        return max(self.samples, default=0)

    @cached_property
    def _posterior(self) -> Posterior:
        return posterior(self.cleaned.samples)

    def at(self, nodes: int) -> Estimate | None:
        """Return seconds a step at this size, None when nothing was measured yet."""
        if not self.samples:
            return None
        if nodes not in self._known:
            self._known[nodes] = self._estimate(nodes)
        return self._known[nodes]

    def _estimate(self, nodes: int) -> Estimate:
        sample = self.samples.get(nodes)
        if sample is not None and not sample.earlier:
            spread = math.exp(NINETY * sample.error)
            return Estimate(sample.seconds, sample.seconds / spread, sample.seconds * spread, True)
        if len(self.samples) == 1:
            only = self.cleaned.samples[0]
            ratio, spread = from_one_size(only.nodes, nodes)
            mean, sigma = math.log(only.seconds) + ratio, math.hypot(spread, only.error)
        else:
            mean, sigma = self._posterior.predict(nodes)
        return Estimate(math.exp(mean), math.exp(mean - NINETY * sigma), math.exp(mean + NINETY * sigma), False)

    @cached_property
    def evidence(self) -> dict[FamilyName, float]:
        """Probability of each law, given the measurements."""
        if not self.samples:
            return dict(PRIOR)
        return self._posterior.evidence()

    @cached_property
    def fits(self) -> dict[FamilyName, Fit]:
        """Least squares fits of the laws that have no more unknowns than sizes were measured."""
        found = {name: fit(name, self.cleaned.samples) for name in FAMILIES}
        return {name: each for name, each in found.items() if each is not None}

    @property
    def best(self) -> Fit | None:
        """The fit of the law with the most evidence; None with fewer than two sizes."""
        return max(self.fits.values(), key=lambda each: self.evidence[each.family], default=None)

    @property
    def _law(self) -> str:
        """The likeliest law with its parameters, in words."""
        law = max(self.evidence, key=lambda each: self.evidence[each])
        words = f"; {law} {self.evidence[law]:.0%} likely"
        if law not in self.fits:
            return words
        parameters = self.fits[law].parameters()
        if parameters.get("parallel_fraction", 1.0) < LEAST_FRACTION:
            return "; more nodes have not made it faster"
        return words + f" ({', '.join(f'{key} {value:.3g}' for key, value in parameters.items())})"

    @property
    def basis(self) -> str:
        """What the estimates rest on, in words."""
        if not self.samples:
            return "no speed measured yet"
        sizes = ", ".join(map(str, sorted(self.samples)))
        words = f"measured at {sizes} nodes"
        best, fewest = self.best, min(each.steps for each in self.samples.values())
        if fewest < FEW_STEPS:
            words += f", from {count(fewest, 'step')} yet" if len(self.samples) == 1 else ", at one from few steps yet"
        if best is None:
            words += "; other sizes are assumed (optimistic, bounded by Amdahl's law)"
        elif fewest >= FEW_STEPS:
            words += self._law
        if any(each.earlier for each in self.samples.values()):
            words += "; in part from earlier runs"
        if self.cleaned.warm_up or self.cleaned.outliers:
            words += f"; left out {self.cleaned.warm_up} as warm-up, {self.cleaned.outliers} as outliers"
        return words
