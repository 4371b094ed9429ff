"""Stands in for the application's end of the run directory, for a program that knows nothing of it.

Each turn it reads the log, looks for restart files, records those that are complete, and does what ``control.json``
asks: asks the program for a checkpoint, waits until one is complete, and ends the ranks. It is driven by the launcher's
own loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...resize import words
from ..engines.engine import EngineError, Ranks
from ..run.rundir import Control, RunDir
from ..supervise.console import Console
from .ask import Ask
from .catalogue import Catalogue, Record
from .description import Foreign
from .log import Log
from .report import Report, saved
from .scan import Complete, Completeness
from .sealing import Sealed, Sealer

LOOK = 1.0
"""Seconds between two looks at log and files."""
LOOK_CLOSELY = 0.2
"""The same while a checkpoint is waited for."""
ASK_AGAIN = 10.0
"""Seconds after which a request that failed is tried again, while there is time."""
MARGIN = 0.1
"""What is left of the time of a request when the newest complete checkpoint has to do, as a part of that time."""
MOST_MARGIN = 10.0
SECONDS_TO_END = 10.0
"""Ranks that were told to end are killed after that."""
MUTE = 60.0
"""A log that tells of no step in that time is spoken of."""


@dataclass
class _Wanted:
    """A checkpoint that was asked for, by the launcher or at the user's interval."""

    since: float
    """`time.monotonic`"""
    control: Control | None = None
    limit: float | None = None
    """`time.monotonic` at which the newest complete checkpoint has to do."""
    asked: bool = False
    again: float = 0.0
    problem: str | None = None

    @property
    def leaving(self) -> bool:
        return self.control is not None and self.control.action != "checkpoint"


@dataclass
class Interval:
    """How often the user wants a checkpoint, in seconds or steps; None for never."""

    seconds: float | None = None
    steps: int | None = None
    since: float = 0.0
    since_step: int = 0

    def due(self, step: int) -> bool:
        if self.seconds is not None:
            return time.monotonic() - self.since >= self.seconds
        return self.steps is not None and step - self.since_step >= self.steps

    def restart(self, step: int) -> None:
        self.since, self.since_step = time.monotonic(), step


class Monitor:
    """Watches one generation of a program.

    Parameters
    ----------
    values
        What variables in braces stand for in a request.
    keep
        Complete checkpoints to keep, where they are copied or deleted.
    """

    def __init__(
        self,
        app: Foreign,
        run: RunDir,
        generation: int,
        ranks: Ranks,
        ask: Ask,
        log: Log,
        completeness: Completeness,
        catalogue: Catalogue,
        sealer: Sealer,
        report: Report,
        console: Console,
        *,
        interval: Interval,
        values: Callable[[], Mapping[str, str]],
        keep: int,
    ) -> None:
        self._app, self._run, self._generation, self._ranks = app, run, generation, ranks
        self._ask, self._log, self._completeness = ask, log, completeness
        self._catalogue, self._sealer, self._report, self._console = catalogue, sealer, report, console
        self._interval, self._values, self._keep = interval, values, keep
        self._wanted: _Wanted | None = None
        self._began = time.monotonic()
        self._looked = 0.0
        self._served = 0
        self._end_by: float | None = None
        self._ended_by_us = False
        self._last_look_done = False
        self._mute_told = False
        self._interval.restart(report.progress.step)
        report.update()

    # -- while the ranks run

    def turn(self) -> None:
        """Look and act; called often, and does little most times."""
        now = time.monotonic()
        if self._end_by is not None:
            if now > self._end_by:
                self._end_by = None
                self._ranks.kill()
            return
        self._obey()
        close = self._wanted is not None or self._sealer.busy or self._completeness.writing
        if now - self._looked < (LOOK_CLOSELY if close else LOOK):
            return
        self._looked = now
        self._listen()
        self._seal(self._completeness.look())
        self._serve(now)
        self._report.update()

    def _listen(self, *, last: bool = False) -> None:
        before = self._log.told.step
        told = self._log.look(last=last)
        if told.step != before:
            self._completeness.went_on()
        if self._report.progress.state != "leaving":  # what came after the checkpoint will be done again
            self._report.stepped(told.step, told.steps)
        for step in told.complete:
            self._completeness.said(step)
        if told.step is None and not self._mute_told and time.monotonic() - self._began > MUTE:
            self._mute_told = True
            self._console.warn(
                f"no line of {self._log.path} has matched progress.step of {self._app.source} for {MUTE:.0f} s: "
                f"until one does, or a checkpoint is complete, the size stays"
            )

    def _seal(self, complete: list[Complete]) -> None:
        if self._sealer.busy:
            if (sealed := self._sealer.done()) is not None:
                self._sealed(sealed)
            return
        if complete:
            each = complete[-1]
            for older in complete[:-1]:  # written since the last look: the newest is worth the reading
                self._completeness.take(older.found)
            step = each.found.step if each.found.step is not None else self._report.progress.step
            since = min(each.began, self._wanted.since) if self._wanted is not None else each.began
            self._sealer.begin(each, step, max(0.0, time.monotonic() - since))

    def _sealed(self, sealed: Sealed) -> None:
        if sealed.changed:
            return  # it is being written again, and will be seen at rest once more
        self._completeness.take(sealed.complete.found)
        record = sealed.record
        if record is None:
            self._report.event("checkpoint failed", step=self._report.progress.step, error=sealed.error)
            self._console.warn(f"a checkpoint can't be used: {sealed.error}")
            return
        try:
            if max(self._run.leases(), default=0) != self._generation:
                return  # another launcher has taken over: this checkpoint is none of the run's
            self._catalogue.add(record)
            self._catalogue.prune(self._keep, delete=self._app.files.delete)
        except OSError as error:
            self._console.warn(f"checkpoint {record.name} could not be recorded: {error.strerror}")
            return
        self._interval.restart(self._report.progress.step)
        told = saved(record, record.seconds)
        self._report.event(
            "checkpoint", name=record.name, step=record.step, bytes=record.bytes, seconds=record.seconds,
            files=list(record.roots),
        )  # fmt: skip
        state = "running" if self._report.progress.state in ("starting", "saving") else self._report.progress.state
        self._report.update(checkpoint=told, state_bytes=record.bytes, state=state)
        self._console.detail(f"checkpoint {record.name} is complete: {', '.join(record.roots[:3])}")
        wanted = self._wanted
        if wanted is None or (self._app.request.exits and wanted.leaving):
            return  # it says so by its end
        self._served_by(record, wanted)

    def _served_by(self, record: Record, wanted: _Wanted) -> None:
        self._wanted = None
        self._ask.withdraw()
        if wanted.control is None:
            return
        if not wanted.leaving:
            self._report.update(acknowledged=wanted.control.id, error=None)
            return
        self._leave(record, wanted.control)
        self._end_ranks()

    def _leave(self, record: Record, control: Control) -> None:
        self._served = control.id
        self._report.update(
            state="leaving", step=record.step, acknowledged=control.id, error=None,
            checkpoint=saved(record, record.seconds if record.generation == self._generation else 0.0),
        )  # fmt: skip

    def _end_ranks(self) -> None:
        self._ended_by_us = True
        self._end_by = time.monotonic() + SECONDS_TO_END
        self._ranks.terminate()

    # -- what is wanted

    def _obey(self) -> None:
        try:
            control = self._run.read_control()
        except OSError:
            return
        if control is not None and control.generation == self._generation and control.id > self._served:
            self._served = control.id
            self._take_up(control)
        elif (self._wanted is None or self._wanted.control is None) and self._interval.due(self._report.progress.step):
            self._interval.restart(self._report.progress.step)
            self._wanted = _Wanted(time.monotonic())

    def _take_up(self, control: Control) -> None:
        now = time.monotonic()
        if control.action == "checkpoint" and self._app.request.exits:
            why = f"{self._app.name} ends when it writes a checkpoint: ask for a size, or stop it"
            self._report.event("checkpoint failed", step=self._report.progress.step, error=why)
            self._report.update(acknowledged=control.id, error=why)
            self._console.warn(why)
            return
        limit = None
        if control.action != "checkpoint" and control.deadline is not None:
            left = max(0.0, control.deadline - time.time())
            limit = now + left - min(MOST_MARGIN, MARGIN * left)
        self._wanted = _Wanted(now, control, limit)

    def _serve(self, now: float) -> None:
        wanted = self._wanted
        if wanted is None:
            return
        if not wanted.asked and now >= wanted.again:
            try:
                self._ask.begin(self._values())
                wanted.asked = True
            except EngineError as error:
                self._not_asked(wanted, str(error), now)
        elif wanted.asked and (problem := self._ask.problem()) is not None:
            self._not_asked(wanted, problem, now)
        if self._wanted is wanted and wanted.asked and self._report.progress.state in ("running", "saving"):
            self._report.update(state="saving" if self._completeness.writing else "running")
        if self._wanted is wanted and wanted.limit is not None and now >= wanted.limit and not self._sealer.busy:
            self._out_of_time(wanted)

    def _not_asked(self, wanted: _Wanted, problem: str, now: float) -> None:
        wanted.asked, wanted.again = False, now + ASK_AGAIN
        if problem != wanted.problem:
            self._console.warn(f"{self._app.name} could not be asked for a checkpoint: {problem}")
            self._report.event("checkpoint failed", step=self._report.progress.step, error=problem)
        wanted.problem = problem
        if wanted.control is None or not wanted.leaving:
            self._wanted = None
            self._ask.withdraw()
            if wanted.control is not None:
                self._report.update(acknowledged=wanted.control.id, error=problem)

    def _out_of_time(self, wanted: _Wanted) -> None:
        """No checkpoint came in time: the newest complete one has to do, and some steps are done again."""
        control = wanted.control
        assert control is not None
        wanted.limit = None
        why = wanted.problem or "no complete checkpoint in the time given (--grace)"
        record = next((each for each in self._catalogue.records() if each.bad is None), None)
        if record is not None:
            lost = words.count(max(0, self._report.progress.step - record.step), "step")
            self._console.warn(f"{why}: leaving from {record.name}, some {lost} will be done again")
            self._wanted = None
            self._ask.withdraw()
            self._leave(record, control)
            self._end_ranks()
        elif control.action == "resize":
            self._wanted = None
            self._ask.withdraw()
            self._report.update(state="running", acknowledged=control.id, error=why)

    # -- after their end

    def killed(self) -> None:
        """Take note that the launcher ends the ranks: what they leave behind may be a part of a file."""
        self._ended_by_us = True

    def ended(self, exit: int) -> bool:
        """See what they left behind; False while that is not done, True when all is reported."""
        if self._sealer.busy:
            if (sealed := self._sealer.done()) is None:
                return False
            self._sealed(sealed)
        if not self._last_look_done:
            self._listen(last=True)
            complete = self._completeness.look(ended=exit == 0 and not self._ended_by_us)
            if complete and self._report.progress.state != "leaving":
                self._seal(complete)
                if self._sealer.busy:
                    return False
            self._last_look_done = True
        self._conclude(exit)
        return True

    def _conclude(self, exit: int) -> None:
        self._ask.withdraw()
        wanted, told = self._wanted, self._log.told
        if self._report.progress.state in ("leaving", "finished"):
            self._report.update()
            return
        if told.finished or (exit == 0 and self._app.progress.finished is None and not self._ended_by_us):
            self._report.update(state="finished", error=None)
        elif wanted is not None and wanted.control is not None and wanted.leaving:
            record = next((each for each in self._catalogue.records() if each.bad is None), None)
            if record is not None and record.generation == self._generation and record.time >= self._wall(wanted.since):
                self._leave(record, wanted.control)
        self._report.update()

    @staticmethod
    def _wall(moment: float) -> float:
        return time.time() - (time.monotonic() - moment)
