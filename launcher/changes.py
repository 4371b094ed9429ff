"""Changes of size: who wants one, by which road, and what becomes of it.

Wishes come from the user (``dmr resize``), from the policy, from a successor that has started, and from the clock
when the allocation's end is near. One is served at a time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from . import exits
from .account import Fenced
from .application import Application
from .handover import Successors
from .hooks import reached
from .interrupts import Interrupts
from .leave import leave_job
from .observe import run_view
from .place import Place
from .plan import Plan
from .requests import Requests, UserRequest
from .rundir import Action
from .scheduler import Watcher

if TYPE_CHECKING:
    from ..resize.policy import Policy
    from ..resize.view import ClusterView, Decision

LIMIT_LEAD = 60.0
"""Seconds left when the allocation ends, beside one step and two saves."""
LIMIT_SHARE = 0.25
"""The lead is never more than this part of the time that the allocation had left at the start."""
HANDOVER_WAIT = 60.0
"""After that the owner asks the scheduler whether the successor it released to still lives."""
HANDOVER_LIMIT = 300.0
"""A successor that does not take over in this time won't."""


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
        self._not_before = 0.0
        self._suggestion = "policy"
        self._cancels = 0
        self._limit_served = False

    def begin(self, changed: bool) -> None:
        """Take note that a generation begins."""
        self.plan = None
        self._suggestion, self._cancels = "policy", 0
        if changed:
            self.since = self.account.clock()

    # -- each turn of the loop

    def turn(self, app: Application) -> None:
        """See whether there is something to do."""
        arrived = self.successors.arrived()
        asking = app.computing and self.plan is None and not arrived
        new_view = self.watcher.poll(asking and (self._flexible or self.successors.current is not None))
        if new_view and self.watcher.view is not None:
            self.successors.see(self.watcher.view)
        if not app.computing or self.plan is not None:
            return
        now = self.account.clock()
        if arrived:
            self._hand_over_to_started(app)
        elif self._limit_near(app, now):
            self._leave_for_limit(app)
        elif self._wish is not None:
            self._serve_wish(app)
        elif self._flexible and now >= self._not_before:
            self._ask_policy(app, new_view)

    @property
    def _flexible(self) -> bool:
        return not self.options.rigid and self.account.number < self.options.max_generations

    def leave(self, app: Application, plan: Plan, within: float | None = None) -> None:
        """Ask the application to save and leave; `plan` says what follows."""
        self.plan = plan
        action: Action = "stop" if plan.kind == "stop" else "resize"
        control = app.ask(action, nodes=plan.nodes, reason=plan.reason, within=within)
        self.account.record(
            "requested", id=control.id, action=action, nodes=plan.nodes, by=plan.by, reason=plan.reason,
            deadline=control.deadline,
        )  # fmt: skip
        self.console.detail(f"asked the application to save and leave: {plan.reason}")
        reached("requested", self.account.number)

    # -- a successor has started

    def _hand_over_to_started(self, app: Application) -> None:
        successor = self.successors.current
        assert successor is not None and successor.started is not None
        nodes = int(successor.started.get("nodes", successor.nodes[1]))
        why = "expand" if nodes > app.nodes else "shrink" if nodes < app.nodes else "moved"
        plan = Plan("handover", nodes, "successor", f"job {successor.job} has started with {nodes} nodes", why)
        self.leave(app, plan)

    # -- the policy

    def _ask_policy(self, app: Application, new_view: bool) -> None:
        progress = app.progress
        assert progress is not None
        if progress.cancelled_expands > self._cancels:
            self._cancels = progress.cancelled_expands
            self.successors.cancel("the application gave the expansion up")
        changed = progress.suggestion != self._suggestion
        view = self.watcher.view
        if view is None or not (new_view or changed):
            return
        self._suggestion = progress.suggestion
        decision = self.decide(app, view)
        if decision is not None:
            reached("decided", self.account.number)
            self._act(app, decision)

    def decide(self, app: Application, view: ClusterView) -> Decision | None:
        """Ask the policy, and record what it says."""
        from ..resize.decide import decide
        from ..resize.explain import decision_to_json
        from ..resize.policy import load_policy

        if self.policy is None:
            self.policy = load_policy(self.options.policy, dict(self.options.policy_options))
        run = run_view(
            self.account.clock(), self.options, self.account.history, app, self.place.allocation,
            self.successors.current, since=self.since, in_place=self.place.in_place,
        )  # fmt: skip
        try:
            decision = decide(run, view, self.policy)
        except Exception as error:  # a user's own policy may raise anything; the run goes on
            self.account.record("failed", what=f"policy {self.options.policy}: {error!r}")
            self.console.warn(f"the policy {self.options.policy} failed, staying at {app.nodes} nodes: {error!r}")
            self._not_before = self.account.clock() + self.options.query_interval
            return None
        self.account.record("decided", step=run.step, decision=decision_to_json(decision))
        self.console.detail(f"{decision.action} ({decision.nodes} nodes): {decision.reason}")
        return decision

    def _act(self, app: Application, decision: Decision) -> None:
        if decision.action == "cancel":
            self.successors.cancel(decision.reason)
        elif decision.action in ("shrink", "expand"):
            self._change(app, decision.nodes, f"policy {decision.policy}", decision.reason)

    # -- the roads

    def _change(self, app: Application, nodes: int, by: str, reason: str) -> bool:
        """Go to another size; False when that is not possible now."""
        if self.place.in_place or (nodes < app.nodes and not self.place.shrink_refused):
            self.successors.cancel(f"shrinking instead: {reason}")
            self.leave(app, Plan("in place", nodes, by, reason, "expand" if nodes > app.nodes else "shrink"))
            return True
        current = self.successors.current
        if current is not None:
            if current.after is None or current.nodes[1] != nodes:
                self.successors.follow((nodes, nodes), reason)
            return True
        if self.account.clock() < self.successors.refused_until:
            return False
        if self._must_chain(app.nodes, nodes):
            return self._leave_before(app, nodes, by, reason, "expand")
        return self.successors.submit(self.account.number, (nodes, nodes), by=by, reason=reason)

    def _must_chain(self, held: int, nodes: int) -> bool:
        view = self.watcher.view
        if view is None:
            return False
        return held + nodes > view.total

    def _leave_before(self, app: Application, nodes: int, by: str, reason: str, why: str) -> bool:
        """Submit a successor that starts when this job has ended, and leave."""
        if not self.successors.submit(
            self.account.number, (nodes, nodes), after=self.place.job, by=by, reason=reason
        ):
            return False
        self.leave(app, Plan("leave", nodes, by, reason, why))
        return True

    # -- the user

    def user_asks(self, app: Application, request: UserRequest, by: str) -> None:
        """Take up ``dmr resize``."""
        nodes = request.nodes
        assert nodes is not None
        if nodes not in self.options.sizes:
            sizes = ", ".join(map(str, self.options.sizes[:20])) + (", …" if len(self.options.sizes) > 20 else "")
            self.requests.answer(request, "refused", f"{nodes} nodes is not an allowed size of this run: {sizes}")
            return
        if app.progress is None and app.first_step is None and self.account.history.last is None:
            self.requests.answer(request, "refused", "the program has not reported yet; try again when it computes")
            return
        if self.account.number >= self.options.max_generations:
            self.requests.answer(request, "refused", "all generations are used up (--max-generations)")
            return
        self._answer("refused", "another request came after it")
        if nodes == app.nodes and self.plan is None:
            self.successors.cancel(f"{by} wants to stay at {nodes} nodes")
            self.requests.answer(request, "done", f"runs on {nodes} nodes")
            return
        self._wish, self._wish_by = request, by
        self.requests.answer(request, "accepted", f"going to {nodes} nodes")

    def _serve_wish(self, app: Application) -> None:
        wish = self._wish
        assert wish is not None and wish.nodes is not None
        if wish.nodes == app.nodes:
            self._answer("done", f"runs on {wish.nodes} nodes")
            return
        current = self.successors.current
        if current is not None and current.nodes == (wish.nodes, wish.nodes):
            return
        if not self._change(app, wish.nodes, self._wish_by, f"asked for by {self._wish_by}"):
            self._answer("refused", "the scheduler does not take the job now; see the launcher's log")

    def _answer(self, state: str, text: str) -> None:
        if self._wish is not None:
            wish, self._wish = self._wish, None
            self.requests.answer(wish, state, text)

    def failed(self, reason: str) -> None:
        """Give up the change under way, and leave the application in peace for a while."""
        self._answer("refused", reason)
        if self.successors.current is not None and self.successors.current.after is not None:
            self.successors.cancel(reason)
        self.plan = None
        self._not_before = self.account.clock() + max(60.0, self.options.query_interval)

    # -- the clock

    def lead(self, app: Application) -> float:
        """Return how long before the allocation's end the application has to be asked: a step, two saves, a minute."""
        assert self.place.allocation.end is not None
        wanted = (app.seconds_per_step or 0.0) + 2 * app.save_seconds() + LIMIT_LEAD
        return min(wanted, LIMIT_SHARE * max(0.0, self.place.allocation.end - self._began))

    def _limit_near(self, app: Application, now: float) -> bool:
        return self.place.allocation.end is not None and now >= self.place.allocation.end - self.lead(app)

    def _leave_for_limit(self, app: Application) -> None:
        reason = "the allocation's time is nearly up"
        if self.successors.current is not None:
            self.leave(app, Plan("leave", self.successors.current.nodes[1], "clock", reason, "time limit"))
            return
        able = self.engine.can_submit and self.account.number < self.options.max_generations
        if not able or not self._leave_before(app, app.nodes, "clock", reason, "time limit"):
            self.console.warn(f"{reason}, and nothing can follow by itself")
            self.leave(app, Plan("leave", app.nodes, "clock", reason, "time limit"))

    # -- the end of this launcher

    def hand_over(self) -> int | None:
        """Release the run to the successor and end this job.

        Returns
        -------
        int or None
            The exit status; None when the successor did not come and this launcher goes on.
        """
        successor = self.successors.current
        if successor is None:
            self.console.warn(f"not finished, and nothing follows by itself: dmr resume {self.account.run.folder}")
            return exits.UNFINISHED
        while successor.job is None and self.successors.current is not None and not self.interrupts.count:
            self.successors.tick()
            time.sleep(1.0)
        if self.successors.current is None or self.interrupts.count:
            return None
        if not self._release(successor.token):
            return None
        reached("released", self.account.number)
        waits_for_us = successor.after is not None or successor.started is None
        if not waits_for_us and not self._taken(successor.token):
            return None
        self._answer("done", f"job {successor.job} goes on with {successor.nodes[1]} nodes")
        self.console.say(
            f"handed over to job {successor.job}" + (", which starts when this one has ended" if waits_for_us else "")
        )
        self.successors.forget()
        reached("handed", self.account.number)
        return leave_job(self.engine, self.place.job, self.options.after_handover, self.console, self.interrupts)

    def _release(self, token: str) -> bool:
        """Write ``released``; a run directory that can't be written for a while is tried again."""
        for _ in range(30):
            if self.account.record("released", token=token):
                return True
            time.sleep(2.0)
        return False

    def _taken(self, token: str) -> bool:
        """Wait until the successor holds the next lease; False when this launcher took it back."""
        began = self.account.clock()
        looked = began
        run, following = self.account.run, self.account.number + 1
        while True:
            if self.interrupts.count:
                return False
            if (lease := run.read_lease(following)) is not None:
                return lease.get("token") == token
            now = self.account.clock()
            gone = self.successors.withdrew()
            if not gone and now - began > HANDOVER_WAIT and now - looked > 30.0:
                looked = now
                job = self.successors.current.job if self.successors.current else None
                gone = job is not None and self.engine.job(job).state == "ended"
            if gone or now - began > HANDOVER_LIMIT:
                return self._reclaim("it is gone" if gone else "it did not take over in time")
            time.sleep(0.1)

    def _reclaim(self, reason: str) -> bool:
        """Go on here; True when the successor was quicker after all."""
        successor = self.successors.current
        assert successor is not None
        try:
            self.account.next_generation(self.place.job)
        except Fenced:
            lease = self.account.run.read_lease(self.account.number + 1)
            return lease is not None and lease.get("token") == successor.token
        self.account.record("reclaimed", token=successor.token, reason=reason)
        self.console.warn(f"the successor, job {successor.job}, was to take over, but {reason}: going on here")
        self.successors.cancel(reason)
        return False
