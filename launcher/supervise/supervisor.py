"""The launcher's heart: observe, decide, act, account.

One loop, one thread. In each turn, some five a second, it looks at files and at its child process; the scheduler
is asked rarely and elsewhere (`.scheduler`). What is wanted of the application goes to ``control.json`` and is
kept as a `.plan.Plan`; when the ranks have left, the plan says what follows (`.changes`).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from ...resize import words
from ..engines.engine import Allocation, Engine
from ..engines.scheduler import Watcher
from ..run.options import RunOptions
from ..run.requests import Requests, UserRequest
from ..run.rundir import RunDir
from . import exits
from .account import Account, Fenced
from .aftermath import Aftermath, End, Next
from .application import Application
from .changes import Changes
from .console import Console
from .handover import Successors
from .hooks import reached
from .interrupts import Interrupts
from .leave import leave_job
from .owner import owner_of
from .patience import longest_start, start_patience
from .place import Place
from .plan import Plan

POLL = 0.2
AFTER_FAILURE = 30.0
"""Ranks that are still there so long after the first failure of one of them are killed."""
BUSY_POLL = 0.02
"""While ranks start or leave, every turn that is waited for is time without computing."""
SECONDS_TO_DUMP = 3.0
"""For stacks to be written."""
SECONDS_TO_STOP = 20.0
"""What a scheduler leaves between SIGTERM and SIGKILL is 30 s as a rule."""


class Supervisor:
    """Supervises a run from a lease that was taken until the run ends or goes on elsewhere."""

    def __init__(
        self,
        run: RunDir,
        options: RunOptions,
        engine: Engine,
        console: Console,
        held: Allocation | None = None,
        *,
        poll: float = POLL,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.run_dir, self.options, self.engine, self.console = run, options, engine, console
        self._poll = poll
        self.account = Account(run, console, clock)
        self.place = Place(self.account, options, engine, console, held)
        self.watcher = Watcher(engine, options.query_interval, time.monotonic)
        self.successors = Successors(run, options.run, engine, console, self.account.record, clock)
        self.requests = Requests(run)
        self.interrupts = Interrupts(self._signalled)
        self.changes = Changes(self.place, self.successors, self.watcher, self.requests, self.interrupts)
        self.aftermath = Aftermath(self.changes, lambda: self.watcher.queries)
        self.app: Application | None = None
        self._told_computing = False
        self._spoke = False

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
                status = self._generations(Next(self.place.first_size(nodes), cause))
                self._learn()
                return status
            except Fenced:
                self.console.warn("another launcher has taken over the run: this one ends")
                return self._leave_fenced()
            finally:
                if self.app is not None:
                    self.app.kill("the launcher ends")

    def _leave_fenced(self) -> int:
        """End the ranks; and end this job, as after a handover, where the run goes on in another one for certain."""
        if self.app is not None:
            self.app.kill("another launcher has taken over")
        owner, job = owner_of(self.run_dir), self.place.job
        elsewhere = owner is not None and (owner.queued or owner.job not in (None, job))
        if job is None or not elsewhere or self.options.after_handover == "exit":
            return exits.FENCED
        self.console.say(f"{owner.describe() if owner else 'another job'} has the run now; this job is cancelled")
        left = leave_job(self.engine, job, "cancel", self.console, self.interrupts)
        return exits.FENCED if left == exits.UNFINISHED else left

    def _learn(self) -> None:
        """Let the next run of the program know what this one taught, if it has ended and nobody is in a hurry."""
        if not self.options.learn or self.interrupts.count:
            return
        from ..models.learning import learn_apart

        problem = learn_apart(self.run_dir.folder)
        if problem is not None:
            self.console.detail(f"nothing was learnt from this run: {problem}")

    def _generations(self, step: Next | End) -> int:
        while isinstance(step, Next):
            if self.account.launched:
                self.account.next_generation(self.place.job)
            self.place.fit(step.nodes)
            nodes = self.place.usable(step.nodes)
            last = self.account.history.last
            self.changes.begin(changed=last is None or last.nodes != nodes)
            self._told_computing = False
            self.app = self.place.start(nodes, step.cause, may_fail=self._spoke)
            self._beat(now=True)
            status = self._watch(self.app)
            self.account.refuse_fence(now=True)  # ranks that found out first leave nothing for this launcher to decide
            outcome = self.app.outcome(status, self._spoke)
            self._spoke = self._spoke or self.app.progress is not None
            step = self.aftermath.follow(self.app, outcome)
        return step.status

    # -- while they run

    def _watch(self, app: Application) -> int:
        """Supervise the ranks until they have ended; returns their exit status."""
        while (status := app.ranks.poll()) is None:
            self._turn(app)
            busy = self.changes.plan is not None or not app.computing
            time.sleep(min(BUSY_POLL, self._poll) if busy else self._poll)
        if status != 0:
            app.ranks.kill()  # a starter that was killed leaves ranks behind, which would compute beside the next ones
        return status

    def _turn(self, app: Application) -> None:
        self._beat()
        self.account.refuse_fence()
        if app.look():
            self._progressed(app)
        late = app.late
        app.watch_deadlines(AFTER_FAILURE)
        if app.late and not late:
            self.console.say(
                "no safe point since the application was asked to leave: waiting for the end of its step (a program "
                "without steps has none; 'dmr stop --now' ends it as it is)"
            )
        self._obey_signals(app)
        for request in self.requests.take():
            self._user_asks(app, request)
        self.successors.tick()
        self._watch_for_hang(app)
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
            before = max((each.step or 0 for each in self.account.history.generations[:-1]), default=0)
            if loaded:
                again = before - loaded.step
                more = f"; {words.count(again, 'step is', 'steps are')} done again" if again > 0 else ""
                self.console.say(f"continues at step {loaded.step} from {loaded.name}{more}")
            elif before > 0:
                self.console.warn(
                    f"starts from the beginning: there was no checkpoint, and {words.count(before, 'step')} "
                    f"{'is' if before == 1 else 'are'} lost (--checkpoint-every TIME makes checkpoints)"
                )
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
            try:
                control = app.ask("checkpoint", reason=f"asked for by {by}")
            except OSError as error:
                self.requests.answer(request, "refused", f"the run directory can't be written: {error.strerror}")
                return
            self.account.record("requested", id=control.id, action="checkpoint", by=by)
            self.requests.answer(request, "accepted", f"request {control.id}")
        elif request.action == "resize" and request.nodes is not None:
            self.changes.user_asks(app, request, by)
        else:
            self.requests.answer(request, "refused", f"unknown request {request.action!r}")

    def _signalled(self, number: int) -> None:
        """Note a first signal at once: a job script that dies of it takes this process with it."""
        reached("signalled", self.account.number)
        end = self.place.allocation.end
        left = None if end is None else end - self.account.clock()
        self.account.record("signalled", signal=signal.Signals(number).name, left=left)

    def _obey_signals(self, app: Application) -> None:
        if not self.changes.told_to_end or self.interrupts.signal is None:
            return
        name = signal.Signals(self.interrupts.signal).name
        again = self.changes.signals_served > 0
        ending = "cancelled" if again else self.changes.ending()
        self.changes.signals_served = self.interrupts.count
        if again:
            self.console.warn(f"{name} again: ending the ranks now")
            app.kill(f"{name} twice")
            return
        within = SECONDS_TO_STOP if self.place.job is not None else None
        plan = self.changes.plan
        if plan is not None and plan.kind == "stop" and ending != "cancelled":
            # The user's stop stands, so that nothing follows; there is only less time for it.
            if app.computing:
                self.changes.leave(app, plan, within)
            return
        if ending == "requeued":
            self.changes.leave_requeued(app, within)
        elif ending == "preempted":
            self.changes.leave_preempted(app, within)
        elif ending == "limit":
            self.changes.leave_for_limit(app, within)
        else:
            self._stop(app, by=name, now=False, within=within)

    def _stop(self, app: Application, by: str, now: bool, within: float | None) -> None:
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

    def _watch_for_hang(self, app: Application) -> None:
        if self.changes.plan is not None and not app.late:
            return
        if (silent := app.hung_for(self.options.hang_after)) is not None:
            self._end_hung(app, f"no progress for {silent:.0f} s")
            return
        within = self.options.start_within
        allowed = start_patience(within, self.options.hang_after, longest_start(self.account.history.generations))
        # Who names a time says that the program reports; else one that has not imported dmr may be any program.
        if (silent := app.silent_at_start(self._spoke or within is not None, allowed)) is not None:
            self._end_hung(app, f"the program has not reported {silent:.0f} s after its start (a hang in MPI_Init?)")

    def _end_hung(self, app: Application, what: str) -> None:
        app.hung = True
        self.account.record("failed", what=what, step=app.step)
        if app.progress is not None or app.signed:
            self.console.warn(f"{what}: asking all ranks for their stacks, then starting again")
            app.ranks.dump()
            time.sleep(SECONDS_TO_DUMP)
        else:  # nobody would answer
            self.console.warn(f"{what}: starting again")
        app.kill(what)
