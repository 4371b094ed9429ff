"""The launcher's heart: observe, decide, act, account.

One loop, one thread. In each turn, some five a second, it looks at files and at its child process; the scheduler
is asked rarely and elsewhere (`.scheduler`). What is wanted of the application goes to ``control.json`` and is
kept as a `.plan.Plan`; when the ranks have left, the plan says what follows (`.changes`).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from . import exits
from .account import Account, Fenced
from .application import Application
from .changes import Changes
from .console import Console
from .engine import Engine
from .handover import Successors
from .history import CRASHED
from .hooks import reached
from .interrupts import Interrupts
from .options import RunOptions
from .outcome import Outcome
from .place import Place
from .plan import Plan
from .requests import Requests, UserRequest
from .rundir import RunDir
from .scheduler import Watcher

POLL = 0.2
AFTER_FAILURE = 30.0
"""Ranks that are still there so long after the first failure of one of them are killed."""
FAST = 60.0
"""A generation that fails in that time without a step is a fast failure."""
FAST_FAILURES = 3
SECONDS_TO_STOP = 20.0
"""What a scheduler leaves between SIGTERM and SIGKILL is 30 s as a rule."""


@dataclass(frozen=True)
class Next:
    """The generation that follows here."""

    nodes: int
    cause: str


@dataclass(frozen=True)
class End:
    """The launcher ends with this exit status."""

    status: int


class Supervisor:
    """Supervises a run from a lease that was taken until the run ends or goes on elsewhere."""

    def __init__(
        self,
        run: RunDir,
        options: RunOptions,
        engine: Engine,
        console: Console,
        *,
        poll: float = POLL,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.run_dir, self.options, self.engine, self.console = run, options, engine, console
        self._poll = poll
        self.account = Account(run, console, clock)
        self.place = Place(self.account, options, engine, console)
        self.watcher = Watcher(engine, options.query_interval, clock)
        self.successors = Successors(run, options.run, engine, console, self.account.record, clock)
        self.requests = Requests(run)
        self.interrupts = Interrupts()
        self.changes = Changes(self.place, self.successors, self.watcher, self.requests, self.interrupts)
        self.app: Application | None = None
        self._told_computing = False
        self._spoke = False
        self._signals_seen = 0
        self._stopping = False

    def run(self, number: int, token: str, cause: str, nodes: int | None = None) -> int:
        """Supervise under the lease ``number``; returns the exit status of `dmr-launch` (see `.exits`).

        Parameters
        ----------
        cause
            How the history names the beginning of this generation.
        nodes
            Size to begin with where there is a choice.
        """
        self.account.open(number, token)
        history = self.account.history
        self._spoke = any(each.first_step is not None for each in history.generations)
        if (pending := history.open_successor) is not None and pending.token != token:
            self.successors.adopt(pending)
            self.console.say(f"a successor is about already: job {pending.job or 'unknown'}")
        with self.interrupts:
            try:
                return self._generations(Next(self.place.first_size(nodes), cause))
            except Fenced:
                self.console.warn("another launcher has taken over the run: this one ends")
                return exits.FENCED
            finally:
                if self.app is not None:
                    self.app.kill("the launcher ends")

    def _generations(self, step: Next | End) -> int:
        while isinstance(step, Next):
            if self.account.launched:
                self.account.next_generation(self.place.job)
            self.place.fit(step.nodes)
            nodes = min(step.nodes, len(self.place.allocation.nodes))
            last = self.account.history.last
            self.changes.begin(changed=last is None or last.nodes != nodes)
            self._told_computing = False
            self.app = self.place.start(nodes, step.cause, may_fail=self._spoke)
            self._beat(now=True)
            status = self._watch(self.app)
            outcome = self.app.outcome(status, self._spoke)
            self._spoke = self._spoke or self.app.progress is not None
            step = self._after(self.app, outcome)
        return step.status

    # -- while they run

    def _watch(self, app: Application) -> int:
        """Supervise the ranks until they have ended; returns their exit status."""
        while (status := app.ranks.poll()) is None:
            self._turn(app)
            time.sleep(self._poll)
        return status

    def _turn(self, app: Application) -> None:
        self._beat()
        self.account.refuse_fence()
        if app.look():
            self._progressed(app)
        app.watch_deadlines(AFTER_FAILURE)
        self._obey_signals(app)
        for request in self.requests.take():
            self._user_asks(app, request)
        self.successors.tick()
        if not self._stopping:
            self.changes.turn(app)

    def _beat(self, *, now: bool = False) -> None:
        queries = self.account.history.queries + self.watcher.queries
        self.account.beat(self.app.nodes if self.app else 0, self.successors.current, queries, now=now)

    def _progressed(self, app: Application) -> None:
        progress = app.progress
        assert progress is not None
        if app.computing_since is not None and not self._told_computing:
            self._told_computing = True
            loaded = progress.loaded
            load = loaded.seconds if loaded else None
            launch = max(0.0, app.computing_since - app.launched - (load or 0.0))
            self.account.record(
                "loaded", launch=launch, load=load, step=app.first_step, checkpoint=loaded.name if loaded else None
            )
            if loaded:
                self.console.say(f"continues at step {loaded.step} from {loaded.name}")
            self.account.reread()
            reached("computing", self.account.number)
        if app.save_failed:
            self.account.record("failed", what=f"save failed: {progress.error}")
            self.console.warn(f"the application could not save, and goes on: {progress.error}")
            app.forget_request()
            self.changes.failed(f"the save failed: {progress.error}")

    # -- what others want

    def _user_asks(self, app: Application, request: UserRequest) -> None:
        by = f"user {request.by}" if request.by else "user"
        if request.action == "stop":
            self.requests.answer(request, "accepted", "stopping")
            self._stop(app, by=by, now=request.now, within=None)
        elif request.action == "checkpoint" and (self.changes.plan is not None or not app.computing):
            self.requests.answer(request, "refused", "it is starting, or saving already")
        elif request.action == "checkpoint":
            control = app.ask("checkpoint", reason=f"asked for by {by}")
            self.account.record("requested", id=control.id, action="checkpoint", by=by)
            self.requests.answer(request, "accepted", f"request {control.id}")
        elif request.action == "resize" and request.nodes is not None:
            self.changes.user_asks(app, request, by)
        else:
            self.requests.answer(request, "refused", f"unknown request {request.action!r}")

    def _obey_signals(self, app: Application) -> None:
        count = self.interrupts.count
        if count == self._signals_seen or self.interrupts.signal is None:
            return
        reached("signalled", self.account.number)
        name = signal.Signals(self.interrupts.signal).name
        again, self._signals_seen = self._signals_seen > 0, count
        if again:
            self.console.warn(f"{name} again: ending the ranks now")
            app.kill(f"{name} twice")
            return
        self._stop(app, by=name, now=False, within=SECONDS_TO_STOP if self.place.job is not None else None)

    def _stop(self, app: Application, by: str, now: bool, within: float | None) -> None:
        self._stopping = True
        self.account.record("stopping", by=by)
        self.console.warn(f"{by}: {'ending' if now else 'saving and ending'} the run")
        reached("stopping", self.account.number)
        self.successors.cancel(f"the run was stopped by {by}")
        plan = Plan("stop", app.nodes, by, f"stopped by {by}", "stopped")
        if now or not app.computing:
            self.changes.plan = plan
        if now:
            app.kill(plan.reason)
        elif app.computing:
            self.changes.leave(app, plan, within)
        else:
            app.end_within(min(10.0, within or 10.0), plan.reason)

    # -- after they have ended

    def _after(self, app: Application, outcome: Outcome) -> Next | End:
        """Decide what follows."""
        plan = self.changes.plan
        if outcome.kind == "left" and app.progress is not None and app.progress.checkpoint is not None:
            last = app.progress.checkpoint
            self.account.record("saved", checkpoint=last.name, step=last.step, seconds=last.seconds, bytes=last.bytes)
        reached("left", self.account.number)
        if outcome.kind == "finished" or (outcome.kind == "rigid" and not self._stopping):
            return self._end_of_program(app, outcome)
        if self._stopping or (self.interrupts.count and outcome.kind != "refused"):
            return self._stopped(app, outcome)
        if outcome.kind == "refused":
            self._ended(app, "failed", outcome)
            self.successors.cancel("the run has failed")
            self.console.warn(f"not started again, since it would fail again: {outcome.text}")
            return End(outcome.exit)
        if outcome.kind == "crashed":
            return self._after_crash(app, plan, outcome)
        if plan is None:
            self._ended(app, "left", outcome)
            self.console.say("the application left by itself: starting it again")
            return self._hand_over(app) if self.successors.arrived() else Next(app.nodes, "restart")
        self._ended(app, plan.why, outcome)
        if plan.kind in ("handover", "leave") or self.successors.arrived():
            return self._hand_over(app)
        return Next(plan.nodes, plan.why)

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
        if not self._stopping:  # the ranks were quicker than the loop
            self.account.record("stopping", by="signal")
            self.successors.cancel("the run was stopped by a signal")
        self._ended(app, "stopped", outcome)
        saved = "" if outcome.kind == "left" else f"; {outcome.text}"
        self.console.warn(f"stopped{saved}; continue with: dmr resume {self.run_dir.folder}")
        return End(exits.of_signal(self.interrupts.signal) if self.interrupts.count else 0)

    def _after_crash(self, app: Application, plan: Plan | None, outcome: Outcome) -> Next | End:
        self._ended(app, "crashed", outcome)
        self.console.warn(f"generation {self.account.number} failed: {outcome.text}")
        crashes, fast = self.account.history.crashes, self._fast_failures()
        if fast >= FAST_FAILURES:
            reason = f"{fast} generations in a row failed within {FAST:.0f} s without a step"
        elif crashes > self.options.max_restarts:
            reason = f"it has failed {crashes} times (--max-restarts {self.options.max_restarts})"
        elif self.account.number >= self.options.max_generations:
            reason = f"it has had {self.account.number} generations (--max-generations)"
        else:
            released = self.successors.arrived() or (plan is not None and plan.kind == "leave")
            return self._hand_over(app) if released else Next(app.nodes, "restart")
        self.successors.cancel("the run has failed")
        self._ended(app, "failed", outcome)
        self.console.warn(f"giving up: {reason}; the last checkpoint is kept: dmr resume {self.run_dir.folder}")
        return End(exits.FAILED)

    def _fast_failures(self) -> int:
        count = 0
        for each in reversed(self.account.history.generations):
            took = (each.end or each.start) - each.start
            if each.why not in CRASHED or took > FAST or (each.steps or 0) > 0:
                break
            count += 1
        return count

    def _hand_over(self, app: Application) -> Next | End:
        """Release the run to the successor; goes on here when that does not come after all."""
        status = self.changes.hand_over()
        if status is not None:
            return End(status)
        if self.interrupts.count:
            self.account.record("stopping", by="signal")
            self.successors.cancel("the run was stopped by a signal")
            return End(exits.of_signal(self.interrupts.signal))
        return Next(app.nodes, "restart")

    def _ended(self, app: Application, why: str, outcome: Outcome) -> None:
        self.account.record(
            "ended", why=why, exit=outcome.exit, step=app.step, first_step=app.first_step, text=outcome.text,
            seconds_per_step=app.seconds_per_step, rates=app.rates(), queries=self.watcher.queries,
        )  # fmt: skip
        self.account.reread()
        reached("ended", self.account.number)
