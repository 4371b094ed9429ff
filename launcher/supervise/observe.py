"""From what was measured on this run to the view that a decision is made from. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...resize.view import Costs, CostSample, Rate, RunView
from ..engines.engine import Allocation
from ..run.history import GenerationRecord, History
from ..run.options import RunOptions
from .application import Application
from .handover import Successor

RECENT = 5
"""Costs are the mean over so many generations that measured them."""


def run_view(
    now: float,
    options: RunOptions,
    history: History,
    application: Application,
    allocation: Allocation,
    successor: Successor | None,
    *,
    since: float,
    in_place: bool,
    no_shrink: bool = False,
) -> RunView:
    """Build the view of the run at one time.

    Parameters
    ----------
    history
        Everything up to this generation.
    application
        The ranks of this generation, which has reported.
    since
        When the current size began.
    in_place
        Whether growth takes only the additional nodes.
    no_shrink
        Whether the job can't give nodes back (any more).
    """
    progress = application.progress
    assert progress is not None, "a view is built once the program has reported"
    past = [each for each in history.generations if each.number != application.number]
    rates = [Rate(each.nodes, seconds, steps, phase) for each in past for phase, seconds, steps in each.rates]
    rates += [Rate(application.nodes, seconds, steps, phase) for phase, seconds, steps in application.rates()]
    return RunView(
        time=now,
        run=options.run,
        generation=application.number,
        nodes=application.nodes,
        sizes=options.sizes,
        since=since,
        step=progress.step,
        steps=progress.steps,
        job=allocation.job,
        rates=tuple(rates),
        costs=costs(history.generations, application.save_seconds() if progress.checkpoint else None),
        state_bytes=progress.state_bytes,
        phase=progress.phase,
        suggestion=progress.suggestion,
        inhibited_until=progress.inhibited_until,
        pending=successor.nodes[1] if successor else None,
        pending_since=successor.submitted if successor else None,
        pending_job=successor.job if successor else None,
        end=allocation.end,
        node_hours=history.node_hours(now),
        resizes=history.resizes,
        waits=history.waits,
        expand_to=application.nodes + progress.expand_by if progress.expand_by else None,
        shrink_to=application.nodes - progress.shrink_by if progress.shrink_by else None,
        in_place=in_place,
        no_shrink=no_shrink,
        resize_costs=tuple(
            CostSample(each.nodes, progress.state_bytes, each.save, each.launch, each.load)
            for each in history.generations
            if (each.save, each.launch, each.load) != (None, None, None)
        ),
        started=min((each.start for each in history.generations), default=None),
    )


def costs(generations: Sequence[GenerationRecord], last_save: float | None) -> Costs:
    """Return what saving, launching and loading cost lately."""
    save = _recent(each.save for each in generations)
    return Costs(
        save if save is not None else last_save,
        _recent(each.launch for each in generations),
        _recent(each.load for each in generations),
    )


def _recent(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None][-RECENT:]
    return sum(found) / len(found) if found else None
