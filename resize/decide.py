"""From a run and a cluster to a decision: what binds every policy, then the policy itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TypeVar

from . import words
from .outlook import Survey
from .policy import Policy, PolicyError, Proposal
from .situation import Rules, Situation
from .sizes import next_larger, next_smaller
from .view import ActionName, Choice, ClusterView, Decision, RunView

T = TypeVar("T")


def decide(
    run: RunView, cluster: ClusterView, policy: Policy, *, table: bool = True, survey: Survey | None = None
) -> Decision:
    """Decide whether to change the size of a run, and to what.

    A pure function of its arguments, the same in the launcher, in the simulation and in a replay.

    Parameters
    ----------
    run, cluster
        What is known now. ``run.time`` is the time of the decision.
    policy
        Asked when nothing binding has settled it before. In this order: a handover under way; the
        application's inhibitor; its suggestion (stay, or expand or shrink to the size that it set, else to
        the next allowed one; the dwell time does not hold back an explicit suggestion); a present size
        that is not allowed; the end of the allocation too near; the dwell time; the bounds on changes.
    table
        Whether to fill the table; without it only the choice is made.
    survey
        ``Survey(cluster)``, where the caller has it already.

    Returns
    -------
    Decision
        ``shrink`` and ``expand`` name the size to go to. With a successor waiting, ``expand`` to another
        size asks to change what it waits for, ``stay`` keeps it, and ``cancel`` gives it up. A shrink is to
        give up a waiting successor, too.

    Raises
    ------
    ValueError
        When the run has no allowed sizes.
    PolicyError
        When the policy raised anything; the message names its own line.
    """
    if not run.sizes:
        raise ValueError(f"run {run.run} has no allowed sizes")
    situation = Situation(run, cluster, policy.rules, survey, detailed=table)
    settled = _binding(situation)
    proposal = settled if settled is not None else _bounded(situation, _proposed(policy, situation))
    action, nodes, reason = _action(situation, proposal)
    rows = _table(situation, proposal, nodes) if table else ()
    facts = {**_facts(situation), **proposal.facts} if table else dict(proposal.facts)
    return Decision(action, nodes, reason, policy.name, rows, facts, proposal.limit, proposal.again)


def _binding(situation: Situation) -> Proposal | None:
    run, rules = situation.run, situation.rules
    if run.job is not None and situation.outlook.own_other:
        return Proposal(run.nodes, "a successor has started and takes over")
    if run.time < run.inhibited_until:
        return Proposal(run.nodes, f"the application wants no change for {run.inhibited_until - run.time:.0f} s more")
    if run.suggestion != "policy":
        return _suggested(situation)
    if run.end is not None and run.end - run.time <= 2 * situation.cost(run.nodes).total and run.pending is None:
        return Proposal(run.nodes, "the allocation ends before a change would pay")
    held = run.time - run.since
    if held < rules.dwell and run.pending is None and run.nodes in run.sizes:
        return Proposal(run.nodes, f"at this size for {held:.0f} s, to be kept for {rules.dwell:.0f} s")
    if rules.max_resizes is not None and run.resizes >= rules.max_resizes:
        reason = f"{words.count(rules.max_resizes, 'change')} made, as many as max_resizes allows"
        return Proposal(run.nodes, reason, cancel=run.pending is not None)
    return None


def _suggested(situation: Situation) -> Proposal:
    run = situation.run
    if run.suggestion == "stay":
        return Proposal(run.nodes, "the application suggests to stay", cancel=run.pending is not None)
    if run.suggestion == "expand":
        wanted = run.expand_to if run.expand_to is not None else next_larger(situation.sizes, run.nodes)
        if wanted is None or wanted <= run.nodes:
            return Proposal(run.nodes, "the application suggests to expand, but is at its largest size")
    else:
        wanted = run.shrink_to if run.shrink_to is not None else next_smaller(situation.sizes, run.nodes)
        if wanted is None or wanted >= run.nodes:
            return Proposal(run.nodes, "the application suggests to shrink, but is at its smallest size")
    if wanted not in situation.sizes:
        return Proposal(run.nodes, f"the application suggests {words.nodes(wanted)}, which is not an allowed size here")
    return Proposal(wanted, f"the application suggests to {run.suggestion}")


def asked(policy: Policy, method: Callable[..., T], *args: object) -> T:
    """Call a method of a policy; whatever it raises becomes a `PolicyError` that names the policy's own line."""
    try:
        return method(*args)
    except PolicyError:
        raise
    except Exception as error:  # a user's own policy may raise anything
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise PolicyError(f"the policy {policy.name} failed ({_line(policy, error)}): {what}") from error


def _line(policy: Policy, error: Exception) -> str:
    """Return the innermost line of the policy's own file, else of any, in which an error came up."""
    own = getattr(getattr(type(getattr(policy, "inner", policy)), "propose", None), "__code__", None)
    lines = [(each.tb_frame.f_code.co_filename, each.tb_lineno) for each in _frames(error)]
    file, line = next((each for each in reversed(lines) if own and each[0] == own.co_filename), lines[-1])
    return f"{file}, line {line}"


def _frames(error: Exception) -> Iterator[TracebackType]:
    frame = error.__traceback__
    while frame is not None:
        yield frame
        frame = frame.tb_next


def _proposed(policy: Policy, situation: Situation) -> Proposal:
    proposal: object = asked(policy, policy.propose, situation)
    if not isinstance(proposal, Proposal):
        raise PolicyError(f"the policy {policy.name} returned {proposal!r}, not a dmr.resize.policy.Proposal")
    return proposal


def _bounded(situation: Situation, proposal: Proposal) -> Proposal:
    run, rules = situation.run, situation.rules
    if proposal.nodes != run.nodes and proposal.nodes not in situation.sizes:
        return Proposal(run.nodes, f"the policy wants {words.nodes(proposal.nodes)}, which is not an allowed size here")
    if proposal.nodes > run.nodes and rules.max_node_hours is not None:
        hours = situation.row(proposal.nodes).node_hours
        if (run.node_hours if hours is None else hours) >= rules.max_node_hours:
            reason = f"{words.nodes(proposal.nodes)} would exceed the budget of {rules.max_node_hours:g} node-hours"
            return Proposal(run.nodes, reason, run.pending is not None, {**proposal.remarks, proposal.nodes: reason})
    return proposal


def _action(situation: Situation, proposal: Proposal) -> tuple[ActionName, int, str]:
    run = situation.run
    if proposal.nodes < run.nodes:
        return "shrink", proposal.nodes, proposal.reason
    if proposal.nodes > run.nodes:
        if run.pending == proposal.nodes:
            return "stay", run.nodes, f"a successor of {words.nodes(run.pending)} waits already; {proposal.reason}"
        return "expand", proposal.nodes, proposal.reason
    if proposal.cancel and run.pending is not None:
        return "cancel", run.nodes, proposal.reason
    return "stay", run.nodes, proposal.reason


def _table(situation: Situation, proposal: Proposal, nodes: int) -> tuple[Choice, ...]:
    rows = []
    for size in sorted({*situation.sizes, situation.run.nodes}):
        reason = proposal.reason if size == proposal.nodes else proposal.remarks.get(size, "")
        if not reason:
            reason = f"{proposal.nodes} is better" if proposal.remarks else "not asked for"
        rows.append(dataclasses.replace(situation.row(size), taken=size == nodes, reason=reason))
    return tuple(rows)


def _facts(situation: Situation) -> dict[str, float | str]:
    run, outlook = situation.run, situation.outlook
    facts: dict[str, float | str] = {
        "time": run.time,
        "nodes": run.nodes,
        "idle": situation.cluster.idle,
        "total": situation.cluster.total,
        "waiting": len(outlook.waiting),
        "cannot_start": outlook.passed_over,
        "cost_basis": "measured" if situation.cost(run.nodes).measured else "assumed in part, not yet measured",
        "speed_basis": situation.speed.basis,
    }
    if outlook.now.head is not None:
        facts["head"] = outlook.now.head.job
        facts["head_nodes"] = outlook.now.head.nodes
    if situation.steps_left is not None:
        facts["steps_left"] = situation.steps_left
    if run.pending is not None:
        facts["pending"] = run.pending
    if run.phase_confidence is not None:
        facts["phase"] = run.phase if run.phase is not None else "like none that is known"
        facts["phase_confidence"] = run.phase_confidence
    return facts


__all__ = ["Rules", "asked", "decide"]
