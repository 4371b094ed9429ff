"""What another policy would have done in a run that was."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .decide import decide
from .policy import Policy
from .situation import Rules, Situation
from .speed import Speed
from .view import ClusterView, Decision, RunView


@dataclass(frozen=True)
class Frame:
    """One decision of a run: what it was made from, and what it was, where that is known."""

    run: RunView
    cluster: ClusterView
    decision: Decision | None = None


@dataclass(frozen=True)
class Replayed:
    """One frame under another policy.

    ``nodes`` is the size that the run would have had then, ``step`` how far it would have been, and ``decision`` what
    the policy says in that state. ``real`` is the size that the run had.
    """

    time: float
    real: int
    nodes: int
    step: int
    decision: Decision


@dataclass(frozen=True)
class Replay:
    """A run under another policy.

    ``finish`` is when it would have ended (the real run's end where that is known: ``real_finish``), both unix
    seconds; ``borrowed`` is the largest number of nodes that the policy used although somebody else had them in
    reality, so that what became of the others is not in these numbers.
    """

    frames: tuple[Replayed, ...]
    finish: float | None
    real_finish: float | None
    node_hours: float
    real_node_hours: float
    resizes: int
    borrowed: int


def replay(frames: Sequence[Frame], policy: Policy) -> Replay:
    """Run a policy along the recorded views of a run.

    The run's own size and progress follow the policy; speed is taken from all that the run measured, whenever it
    did; growth takes the lower bound of its wait; nodes that the run really held and would not have held are idle
    for it. Other jobs do what they did in reality.

    Raises
    ------
    ValueError
        When there are no frames.
    """
    if not frames:
        raise ValueError("no decision of this run was recorded with what it was made from")
    first, last = frames[0].run, frames[-1].run
    truth = Speed(last.rates, None, last.earlier)
    state = _State(first.nodes, float(first.step), first.time, first.since, first.node_hours, first.steps)
    found: list[Replayed] = []
    for frame in frames:
        state.advance(frame.run.time, truth)
        if state.done is not None:
            break
        run = replace(
            frame.run, nodes=state.nodes, step=int(state.step), since=state.since, node_hours=state.node_hours,
            resizes=state.resizes, pending=None, pending_since=None, pending_job=None,
        )  # fmt: skip
        cluster = _without_us(frame, state)
        decision = decide(run, cluster, policy)
        found.append(Replayed(run.time, frame.run.nodes, state.nodes, run.step, decision))
        if state.pending is None and decision.action in ("shrink", "expand"):
            situation = Situation(run, cluster, getattr(policy, "rules", Rules()))
            wait = 0.0 if decision.action == "shrink" else min(situation.wait(decision.nodes)[0], 1e9)
            state.pending = (run.time + wait, decision.nodes, situation.cost(decision.nodes).total)
    return Replay(
        tuple(found), _finish(state, last, truth), _real_finish(last, truth), state.node_hours_at_end(last, truth),
        _real_node_hours(last, truth), state.resizes, state.borrowed,
    )  # fmt: skip


@dataclass
class _State:
    nodes: int
    step: float
    time: float
    since: float
    node_hours: float
    steps: int | None
    resizes: int = 0
    borrowed: int = 0
    pending: tuple[float, int, float] | None = None
    done: float | None = None

    def advance(self, to: float, speed: Speed) -> None:
        """Go on to a time, with the change that falls into it."""
        if self.pending is not None and self.pending[0] <= to:
            when, nodes, cost = self.pending
            self._compute(max(when, self.time), speed)
            resumed = self.time + cost
            self.node_hours += cost * (self.nodes + nodes) / 2 / 3600
            self.nodes, self.time, self.since, self.pending = nodes, resumed, resumed, None
            self.resizes += 1
        self._compute(to, speed)

    def _compute(self, to: float, speed: Speed) -> None:
        passed = to - self.time
        if passed <= 0 or self.done is not None:
            return
        per_step = speed.at(self.nodes)
        if per_step is not None:
            left = math.inf if self.steps is None else (self.steps - self.step) * per_step.value
            if left <= passed:
                passed, self.done = max(0.0, left), self.time + max(0.0, left)
            self.step += passed / per_step.value
        self.node_hours += passed * self.nodes / 3600
        self.time = to

    def node_hours_at_end(self, last: RunView, speed: Speed) -> float:
        finish = _finish(self, last, speed)
        return self.node_hours + (0.0 if finish is None else max(0.0, finish - self.time) * self.nodes / 3600)


def _without_us(frame: Frame, state: _State) -> ClusterView:
    """Return the cluster as it would be if the run had the replayed size."""
    free = frame.cluster.idle + frame.run.nodes - state.nodes
    if free < 0:
        state.borrowed = max(state.borrowed, -free)
    jobs = tuple(
        replace(each, nodes=state.nodes) if each.state == "running" and each.job == frame.run.job else each
        for each in frame.cluster.jobs
        if each.run != frame.run.run or each.state == "running"
    )
    return replace(frame.cluster, idle=max(0, free), jobs=jobs)


def _finish(state: _State, last: RunView, speed: Speed) -> float | None:
    per_step = speed.at(state.nodes)
    if state.done is not None:
        return state.done
    if last.steps is None or per_step is None:
        return None
    return state.time + max(0.0, last.steps - state.step) * per_step.value


def _real_finish(last: RunView, speed: Speed) -> float | None:
    per_step = speed.at(last.nodes)
    if last.steps is None or per_step is None:
        return None
    return last.time + max(0, last.steps - last.step) * per_step.value


def _real_node_hours(last: RunView, speed: Speed) -> float:
    finish = _real_finish(last, speed)
    return last.node_hours + (0.0 if finish is None else (finish - last.time) * last.nodes / 3600)
