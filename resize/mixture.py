"""How long a step takes on average over the steps that are left, where the program's phases take turns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache

from .samples import Sample
from .speed import Estimate, Speed
from .view import Rate, RunView

TRUST = 0.2
"""Phases to come that are forecast with less confidence than this are not counted on."""
LEAST_SHARE = 0.02
"""A phase with a smaller share of the steps need not have been measured at a size for that to count as measured."""

Shares = tuple[tuple[str | None, float], ...]
"""Phases, and the share of steps that each has."""

_speed = lru_cache(maxsize=4096)(Speed)


class Mixture:
    """Seconds a step over size, the mean over phases by their shares of the steps.

    Parameters
    ----------
    shares
        Of each phase; they add up to 1.
    rates, earlier
        As for `Speed`.
    """

    def __init__(self, shares: Shares, rates: Iterable[Rate], earlier: Iterable[Rate] = ()) -> None:
        own, past = tuple(rates), tuple(earlier)
        self.shares = shares
        self.speeds = {phase: _speed(own, phase, past) for phase, _ in shares}
        self._known: dict[int, Estimate | None] = {}

    @cached_property
    def samples(self) -> Mapping[int, Sample]:
        """Sizes at which all phases that matter were measured."""
        main = [self.speeds[phase] for phase, share in self.shares if share >= LEAST_SHARE]
        sizes = set.intersection(*(set(each.samples) for each in main)) if main else set()
        found = {}
        for size in sorted(sizes):
            parts = [each.samples[size] for each in main]
            mean = self.at(size)
            found[size] = Sample(
                size, parts[0].seconds if mean is None else mean.value, max(each.error for each in parts),
                sum(each.steps for each in parts), any(each.earlier for each in parts),
            )  # fmt: skip
        return found

    @property
    def largest(self) -> int:
        """Largest size measured in all phases that matter, 0 when there is none."""
        return max(self.samples, default=0)

    def at(self, nodes: int) -> Estimate | None:
        """Return seconds a step at this size, None when nothing was measured yet.

        What is not known of one phase's speed is as a rule not known of the others' either, so their errors are added.
        """
        if nodes not in self._known:
            parts = [(share, self.speeds[phase].at(nodes)) for phase, share in self.shares]
            known = [(share, each) for share, each in parts if each is not None]
            self._known[nodes] = None
            if known and len(known) == len(parts):
                self._known[nodes] = Estimate(
                    math.fsum(share * each.value for share, each in known),
                    math.fsum(share * each.low for share, each in known),
                    math.fsum(share * each.high for share, each in known),
                    all(each.measured for share, each in known if share >= LEAST_SHARE),
                )
        return self._known[nodes]

    @property
    def basis(self) -> str:
        """What the estimates rest on, in words."""
        named = sorted(self.shares, key=lambda each: -each[1])
        return "; ".join(
            f"{share:.0%} {phase if phase is not None else 'no phase'}: {self.speeds[phase].basis}"
            for phase, share in named
        )


_mixture = lru_cache(maxsize=4096)(Mixture)


def speed_of(run: RunView) -> Speed | Mixture:
    """Return the speed over size of the steps that a run has left: of its phases together, where it has several."""
    shares = shares_of(run)
    if len(shares) > 1:
        return _mixture(shares, run.rates, run.earlier)
    return _speed(run.rates, shares[0][0] if shares else run.phase, run.earlier)


def shares_of(run: RunView) -> Shares:
    """Return the share that each phase has of the steps left.

    By the phases to come as far as they are known, and beyond that as they were so far. Empty where nothing tells
    phases apart.
    """
    measured = _steps(run.rates)
    if len(measured) < 2 and not run.ahead:
        return ()
    known = {*measured, *(each.phase for each in run.earlier)}
    coming, reach = _coming(run, known)
    left = math.inf if run.steps is None else max(0, run.steps - run.step)
    rest = max(0.0, left - reach) if math.isfinite(left) else 1.0 if not coming else 0.0
    total = sum(measured.values())
    steps: dict[str | None, float] = dict(coming)
    if total > 0:
        for phase, count in measured.items():
            steps[phase] = steps.get(phase, 0.0) + rest * count / total
    whole = math.fsum(steps.values())
    if whole <= 0:
        return ()
    return tuple(sorted(((each, count / whole) for each, count in steps.items() if count > 0), key=lambda e: str(e[0])))


def _steps(rates: Sequence[Rate]) -> dict[str | None, int]:
    found: dict[str | None, int] = {}
    for each in rates:
        if each.steps > 0 and 0 < each.seconds_per_step < math.inf:
            found[each.phase] = found.get(each.phase, 0) + each.steps
    return found


def _coming(run: RunView, known: set[str | None]) -> tuple[dict[str | None, float], float]:
    """Return the steps of each phase to come whose speed is known, and how many steps the forecast covers."""
    found: dict[str | None, float] = {}
    reach = 0.0
    for place, each in enumerate(run.ahead):
        if place and each.confidence < TRUST:
            break
        if each.end <= run.step or each.phase not in known:
            continue
        steps = float(each.end - max(run.step, each.start))
        found[each.phase] = found.get(each.phase, 0.0) + steps
        reach += steps
    return found, reach
