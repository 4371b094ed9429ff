"""Changes of size: who wants one, by which road, and what becomes of it.

Wishes come from the user (``dmr resize``), from the policy, from a successor that has started, and from the clock
when the allocation's end is near. One is served at a time.
"""

from __future__ import annotations

import math
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

from ...resize import words
from ...resize.limit import lead
from ..engines.engine import Ending
from ..engines.scheduler import Watcher
from ..foreign.sizes import why_not
from ..run.history import NEAR_LIMIT
from ..run.requests import Requests, UserRequest
from ..run.rundir import Action
from .application import Application
from .handover import Successors
from .hooks import reached
from .interrupts import Interrupts
from .limit import done_in_time
from .observe import run_view
from .place import Place
from .plan import Plan
from .queueing import Queueing
from .spotting import Spotter
from .witness import Witness

if TYPE_CHECKING:
    from ...resize.policy import Policy
    from ...resize.view import ClusterView, Decision

ASK_AGAIN = 10.0
"""After a save that failed a successor that waits, and the clock, have the application try again so much later."""


class Changes:
    """Serves one wish for another size at a time; ``plan`` is the one under way."""

    def __init__(
        self,
        place: Place,
        successors: Successors,
        watcher: Watcher,
        requests: Requests,
        interrupts: Interrupts,
    ) -> None:
        self.place, self.account, self.options, self.console = place, place.account, place.options, place.console
        self.engine, self.successors, self.watcher = place.engine, successors, watcher
        self.requests, self.interrupts = requests, interrupts
        account = self.account
        self.plan: Plan | None = None
        self.since = account.clock()
        self.policy: Policy | None = None
        self._began = account.clock()
        self._wish: UserRequest | None = None
        self._wish_by = ""
        self._not_before = self._ask_again = 0.0
        self._suggestion = "policy"
        self._cancels = 0
        self._phase: str | None = None
        self._again = math.inf
        self._said: tuple[str, int, str] | None = None
        self.spotter = Spotter(self.account, self.options)
        self.witness = Witness(self.engine, account.clock)
        self.queueing = Queueing(place, successors, self._load_policy)
        self.signals_served = 0
        """How many signals were taken note of, and are not to be taken for the user's wish to stop."""

    def begin(self, changed: bool) -> None:
        """Take note that a generation begins."""
        self.plan = None
        self._suggestion, self._cancels, self._said = "policy", 0, None
        if changed:
            self.since = self.account.clock()

    # -- each turn of the loop

    def turn(self, app: Application) -> None:
        """See whether there is something to do."""
        self.spotter.turn(app)
        arrived = self.successors.arrived()
        asking = app.computing and self.plan is None and not arrived
        new_view = self.watcher.poll(asking and (self._flexible or self.successors.current is not None))
        if new_view and self.watcher.view is not None:
            self._renew_end(self.watcher.view)
            self.successors.see(self.watcher.view)
            if self.place.idle > 0:  # the scheduler did not answer when they were to be given back
                self.place.fit(self.place.used)
        if not app.computing or self.plan is not None:
            return
        now = self.account.clock()
        if 0 < self._ask_again - now <= ASK_AGAIN:
            return
        if arrived:
            self._hand_over_to_started(app)
        elif self._limit_near(app, now):
            self.leave_for_limit(app)
        elif self._wish is not None:
            self._serve_wish(app)
        elif self._flexible and now >= self._not_before:
            self._ask_policy(app, new_view)

    @property
    def _flexible(self) -> bool:
        return not self.options.rigid and self.account.number < self.options.max_generations

    def leave(
        self, app: Application, plan: Plan, within: float | None = None, *, patient: bool = False
    ) -> None:
        """Ask the application to save and leave; `plan` says what follows, ``patient`` that no step is too long."""
        action: Action = "stop" if plan.kind == "stop" else "resize"
        try:
            here = plan.kind == "in place" and self.place.in_place
            control = app.ask(action, nodes=plan.nodes, reason=plan.reason, within=within, here=here, patient=patient)
        except OSError as error:
            self._could_not_ask(app, plan, within, error)
            return
        self.plan = plan
        self.account.record(
            "requested", id=control.id, action=action, nodes=plan.nodes, by=plan.by, reason=plan.reason,
            deadline=control.deadline,
        )  # fmt: skip
        self.console.detail(f"asked the application to save and leave: {plan.reason}")
        reached("requested", self.account.number)

    def _could_not_ask(self, app: Application, plan: Plan, within: float | None, error: OSError) -> None:
        """Do without ``control.json``: a program that has to leave saves on SIGTERM, too; the rest can wait."""
        self.account.record("failed", what=f"could not ask the application: {error.strerror}")
        self.console.warn(f"can't write to {self.account.run.folder}: {error.strerror}")
        if plan.kind in ("stop", "leave", "requeue"):
            self.plan = plan
            app.end_within(app.patience() if within is None else within, plan.reason)
        else:
            self.failed(f"the run directory can't be written: {error.strerror}")

    # -- a successor has started

    def _hand_over_to_started(self, app: Application) -> None:
        successor = self.successors.current
        assert successor is not None and successor.started is not None
        if self.successors.withdrew():  # while the ranks started, say: nothing to save for
            self.successors.give_up("it was ended while it waited for its turn")
            return
        nodes = int(successor.started.get("nodes", successor.nodes[1]))
        why = "expand" if nodes > app.nodes else "shrink" if nodes < app.nodes else "moved"
        plan = Plan("handover", nodes, "successor", f"job {successor.job} has started with {words.nodes(nodes)}", why)
        self.leave(app, plan, patient=True)

    # -- the policy

    def _ask_policy(self, app: Application, new_view: bool) -> None:
        progress = app.progress
        assert progress is not None
        if progress.cancelled_expands > self._cancels:
            self._cancels = progress.cancelled_expands
            self.successors.cancel("the application gave the expansion up")
        phase = progress.phase or self.spotter.phase
        changed = (progress.suggestion, phase) != (self._suggestion, self._phase)
        view = self.watcher.view
        if view is None or not (new_view or changed or self.account.clock() >= self._again):
            return
        self._suggestion, self._phase = progress.suggestion, phase
        decision = self.decide(app, view, new_view=new_view)
        if decision is not None:
            reached("decided", self.account.number)
            self._act(app, decision)

    def decide(self, app: Application, view: ClusterView, *, new_view: bool = True) -> Decision | None:
        """Ask the policy, and record what it says, unless it says the same again of the same view of the queue."""
        from ...resize.decide import decide
        from ...resize.explain import decision_to_json
        from ...resize.policy import PolicyError
        from ...resize.record import cluster_to_json, run_to_json

        policy = self._load_policy()
        run = run_view(
            self.account.clock(), self.options, self.account.history, app, self.place.allocation,
            self.successors.current, since=self.since, in_place=self.place.in_place,
            no_shrink=self.place.shrink_refused,
        )  # fmt: skip
        run = self.spotter.completed(run, self.account.history, app)
        run = replace(run, witnesses=self.witness.told())
        try:
            decision = decide(run, view, policy)
            if self.witness.contradicts(run, view, decision):
                run = replace(run, witnesses=self.witness.told())
                decision = decide(run, view, policy)
        except Exception as error:  # a user's own policy may raise anything; the run goes on
            known = isinstance(error, PolicyError)
            what = str(error) if known else f"the policy {self.options.policy} failed: {error!r}"
            self.account.record("failed", what=what)
            self.console.warn(f"{what}; staying at {words.nodes(app.nodes)}")
            self._not_before = self.account.clock() + self.options.query_interval
            return None
        self._again = math.inf if decision.again is None else self.account.clock() + max(0.5, decision.again)
        said = (decision.action, decision.nodes, decision.reason)
        if not new_view and decision.action == "stay" and self._said is not None and said[:2] == self._said[:2]:
            return decision
        self._said = said
        self.account.record(
            "decided", step=run.step, decision=decision_to_json(decision), run=run_to_json(run),
            cluster=cluster_to_json(view),
        )  # fmt: skip
        self.console.detail(f"{decision.action} ({words.nodes(decision.nodes)}): {decision.reason}")
        return decision

    def _load_policy(self) -> Policy:
        from ...resize.policy import load_policy

        if self.policy is None:
            self.policy = load_policy(self.options.policy, dict(self.options.policy_options), self.options.folder)
        return self.policy

    def _act(self, app: Application, decision: Decision) -> None:
        if decision.action == "cancel":
            self.successors.cancel(decision.reason)
        elif decision.action in ("shrink", "expand"):
            self._change(app, decision.nodes, f"policy {decision.policy}", decision.reason, decision.limit)

    # -- the roads

    def _change(self, app: Application, nodes: int, by: str, reason: str, limit: float | None = None) -> bool:
        """Go to another size; False when that is not possible now. ``limit`` is a time limit for a successor."""
        if self.place.in_place or (nodes < app.nodes and not self.place.shrink_refused):
            self.successors.cancel(f"shrinking instead: {reason}")
            why = "expand" if nodes > app.nodes else "shrink"
            self.leave(app, Plan("in place", nodes, by, reason, why), patient=True)
            return True
        current = self.successors.current
        if current is not None:
            if current.after is None or current.nodes[1] != nodes:
                return self.successors.follow((nodes, nodes), by, reason)
            return True
        if self.account.clock() < self.successors.refused_until:
            return False
        if self._must_chain(max(app.nodes, len(self.place.allocation.nodes)), nodes):
            return self._leave_before(app, nodes, by, reason, "expand" if nodes > app.nodes else "shrink")
        return self._submit(app, nodes, by, reason, limit=limit)

    def _submit(
        self, app: Application, nodes: int, by: str, reason: str, *, after: str | None = None,
        limit: float | None = None,
    ) -> bool:  # fmt: skip
        # A larger size pays over the time that was counted on: where the user lets limits be cut, not this one.
        return self.successors.submit(
            self.account.number, (nodes, nodes), after=after, by=by, reason=reason, limit=limit, whole=nodes > app.nodes
        )

    def _must_chain(self, held: int, nodes: int) -> bool:
        view = self.watcher.view
        if view is None:
            return False
        return held + nodes > view.total

    def _leave_before(self, app: Application, nodes: int, by: str, reason: str, why: str) -> bool:
        """Submit a successor that starts when this job has ended, and leave."""
        if not self._submit(app, nodes, by, reason, after=self.place.job):
            return False
        self.leave(app, Plan("leave", nodes, by, reason, why), patient=True)
        return True

    # -- the user

    def user_asks(self, app: Application, request: UserRequest, by: str) -> None:
        """Take up ``dmr resize``."""
        nodes = request.nodes
        assert nodes is not None
        if nodes not in self.options.sizes:
            sizes = ", ".join(map(str, self.options.sizes[:20])) + (", …" if len(self.options.sizes) > 20 else "")
            why = why_not(self.options.app, nodes, self.place.allocation.tasks_per_node)
            text = f"{words.nodes(nodes)} is not an allowed size of this run: {sizes}"
            self.requests.answer(request, "refused", text if why is None else f"{text}; {why}")
            return
        if app.progress is None and all(each.first_step is None for each in self.account.history.generations):
            self.requests.answer(request, "refused", "the program has not reported yet; try again when it computes")
            return
        if self.account.number >= self.options.max_generations:
            self.requests.answer(request, "refused", "all generations are used up (--max-generations)")
            return
        if request.keep and (why := self.place.why_not_keep(request.keep, nodes)):
            self.requests.answer(request, "refused", why)
            return
        self.answer("refused", "another request came after it")
        if nodes == app.nodes and self.plan is None:
            self.successors.cancel(f"{by} wants to stay at {words.nodes(nodes)}")
            self.requests.answer(request, "done", f"runs on {words.nodes(nodes)}")
            return
        self._wish, self._wish_by = request, by
        self.requests.answer(request, "accepted", f"going to {words.nodes(nodes)}")

    def _serve_wish(self, app: Application) -> None:
        wish = self._wish
        assert wish is not None and wish.nodes is not None
        if wish.nodes == app.nodes:
            self.answer("done", f"runs on {words.nodes(wish.nodes)}")
            return
        current = self.successors.current
        if current is not None and current.nodes == (wish.nodes, wish.nodes):
            return
        if wish.keep:
            self.place.prefer(wish.keep)
        if not self._change(app, wish.nodes, self._wish_by, f"asked for by {self._wish_by}"):
            refused = self.account.clock() < self.successors.refused_until
            why = self.successors.refusal if refused else "see the launcher's log"
            self.answer("refused", f"the scheduler does not take the job now: {why}")

    def handed_over(self, job: str, nodes: tuple[int, int]) -> None:
        """Answer the user's wish by what the successor that goes on has asked for."""
        if self._wish is not None:
            wanted = (self._wish.nodes, self._wish.nodes)
            text = f"{job} goes on with {words.span(*nodes)}"
            self.answer("done" if nodes == wanted else "refused", text if nodes == wanted else f"{text} instead")

    def answer(self, state: str, text: str) -> None:
        """Answer the user's wish that is being served, if any."""
        if self._wish is not None:
            wish, self._wish = self._wish, None
            self.requests.answer(wish, state, text)

    def failed(self, reason: str) -> None:
        """Give up the change under way, and leave the application in peace for a while."""
        self.answer("refused", reason)
        if self.successors.current is not None and self.successors.current.after is not None:
            self.successors.cancel(reason)
        self.plan = None
        self._ask_again = self.account.clock() + ASK_AGAIN
        self._not_before = self.account.clock() + max(60.0, self.options.query_interval)

    # -- the clock

    def lead(self, app: Application) -> float:
        """Return how long before the allocation's end the application has to be asked."""
        end = self.place.allocation.end
        assert end is not None and app.computing_since is not None
        # A step may take most of a short allocation: then those of generations before tell.
        past = [each.seconds_per_step for each in self.account.history.generations if each.nodes == app.nodes]
        step = app.seconds_per_step or next(filter(None, reversed(past)), 0.0)
        return lead(step, app.save_seconds(), end - self._began, end - app.computing_since)

    def _limit_near(self, app: Application, now: float) -> bool:
        end = self.place.allocation.end
        if end is None or now < end - self.lead(app):
            return False
        return not done_in_time(app.progress, app.seconds_per_step, app.save_seconds(), end - now)

    def _renew_end(self, view: ClusterView) -> None:
        """Take note that the job's time limit was changed, or is known now."""
        mine = next((each for each in view.jobs if each.job == self.place.job and each.state == "running"), None)
        if mine is not None and mine.end is not None and mine.end != self.place.allocation.end:
            self.place.allocation = replace(self.place.allocation, end=mine.end)

    def leave_for_limit(self, app: Application, within: float | None = None) -> None:
        """Ask the application to save and leave, with a successor behind this job."""
        self._leave_the_job(app, "time limit", "the allocation's time is nearly up", within)

    def leave_preempted(self, app: Application, within: float | None = None) -> None:
        """Ask the application to save and leave, with a successor of any size that is to be had."""
        self._leave_the_job(app, "preempted", "the scheduler preempts this job", within)

    def leave_requeued(self, app: Application, within: float | None = None) -> None:
        """Ask the application to save and leave; the scheduler starts this job again."""
        self.leave(
            app, Plan("requeue", app.nodes, "scheduler", "the scheduler requeues this job", "preempted"), within
        )

    def _leave_the_job(self, app: Application, why: str, reason: str, within: float | None) -> None:
        # First: a scheduler that is slow to take the successor must not use up the time for the save.
        # By the clock alone a step under way may be done before the limit: to end it sooner would gain nothing.
        self.leave(app, Plan("leave", app.nodes, "clock", reason, why), within, patient=within is None)
        if self.successors.current is None and self.queueing.possible:
            if why == "time limit" and self._wish is not None and self._wish.nodes is not None:
                self.queueing.behind(app, reason, (self._wish.nodes, self._wish.nodes), self._wish_by)
            elif why == "time limit":
                self.queueing.behind(app, reason)
            else:
                self.queueing.at_once(app.nodes, "clock", reason)
        if self.successors.current is None:
            why = " (--max-generations)" if self.queueing.used_up else ""
            self.console.warn(f"{reason}, and nothing can follow by itself{why}")

    def ending(self) -> Ending:
        """Return why this launcher is to end; ``none`` when the scheduler does not know of it, and no signal came."""
        if self.place.job is None:
            return "cancelled" if self.told_to_end else "none"
        if self.interrupts.signal == signal.SIGINT:
            return "cancelled"
        found = self.engine.ending()
        end = self.place.allocation.end
        near = end is not None and self.account.clock() > end - NEAR_LIMIT
        if found in ("none", "unknown") and self.interrupts.count:
            return "limit" if near else "cancelled"
        return "none" if found == "unknown" else found

    def told_to_stop(self) -> bool:
        """Whether a signal came that is the user's wish; the time limit's or a preemption's is served by this."""
        if not self.told_to_end:
            return False
        if self.signals_served == 0 and self.ending() in ("limit", "preempted", "requeued"):
            self.signals_served = self.interrupts.count
            return False
        return True

    @property
    def told_to_end(self) -> bool:
        """Whether a signal came that has not been served."""
        return self.interrupts.count > self.signals_served
