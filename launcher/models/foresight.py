"""What earlier runs of the program taught, for the decisions about this one; and the phases that it had so far.

Read once, when the first decision is made. Where there is nothing to read, or it can't be read, decisions are made
without.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from ...resize.phases.knowledge import Entry, Occurrence
from ...resize.phases.looks import Look
from ...resize.phases.online import SURE, Recognised
from ...resize.phases.turns import repeated
from ...resize.samples import scaled
from ...resize.view import Ahead, Rate, RunView
from ..run.history import History
from ..run.options import RunOptions
from ..run.rundir import RunDir
from ..telemetry.sampler import machine_name
from .key import key_for
from .store import ModelStore

NOT_SURE = 0.99 * SURE
"""The most confidence in a phase that too few samples were seen of."""


class Foresight:
    """What is known of the program.

    Parameters
    ----------
    run, options
        The run, and what it was asked to be.
    """

    def __init__(
        self,
        run: RunDir,
        options: RunOptions,
        *,
        store: ModelStore | None = None,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        events: list[dict[str, Any]] = []
        with contextlib.suppress(OSError):
            events = run.events()
        key = key_for(options.command, options.machine or machine_name(environ), events, options.input_class)
        self._key = key
        book, damaged = (store or ModelStore.default()).read(key.program)
        found = book.nearest(key)
        self.entry: Entry | None = None
        self.caveats: tuple[str, ...] = tuple(f"passed over: {each}" for each in damaged)
        if found is not None:
            self.entry, why = found
            self.caveats += why
        self._order: list[Occurrence] = []
        for event in events:
            if event.get("event") in ("phase", "recognised"):
                self.note(event.get("phase"), int(event.get("step", 0)))

    def note(self, phase: str | None, step: int) -> None:
        """Take note of the phase that the program is in."""
        last = self._order[-1] if self._order else None
        if last is not None and step >= last.start:
            self._order[-1] = dataclasses.replace(last, end=max(last.start, step))
        if phase is None or (last is not None and (last.phase == phase or step < last.start)):
            return
        self._order.append(Occurrence(phase, step, step))

    @property
    def since(self) -> int | None:
        """Step at which the present phase began, as far as known."""
        return self._order[-1].start if self._order else None

    @property
    def last(self) -> str | None:
        """The phase that was on last, None where none was."""
        return self._order[-1].phase if self._order else None

    def ahead(self, step: int, steps: int | None, phase: str | None) -> tuple[Ahead, ...]:
        """Return the present phase and those to come: as this run repeats itself, else as earlier runs had them."""
        found: tuple[Ahead, ...] = ()
        if phase is not None and self._order and self._order[-1].phase == phase and steps is not None:
            found = repeated(self._order, step, steps)
        if not found and self.entry is not None:
            found = self.entry.outlook(step, phase, self._clock(), self.since)
        if steps is None:
            return found
        return tuple(dataclasses.replace(each, end=min(each.end, steps)) for each in found if each.start < steps)

    def looks(self) -> tuple[Look, ...]:
        """Return what the phases that nobody declares look like."""
        return self.entry.looks(self._clock()) if self.entry is not None else ()

    def completed(self, view: RunView, history: History, recognised: Recognised | None = None) -> RunView:
        """Return the view with what is known from before.

        Parameters
        ----------
        recognised
            The phase of a program that declares none, as far as somebody looks.
        """
        if view.phase is not None or recognised is None:
            self.note(view.phase, view.step)
        else:
            phase, confidence = recognised.phase, recognised.confidence
            if not recognised.confirmed:  # as it was before the change of size, or as earlier runs were at this step
                phase = phase or next((each.phase for each in self.ahead(view.step, view.steps, None)), None)
                confidence = min(confidence, NOT_SURE)
            view = dataclasses.replace(view, phase=phase, phase_confidence=confidence)
        unlike = view.phase is None and view.phase_confidence is not None
        ahead = () if unlike else self.ahead(view.step, view.steps, view.phase)
        first = history.generations[0] if history.generations else None
        fields: dict[str, Any] = {
            "ahead": ahead,
            "caveats": self.caveats,
            "first_nodes": first.nodes if first is not None else None,
            "started": view.started if view.started is not None else first.start if first is not None else None,
        }
        if view.phase is None and ahead:
            fields["phase"] = ahead[0].phase  # nobody declared it: as earlier runs were found to be
        if self.entry is not None:
            fields["earlier"] = view.earlier or self._earlier(view)
            fields["waits"] = view.waits or tuple(each for run in self.entry.runs for each in run.waits)
            fields["resize_costs"] = view.resize_costs or tuple(each for run in self.entry.runs for each in run.costs)
        return dataclasses.replace(view, **fields)

    def _earlier(self, view: RunView) -> tuple[Rate, ...]:
        """Return the speeds that earlier runs measured, as far as they say something of this one's.

        How long a step of another input takes says nothing; on another machine, only beside what was measured here.
        """
        assert self.entry is not None
        if self.entry.key.input != self._key.input:
            return ()
        same = self.entry.key.machine == self._key.machine
        return self.entry.rates() if same else scaled(view.rates, self.entry.rates())
