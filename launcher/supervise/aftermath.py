"""What follows when the ranks have ended: another generation here, a handover, or the end.

Each cause has its own account. Crashes and hangs use up ``--max-restarts``; a change of size, the time limit,
preemption, a requeue and a lost node do not. Fast failures in a row, whatever the budget, stop the run.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass

from ...resize import words
from ..engines.engine import Ending, EngineError
from ..run.history import CRASHED
from . import exits
from .application import Application
from .changes import Changes
from .hooks import reached
from .outcome import Outcome
from .plan import Plan
from .release import Release

FAST = 60.0
"""A generation that fails in that time without a step is a fast failure."""
FAST_FAILURES = 3
PAUSE = 10.0
"""Seconds between the second of several fast failures and the next start: what is broken may be noticed by then."""
START_PAUSE = 2.0
START_PAUSE_MOST = 60.0
"""Seconds between two tries to start ranks through a scheduler, doubled from the first to the second."""
FIRST_TRIES = 2
"""Of a program that never reported: that it was MPI which died, and not the program's own abort, is a guess."""
START_TRIES = 5
"""While it answers; after that it counts as a crash."""
SECONDS_OF_SILENCE = 15.0
"""A node that does not answer for so long counts as lost, though the scheduler may wait for minutes yet."""
SECONDS_UNTIL_ENDED = 600.0
"""A job that is said to be ended, but is not in that time, won't be."""


@dataclass(frozen=True)
class Next:
    """The generation that follows here."""

    nodes: int
    cause: str


@dataclass(frozen=True)
class End:
    """The launcher ends with this exit status."""

    status: int


class Aftermath:
    """Judges the end of each generation.

    Parameters
    ----------
    queries
        Returns how often the scheduler was asked so far.
    """

    def __init__(self, changes: Changes, queries: Callable[[], int]) -> None:
        self.changes, self.place, self.account = changes, changes.place, changes.account
        self.options, self.console, self.interrupts = changes.options, changes.console, changes.interrupts
        self.successors = changes.successors
        self.release = Release(changes)
        self._queries = queries

    def follow(self, app: Application, outcome: Outcome) -> Next | End:
        """Decide what follows."""
        plan = self.changes.plan
        if outcome.kind == "left" and app.progress is not None and app.progress.checkpoint is not None:
            last = app.progress.checkpoint
            self.account.record(
                "saved", checkpoint=last.name, step=last.step, seconds=last.seconds, bytes=last.bytes
            )
        reached("left", self.account.number)
        stopping = plan is not None and plan.kind == "stop"
        if outcome.kind == "finished" or (outcome.kind == "rigid" and not stopping):
            return self._end_of_program(app, outcome)
        if stopping:
            return self._stopped(app, outcome)
        if outcome.kind == "refused":
            self._ended(app, "failed", outcome)
            self.successors.cancel("the run has failed")
            self.console.warn(f"not started again, since it would fail again: {outcome.text}")
            return End(outcome.exit)
        failed = outcome.kind in ("crashed", "not started")
        if plan is None or failed:
            ending = self.changes.ending()
            if ending != "none":
                return self._after_scheduler(app, outcome, ending, plan)
        if failed:
            return self._after_crash(app, plan, outcome)
        if plan is None:
            self._ended(app, "left", outcome)
            self.console.say("the application left by itself: starting it again")
            return self._hand_over(app) if self.successors.arrived() else Next(app.nodes, "restart")
        self._ended(app, plan.why, outcome)
        if plan.kind == "requeue":
            return self._wait_for_end()
        if plan.kind in ("handover", "leave") or self.successors.arrived():
            return self._hand_over(app)
        return Next(plan.nodes, plan.why)

    # -- ends

    def _end_of_program(self, app: Application, outcome: Outcome) -> End:
        self._ended(app, "finished" if outcome.exit == 0 else "failed", outcome)
        self.successors.cancel("the run has finished")
        self.changes.failed("the run has finished")
        if outcome.kind == "finished":
            self.console.say("finished")
        else:
            say = self.console.detail if self.options.rigid and outcome.exit == 0 else self.console.warn
            say(f"{outcome.text}, so it was run as it is, at one size")
        return End(outcome.exit)

    def _stopped(self, app: Application, outcome: Outcome) -> End:
        self._ended(app, "stopped", outcome)
        saved = "" if outcome.kind == "left" else f"; {outcome.text}"
        self.console.warn(f"stopped{saved}; continue with: dmr resume {self.account.run.folder}")
        return End(exits.of_signal(self.interrupts.signal) if self.interrupts.count else 0)

    def _after_scheduler(self, app: Application, outcome: Outcome, ending: Ending, plan: Plan | None) -> Next | End:
        """The scheduler ends this job, and the ranks knew before the launcher."""
        if ending in ("cancelled", "unknown"):
            self.account.record("stopping", by="scheduler")
            self.successors.cancel("the run's job was cancelled")
            return self._stopped(app, outcome)
        why = "time limit" if ending == "limit" else "preempted"
        self._ended(app, plan.why if plan is not None and outcome.kind == "left" else why, outcome)
        self.console.warn(f"the scheduler ends this job: {why}")
        if ending == "requeued":
            return self._wait_for_end()
        if self.successors.current is None:
            self.changes.queueing.instead(app, why)
        return self._hand_over(app)

    def _wait_for_end(self) -> Next | End:
        """Stay until the job is ended and requeued: what comes after dmr-launch in its script must not run."""
        self.console.say("the scheduler starts this job again")
        until = time.monotonic() + SECONDS_UNTIL_ENDED
        while not self.interrupts.count:
            if time.monotonic() > until:
                return End(exits.UNFINISHED)
            time.sleep(0.1)
        if self.changes.ending() == "preempted":  # not requeued, as it turns out
            self.changes.queueing.instead(None, "preempted")
            self._hand_over(None)
        return End(exits.of_signal(self.interrupts.signal))

    # -- crashes

    def _after_crash(self, app: Application, plan: Plan | None, outcome: Outcome) -> Next | End:
        if (pause := self._start_again_in(app, outcome)) is not None:
            return self._not_started(app, outcome, pause)
        if outcome.kind == "not started" and not self._spoke_before:
            return self._never_started(app, outcome)
        lost = self._lose()
        self._ended(app, "node lost" if lost else "hung" if app.hung else "crashed", outcome)
        self.console.warn(f"generation {self.account.number} failed: {outcome.text}")
        if (reason := self._give_up()) is not None:
            self.successors.cancel("the run has failed")
            self._ended(app, "failed", outcome)
            again = f"dmr resume {self.account.run.folder}"
            self.console.warn(f"giving up: {reason}; to go on from the last checkpoint, if there is one: {again}")
            return End(exits.FAILED)
        if self.successors.arrived() or (plan is not None and plan.kind == "leave"):
            return self._hand_over(app)
        if self._fast_failures() == FAST_FAILURES - 1:
            self._pause(PAUSE)
            self._lose()
        try:
            nodes = self.place.largest(app.nodes)
        except EngineError as error:
            self.console.warn(f"too few nodes are left here: {error}")
            self.changes.queueing.instead(app, "node lost")
            return self._hand_over(app)
        return Next(nodes, "restart")

    @property
    def _spoke_before(self) -> bool:
        return any(each.first_step is not None for each in self.account.history.generations)

    def _start_again_in(self, app: Application, outcome: Outcome) -> float | None:
        """Return the seconds to wait when the ranks did not come up, None when that is no excuse.

        A scheduler that was away, or has not noted yet that the ranks before are gone, refuses to start new ones; and
        an MPI may die while it starts.
        """
        if app.progress is not None or app.hung:
            return None
        if outcome.kind != "not started" and (self.place.job is None or not self._spoke_before):
            return None
        if self.account.run.read_failure(self.account.number) is not None:
            return None
        if self.account.number >= self.options.max_generations:
            return None
        tries = self._tries()
        if self.place.engine.ending() == "unknown":
            return min(START_PAUSE_MOST, START_PAUSE * 2**tries)
        most = START_TRIES if self._spoke_before else FIRST_TRIES
        return min(START_PAUSE_MOST, START_PAUSE * 2**tries) if tries < most else None

    def _tries(self) -> int:
        """Return how many generations before the last one did not start, in a row."""
        before = reversed(self.account.history.generations[:-1])
        return len(list(itertools.takewhile(lambda each: each.why == "not started", before)))

    def _not_started(self, app: Application, outcome: Outcome, pause: float) -> Next | End:
        self._ended(app, "not started", outcome)
        self.console.warn(f"the ranks did not start: {outcome.text}; trying again in {pause:.0f} s")
        self._pause(pause)
        if self.changes.told_to_end:
            ending = self.changes.ending()
            if ending in ("limit", "preempted", "requeued"):
                return self._after_scheduler(app, outcome, ending, None)
            self.account.record("stopping", by="signal")
            return self._stopped(app, outcome)
        self._lose()
        try:
            return Next(self.place.largest(app.nodes), "restart")
        except EngineError:
            self.changes.queueing.instead(app, "node lost")
            return self._hand_over(app)

    def _never_started(self, app: Application, outcome: Outcome) -> End:
        starts = self._tries() + 1
        self._ended(app, "failed", outcome)
        self.successors.cancel("the run has failed")
        self.console.warn(f"giving up after {starts} starts: {outcome.text}")
        return End(outcome.exit)

    def _lose(self) -> bool:
        """Take note of lost nodes; one that is silent has some time to answer, as after a restart of the scheduler."""
        until = time.monotonic() + SECONDS_OF_SILENCE
        while time.monotonic() < until and not self.changes.told_to_end and self.place.silent():
            self._pause(1.0)
        return self.place.lose()

    def _give_up(self) -> str | None:
        crashes, fast = self.account.history.crashes, self._fast_failures()
        if fast >= FAST_FAILURES:
            return f"{words.count(fast, 'generation')} in a row failed within {FAST:.0f} s without a step"
        if crashes > self.options.max_restarts:
            return f"it has failed {crashes} times (--max-restarts {self.options.max_restarts})"
        if self.account.number >= self.options.max_generations:
            return f"it has had {words.count(self.account.number, 'generation')} (--max-generations)"
        return None

    def _fast_failures(self) -> int:
        count = 0
        for each in reversed(self.account.history.generations):
            took = (each.end or each.start) - each.start
            if each.why not in CRASHED or took > FAST or (each.steps or 0) > 0:
                break
            count += 1
        return count

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.changes.told_to_end:
            self.account.beat(0, self.successors.current, self._queries())
            time.sleep(0.1)

    # -- handover

    def _hand_over(self, app: Application | None) -> Next | End:
        """Release the run to the successor; goes on here when that does not come after all."""
        status = self.release.hand_over()
        if status is not None:
            return End(status)
        if self.changes.told_to_end:
            self.account.record("stopping", by="signal")
            self.successors.cancel("the run was stopped by a signal")
            return End(exits.of_signal(self.interrupts.signal))
        return Next(app.nodes, "restart") if app is not None else End(exits.UNFINISHED)

    def _ended(self, app: Application, why: str, outcome: Outcome) -> None:
        self.account.record(
            "ended", why=why, exit=outcome.exit, step=app.step, first_step=app.first_step, text=outcome.text,
            seconds_per_step=app.seconds_per_step, rates=app.rates(), queries=self._queries(),
        )  # fmt: skip
        self.account.reread()
        reached("ended", self.account.number)
