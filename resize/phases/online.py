"""Which of the known phases a run is in now, from its signals as they come.

What phases look like is known from before (`.looks`). Samples are weighed by the forward algorithm of a hidden Markov
model (L. R. Rabiner 1989, "A tutorial on hidden Markov models", section III): phases last, what a sample says is
tempered, since neighbouring ones go together, and bounded, so that a single odd one decides nothing. What is likeliest
counts once it has been so for `CONFIRM` samples in a row, and only while their medians are like it at all: what is like
no known phase is none.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from .looks import Look, tolerances
from .recurring import BY_SIZE

CONFIRM = 5
"""Samples in a row that have to agree before another phase is said."""
DOUBT = 10
"""Samples in a row that have to be like nothing known before that is said."""
SURE = 0.9
"""Probability from which on a phase is acted on."""
CARRIED = 0.5
"""Probability of the phase of before, where a run goes on after a change of size."""

_SWITCH = 1 / 50
"""Probability that a phase ends with a sample."""
_EXPECTED = 0.1
"""The same, to a phase that earlier runs had at this step."""
_TEMPER = 0.5
_BOUND = 5.0
"""Nats by which a sample can speak against a phase."""
_ELSEWHERE = 2.0
"""The scatter around what is known from another size alone, in scatters there."""
_LEARN = 10
"""Samples of a phase at a size that nobody saw before, from which on its looks there are known."""
_FREEDOM = 3.0
"""Degrees of freedom of Student's t, which a sample is taken to scatter by."""


@dataclass(frozen=True)
class Recognised:
    """The phase that a run is in, None where it is like none that is known.

    ``confidence`` is from 0 to 1, ``since`` the time of the first sample in it; ``confirmed`` whether enough samples of
    the present size have said so.
    """

    phase: str | None
    confidence: float
    since: float | None = None
    confirmed: bool = False

    @property
    def sure(self) -> bool:
        """Whether it can be acted on."""
        return self.phase is not None and self.confirmed and self.confidence >= SURE


class Recogniser:
    """Tells the phase from one sample after the other, at one size.

    Parameters
    ----------
    looks
        What the phases look like, at any sizes.
    nodes
        The size.
    floors
        Least change that matters, by signal.
    before
        The phase that the run was in before this size.
    """

    def __init__(
        self, looks: Iterable[Look], nodes: int, floors: Mapping[str, float] | None = None, before: str | None = None
    ) -> None:
        known = tuple(looks)
        self.phases = tuple(dict.fromkeys(each.phase for each in known))
        self._tolerances = tolerances(known, floors or {})
        self._looks = {phase: _nearest([each for each in known if each.phase == phase], nodes) for phase in self.phases}
        self._nodes = nodes
        self._learnt: dict[str, _Moments] = {}
        even = 1 / max(1, len(self.phases))
        self._belief = dict.fromkeys(self.phases, even)
        if before in self._belief and len(self.phases) > 1:
            rest = (1 - CARRIED) / (len(self.phases) - 1)
            self._belief = {phase: CARRIED if phase == before else rest for phase in self.phases}
        self.now = Recognised(before, CARRIED) if before in self._belief else Recognised(None, 0.0)
        self.samples = 0
        self._recent: deque[Mapping[str, float]] = deque(maxlen=CONFIRM)
        self._likeliest: str | None = None
        self._candidate: str | None = None
        self._run, self._begun, self._likely = 0, 0.0, 0.0

    def take(self, time: float, sample: Mapping[str, float], expected: str | None = None) -> Recognised:
        """Take a sample, and return the phase.

        Parameters
        ----------
        time
            Seconds, ascending.
        sample
            By signal; unknown ones left out or NaN.
        expected
            The phase that earlier runs had at this step.
        """
        known = {name: value for name, value in sample.items() if math.isfinite(value)}
        if not self.phases or not known:
            return self.now
        self.samples += 1
        self._weigh(known, expected)
        likeliest = max(self.phases, key=lambda phase: self._belief[phase])
        if likeliest != self._likeliest:
            self._likeliest, self._likely = likeliest, time
            self._recent.clear()
        self._recent.append(known)
        self._settle(time, likeliest if self._is_like(likeliest) else None)
        if self.now.confirmed and self.now.phase is not None and self._candidate == self.now.phase:
            self._learn(self.now.phase, known)
        return self.now

    def _weigh(self, sample: Mapping[str, float], expected: str | None) -> None:
        """One step of the forward algorithm."""
        others = max(1, len(self.phases) - 1)
        moved = dict.fromkeys(self.phases, 0.0)
        for source, weight in self._belief.items():
            to = {phase: _SWITCH / others for phase in self.phases if phase != source}
            if expected in to:
                to[str(expected)] = max(to[str(expected)], _EXPECTED)
            for phase, share in to.items():
                moved[phase] += weight * share
            moved[source] += weight * (1 - math.fsum(to.values()))
        says = self._evidence(sample)
        most = max(says.values())
        belief = {phase: moved[phase] * math.exp(max(-_BOUND, _TEMPER * (says[phase] - most))) for phase in self.phases}
        total = math.fsum(belief.values())
        self._belief = {phase: each / total for phase, each in belief.items()}

    def _evidence(self, sample: Mapping[str, float]) -> dict[str, float]:
        """Return the logarithm of the sample's density in each phase, up to what they share."""
        looks = {phase: self._look(phase) for phase in self.phases}
        names = [name for name in sample if all(self._speaks(look, name) for look in looks.values())]
        found = {}
        for phase, look in looks.items():
            wide = 1.0 if look.nodes == self._nodes else _ELSEWHERE
            total = 0.0
            for name in names:
                scatter = wide * max(look.spread[name], self._tolerances[name].floor / 2, 1e-12)
                away = (sample[name] - look.mean[name]) / scatter
                total -= math.log(scatter) + (_FREEDOM + 1) / 2 * math.log1p(away**2 / _FREEDOM)
            found[phase] = total
        return found

    def _speaks(self, look: Look, name: str) -> bool:
        return name in look.mean and (look.nodes == self._nodes or name not in BY_SIZE)

    def _is_like(self, phase: str) -> bool:
        """Whether the latest samples are like this phase in every signal that tells what a program does."""
        look = self._look(phase)
        there = look.nodes == self._nodes
        for name in look.mean:
            values = [each[name] for each in self._recent if name in each]
            if not values or not self._speaks(look, name):
                continue
            apart = abs(median(values) - look.mean[name])
            if apart > self._tolerances[name].likeness(look.spread[name], len(values), elsewhere=not there):
                return False
        return True

    def _settle(self, time: float, candidate: str | None) -> None:
        """Say another phase once it has been the likeliest for long enough."""
        if candidate != self._candidate or self._run == 0:
            self._candidate, self._run, self._begun = candidate, 0, time
        self._run += 1
        confidence = self._belief[candidate] if candidate is not None else 0.0
        now = self.now
        if candidate is not None and candidate == now.phase and now.confirmed:
            self.now = replace(now, confidence=confidence)
        elif candidate is not None and self._run >= CONFIRM and confidence >= SURE:
            self.now = Recognised(candidate, confidence, self._likely, True)
        elif candidate is None and self._run >= DOUBT:
            self.now = Recognised(None, 0.0, self._begun, True)
        elif now.phase is not None and now.confirmed:
            self.now = replace(now, confidence=min(now.confidence, self._belief[now.phase]))

    def _look(self, phase: str) -> Look:
        found = self._looks[phase]
        own = self._learnt.get(phase)
        return own.look(phase, self._nodes) if own is not None and own.count >= _LEARN else found

    def _learn(self, phase: str, sample: Mapping[str, float]) -> None:
        """Learn what a phase looks like at a size at which nobody saw it."""
        if self._looks[phase].nodes != self._nodes:
            known = {name: value for name, value in sample.items() if name in self._tolerances}
            self._learnt.setdefault(phase, _Moments()).add(known)

    @property
    def learnt(self) -> tuple[Look, ...]:
        """What phases look like at this size, of those that nobody saw at it before."""
        return tuple(
            each.look(phase, self._nodes) for phase, each in self._learnt.items() if each.count >= _LEARN
        )


class _Moments:
    """Mean and scatter of samples as they come (B. P. Welford 1962)."""

    def __init__(self) -> None:
        self.count = 0
        self._each: dict[str, tuple[int, float, float]] = {}

    def add(self, sample: Mapping[str, float]) -> None:
        self.count += 1
        for name, value in sample.items():
            count, mean, square = self._each.get(name, (0, 0.0, 0.0))
            count += 1
            off = value - mean
            mean += off / count
            self._each[name] = (count, mean, square + off * (value - mean))

    def look(self, phase: str, nodes: int) -> Look:
        mean = {name: each[1] for name, each in self._each.items()}
        spread = {name: math.sqrt(each[2] / max(1, each[0] - 1)) for name, each in self._each.items()}
        return Look(phase, nodes, mean, spread, self.count)


def _nearest(looks: Sequence[Look], nodes: int) -> Look:
    return min(looks, key=lambda each: (abs(math.log(each.nodes / nodes)), -each.samples))
