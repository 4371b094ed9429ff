"""What should be asked for, when and why: for a run that is alive from now on, for one that has ended next time."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...resize.decide import decide
from ...resize.explain import decision_to_json
from ...resize.phases.online import Recognised
from ...resize.policies.phases import Phases, Planned
from ...resize.policy import load_policy
from ...resize.record import cluster_from_json, run_from_json
from ...resize.situation import Situation
from ...resize.view import ClusterView, Decision, RunView
from ..run.history import FINAL, read_history
from ..run.options import RunOptions
from ..run.rundir import RunDir, RunDirError
from ..run.status import LIVE, read_status
from ..run.undecided import why_undecided
from .foresight import Foresight


@dataclass(frozen=True)
class Advised:
    """What the policy ``phases`` would do now, and what it plans for the phases to come."""

    view: RunView
    decision: Decision
    schedule: tuple[Planned, ...]

    def to_json(self) -> dict[str, Any]:
        view = self.view
        return {
            "run": view.run, "time": view.time, "step": view.step, "steps": view.steps, "phase": view.phase,
            "phase_confidence": view.phase_confidence,
            "nodes": view.nodes, "pending": view.pending, "caveats": list(view.caveats),
            "decision": decision_to_json(self.decision),
            "schedule": [dataclasses.asdict(each) for each in self.schedule],
        }  # fmt: skip


def advise_now(run: RunDir, options: Mapping[str, str], now: float | None = None) -> Advised:
    """Return the advice for a run as it is now.

    Parameters
    ----------
    options
        Options of the policy ``phases``.

    Raises
    ------
    RunDirError
        When no decision has been made yet, so that the queue was never seen.
    """
    now = time.time() if now is None else now
    events = run.events()
    history = read_history(events)
    view, cluster = _last_views(events, run)
    progress = run.read_progress()
    last = history.last
    if progress is not None and last is not None and progress.generation == last.number:
        view = dataclasses.replace(view, step=progress.step, steps=progress.steps, phase=progress.phase)
    if last is not None:
        view = dataclasses.replace(view, nodes=last.nodes, generation=last.number, since=last.start)
    pending = history.open_successor
    view = dataclasses.replace(
        view, time=now, node_hours=history.node_hours(now), pending=pending.nodes[1] if pending else None,
        pending_job=pending.job if pending else None, inhibited_until=0.0, suggestion="policy",
    )  # fmt: skip
    bare = dataclasses.replace(view, ahead=(), caveats=(), earlier=())
    if view.phase_confidence is not None:
        bare = dataclasses.replace(bare, phase=None, phase_confidence=None)
    view = Foresight(run, RunOptions.of_run(run)).completed(bare, history, _recognised(run, view))
    policy = load_policy("phases", {"dwell": "0", **options})
    assert isinstance(policy, Phases)
    situation = Situation(view, cluster, policy.rules)
    return Advised(view, decide(view, cluster, policy), policy.outlook(situation))


def _recognised(run: RunDir, view: RunView) -> Recognised | None:
    """Return the phase as the launcher recognised it last, None where it does not look."""
    launcher = run.read_launcher()
    if launcher is None or launcher.generation != view.generation:
        return None
    if launcher.phase_confidence is not None:
        return Recognised(launcher.phase, launcher.phase_confidence, confirmed=True)
    return None if view.phase_confidence is None else Recognised(None, 0.0)


def _last_views(events: list[dict[str, Any]], run: RunDir) -> tuple[RunView, ClusterView]:
    for event in reversed(events):
        if event.get("event") == "decided" and "run" in event and "cluster" in event:
            try:
                return run_from_json(event["run"]), cluster_from_json(event["cluster"])
            except ValueError:
                continue
    raise RunDirError(why_undecided(run))


def how_it_ended(run: RunDir) -> str | None:
    """Return the state of a run that does no more, because it has ended or its launcher is gone; None of others."""
    last = read_history(run.events(skip=("decided",))).last
    if last is not None and last.why in FINAL:
        return last.why
    state = read_status(run).state
    return None if state in LIVE else state
