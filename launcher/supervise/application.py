"""The running ranks of one generation, as the supervisor sees them."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ..engines.engine import Ranks
from ..run.rundir import Action, Control, Progress, RunDir
from ..run.sign import ended, given
from .awake import AwakeClock
from .outcome import Outcome, judge
from .patience import START_LEAST, hang_patience

SETTLED = 15.0
"""Seconds after which a recognised phase is not corrected any more."""
STEPS_IN_GRACE = 3
"""A safe point may be this many steps away when a request comes."""
SECONDS_TO_EXIT = 60.0
"""Ranks that said they were done, or have saved and leave, are ended after that."""
SAVING_FACTOR = 5
"""A save that has begun gets this many times the grace before the ranks are killed in it."""


@dataclass
class _Measured:
    """Seconds and steps of one phase."""

    seconds: float = 0.0
    steps: int = 0


class Application:
    """One generation's ranks: their progress, what is asked of them, and the end of their patience.

    Parameters
    ----------
    run, number, token
        The run and the generation.
    ranks
        What the engine started.
    grace
        Seconds that a request may take before the ranks are killed.
    next_id
        Returns the id of the next request.
    clock, awake
        Time of day, and the clock of patience (see `.awake`).
    """

    def __init__(
        self,
        run: RunDir,
        number: int,
        token: str,
        nodes: int,
        ranks: Ranks,
        *,
        grace: float,
        next_id: Callable[[], int],
        clock: Callable[[], float] = time.time,
        awake: Callable[[], float] | None = None,
    ) -> None:
        self.run, self.number, self.token, self.nodes = run, number, token, nodes
        self.ranks, self.grace = ranks, grace
        self.launched = clock()
        self.progress: Progress | None = None
        self.control: Control | None = None
        self.first_step: int | None = None
        self.computing_since: float | None = None
        self.killed: str | None = None
        self.hung = False
        self._next_id, self._clock = next_id, clock
        self._awake = awake or AwakeClock()
        self._deadline: float | None = None
        self._extended = False
        self._patient = False
        self.late = False
        """Whether a patient request waits longer than it should have."""
        self._failed_at: float | None = None
        self._done_at: float | None = None
        self._stamp: tuple[int, int] | None = None
        self._reported = self._started = self._awake()
        self._reports = 0
        self._longest = 0.0
        self._measured: dict[str | None, _Measured] = {}
        self.phase_at: Callable[[float], str | None] | None = None
        """Returns the phase at a time of a program that declares none, as it was recognised."""
        self._undeclared: deque[tuple[float, float, int]] = deque()

    # -- what they report

    def look(self) -> bool:
        """Read the progress if it changed; True when there is something new from this generation."""
        try:
            found = os.stat(self.run.folder / "progress.json")
        except OSError:
            return False
        stamp = (found.st_mtime_ns, found.st_ino)
        if stamp == self._stamp:
            return False
        try:
            progress = self.run.read_progress()
        except OSError:
            return False
        self._stamp = stamp
        if progress is None or (progress.generation, progress.token) != (self.number, self.token):
            return False
        self._take(progress)
        return True

    def _take(self, progress: Progress) -> None:
        before, self.progress = self.progress, progress
        moment = self._awake()
        if before is not None and before.state == progress.state == "running":
            self._reports += 1
            self._longest = max(self._longest, moment - self._reported)
        self._reported = moment
        if self.first_step is None and progress.state != "starting":
            self.first_step = progress.loaded.step if progress.loaded else 0
            self.computing_since = self._clock()
        if before is not None and progress.seconds_per_step is not None and progress.step > before.step:
            steps = progress.step - before.step
            seconds = progress.seconds_per_step * steps
            if progress.phase is None and self.phase_at is not None:
                self._undeclared.append((self._clock(), seconds, steps))
                self._settle(self._clock() - SETTLED)
            else:
                self._count(progress.phase, seconds, steps)

    def _count(self, phase: str | None, seconds: float, steps: int) -> None:
        measured = self._measured.setdefault(phase, _Measured())
        measured.seconds += seconds
        measured.steps += steps

    def _settle(self, until: float) -> None:
        """Count steps of a program that declares no phases for the one that was recognised at their time.

        That is known some seconds later.
        """
        while self._undeclared and self._undeclared[0][0] <= until:
            moment, seconds, steps = self._undeclared.popleft()
            self._count(self.phase_at(moment) if self.phase_at is not None else None, seconds, steps)

    @property
    def step(self) -> int | None:
        return self.progress.step if self.progress is not None else None

    @property
    def computing(self) -> bool:
        """Whether it takes part in the protocol and has begun to compute."""
        return self.progress is not None and self.progress.state in ("running", "saving")

    def rates(self) -> list[tuple[str | None, float, int]]:
        """Return (phase, seconds a step, steps) as measured in this generation."""
        found = {phase: [each.seconds, float(each.steps)] for phase, each in self._measured.items()}
        for moment, seconds, steps in self._undeclared:
            entry = found.setdefault(self.phase_at(moment) if self.phase_at is not None else None, [0.0, 0.0])
            entry[0] += seconds
            entry[1] += steps
        return [(phase, seconds / steps, int(steps)) for phase, (seconds, steps) in found.items() if steps]

    @property
    def seconds_per_step(self) -> float | None:
        """Mean over this generation, None when nothing was measured."""
        rates = self.rates()
        seconds = sum(per_step * count for _, per_step, count in rates)
        steps = sum(count for _, _, count in rates)
        return seconds / steps if steps else None

    # -- what is asked of them

    def ask(
        self,
        action: Action,
        *,
        nodes: int | None = None,
        reason: str = "",
        within: float | None = None,
        here: bool = False,
        patient: bool = False,
    ) -> Control:
        """Write a request; the ranks are killed when they have not left in time.

        Parameters
        ----------
        within
            Seconds until then; default: the grace, or some steps and saves where these take longer.
        here
            Whether the next generation starts on the same node.
        patient
            Whether it can wait until the step ends that the ranks are in, however long that takes: they are killed only
            when they have begun to save and don't come to an end with it.

        Raises
        ------
        OSError
            When the request can't be written; nothing has changed then.
        """
        seconds = self.patience() if within is None else within
        control = Control(self._next_id(), self.number, action, nodes, self._clock() + seconds, reason, here)
        self.run.write_control(control)
        self.control = control
        self._deadline = None if action == "checkpoint" else self._awake() + seconds
        self._extended, self._patient, self.late = within is not None, patient, False
        return self.control

    def end_within(self, seconds: float, why: str) -> None:
        """Tell ranks that take no requests to end, and kill them when they have not in time."""
        self.killed = self.killed or why
        self._deadline, self._extended = self._awake() + seconds, True
        self.ranks.terminate()

    def patience(self) -> float:
        """Return the seconds that a request may take."""
        return max(self.grace, STEPS_IN_GRACE * (self.seconds_per_step or 0.0) + 2 * self.save_seconds())

    def save_seconds(self) -> float:
        """Return what the last save, or else the load, took; with a fast folder, what a save beyond it may take."""
        progress = self.progress
        last = (progress.checkpoint or progress.loaded) if progress else None
        return max(last.seconds, progress.drain_seconds) if progress and last else 0.0

    @property
    def leaving(self) -> bool:
        """Whether it was asked to leave."""
        return self._deadline is not None

    @property
    def _begun_to_serve(self) -> bool:
        progress, control = self.progress, self.control
        if progress is None or control is None:
            return False
        return progress.acknowledged >= control.id or progress.state != "running"

    @property
    def save_failed(self) -> bool:
        """Whether it could not serve the request, said so, and goes on."""
        return (
            self.leaving
            and self.control is not None
            and self.progress is not None
            and self.progress.acknowledged >= self.control.id
            and self.progress.state == "running"
            and self.progress.error is not None
        )

    def forget_request(self) -> None:
        """Go on after a request that could not be served."""
        self._deadline, self.late = None, False

    # -- their end

    def silent_at_start(self, spoke_before: bool, allowed: float) -> float | None:
        """Return the seconds in which nothing came from ranks that were started, when that is too long, else None.

        Parameters
        ----------
        spoke_before
            Whether the program reported in an earlier generation. Where it did not, and no rank has given its sign
            (see `.sign`), it may be one that never reports.
        allowed
            Seconds that a start may take; 0 for no bound.
        """
        silent = self._awake() - self._reported
        if self.progress is not None or not allowed or silent <= allowed:
            return None
        return silent if spoke_before or self.signed else None

    @property
    def signed(self) -> bool:
        """Whether a rank has come as far as ``import dmr``, and none has ended in an orderly way before it reported."""
        return given(self.run.folder, self.number, self.token)

    def hung_for(self, hang_after: float | None) -> float | None:
        """Return the seconds without progress of a program that has reported, when that is too long, else None.

        Parameters
        ----------
        hang_after
            What the user allows; None to learn it from the program's reports, 0 for no bound.
        """
        if self.progress is None or self.progress.state not in ("running", "saving", "starting"):
            return None
        if self.progress.state == "starting" and hang_after:
            hang_after = max(START_LEAST, hang_after)
        saving = self.save_seconds() if self.progress.state == "saving" else None
        allowed = hang_patience(hang_after, self._reports, self._longest, saving)
        silent = self._awake() - self._reported
        return silent if allowed and silent > allowed else None

    def watch_deadlines(self, after_failure: float) -> None:
        """Kill the ranks that are past a deadline: of a request, or after the first failure of one of them."""
        now = self._awake()
        if self._failed_at is None:
            if os.path.exists(self.run.folder / "failure" / f"{self.number:04d}.json"):
                self._failed_at = now
        elif now > self._failed_at + after_failure:
            self.kill(f"ranks were still there {after_failure:.0f} s after the first failure")
            return
        if self.progress is not None and self.progress.state in ("finished", "leaving"):
            self._done_at = self._done_at or now
            if now > self._done_at + SECONDS_TO_EXIT:
                self.kill("the ranks did not end after their work was done")
            return
        if self._deadline is None or now <= self._deadline:
            return
        if self._patient and not self._begun_to_serve:
            self.late = True
            return
        if not self._extended and self.progress is not None and self.progress.state == "saving":
            self._extended = True
            self._deadline = now + (SAVING_FACTOR - 1) * self.grace
            return
        self.kill("the ranks did not save and leave in time")

    def kill(self, why: str) -> None:
        """End all ranks, and wait until they are gone."""
        if self.ranks.poll() is None:
            self.killed = self.killed or why
            self.ranks.kill()

    def outcome(self, exit: int, spoke_before: bool) -> Outcome:
        """Judge their end."""
        self._stamp = None
        self.look()
        failure = self.run.read_failure(self.number)
        starting = self._awake() - self._started <= START_LEAST and self.signed
        asked = self.control if self.leaving else None
        itself = ended(self.run.folder, self.number, self.token)
        return judge(exit, self.progress, asked, failure, self.killed, spoke_before, starting, itself)
