"""Which phase a program that declares none is in, while it runs."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from ...resize.phases.looks import Look
from ...resize.phases.online import Recognised, Recogniser
from ..timeline.signals import FLOORS
from .live import LiveSignals

SILENCE = 45.0
"""Seconds without a sample after which nothing is told by what the nodes do."""
STARTING = 4.0
"""Seconds after the first step in which there is no sample yet of the phase that it begins with."""
REMEMBERED = 600
"""Reports of the program that are remembered, for the step at which a phase began."""


class Recognition:
    """Watches one generation.

    Parameters
    ----------
    folder, generation, nodes
        ``telemetry/`` of the run, which generation, and its size.
    looks
        What the phases of earlier runs look like.
    began
        When it began to compute.
    before
        The phase that it was in before the change of size.
    expected
        Returns the phase that earlier runs had at a step.
    """

    def __init__(
        self,
        folder: Path,
        generation: int,
        nodes: int,
        looks: Sequence[Look],
        began: float,
        *,
        before: str | None = None,
        expected: Callable[[int], str | None] = lambda step: None,
    ) -> None:
        self.generation = generation
        self._signals = LiveSignals(folder, generation, nodes)
        self._recogniser = Recogniser(looks, nodes, FLOORS, before)
        self._expected = expected
        self._heard = self._began = began
        self._steps: deque[tuple[float, int]] = deque(maxlen=REMEMBERED)
        self._starts: list[float] = []
        self._names: list[str | None] = []

    @property
    def learnt(self) -> tuple[Look, ...]:
        return self._recogniser.learnt

    def turn(self, now: float, step: int, running: bool) -> bool:
        """Look at what is new; True when another phase is said.

        Parameters
        ----------
        running
            Whether the program computes: what it does while it saves is no phase.
        """
        if not self._steps or step > self._steps[-1][1]:
            self._steps.append((now, step))
        said = self._recogniser.now
        for time, sample in self._signals.new(now):
            self._heard = max(self._heard, now)
            # The first second lies in part before the first step.
            if running and time > self._began + 1.0:
                self._recogniser.take(time, sample, self._expected(step))
        after = self._recogniser.now
        if (after.phase, after.confirmed) == (said.phase, said.confirmed):
            return False
        self._names.append(after.phase)
        since = after.since if after.since is not None else now
        first = not self._starts and since - self._began < STARTING
        self._starts.append(self._began if first else since)
        return True

    def state(self, now: float) -> Recognised | None:
        """Return what is known; None where no samples come, so that nothing can be."""
        if now - self._heard > SILENCE:
            return None
        return self._recogniser.now

    @property
    def since_step(self) -> int | None:
        """The step at which the present phase began, as far as known."""
        since = self._recogniser.now.since
        if since is None or not self._steps:
            return None
        place = bisect_right(self._steps, since, key=lambda each: each[0])
        return self._steps[max(0, place - 1)][1]

    def at(self, time: float) -> str | None:
        """Return the phase that was on at a time, None where that is not known."""
        place = bisect_right(self._starts, time)
        return self._names[place - 1] if place else None
