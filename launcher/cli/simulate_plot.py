"""Pictures of simulations: nodes in use over time, and how long jobs take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...resize.words import how_to_install
from . import fail

if TYPE_CHECKING:
    from ...resize.simulate.experiment import Regime
    from ...resize.simulate.workload import Workload

COLOURS = ("#4d4d4d", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
"""Okabe and Ito's, told apart by the colour-blind."""


def draw(path: Path, workload: Workload, nodes: int, regimes: list[Regime], seed: int) -> None:
    """Write the picture of one seed; the file's ending says the format."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib.figure import Figure
    except ImportError:
        fail(f"--plot needs matplotlib: {how_to_install('plot')}")
    schedules = [(regime.name, regime.run(workload, nodes, seed, keep_usage=True)) for regime in regimes]
    figure = Figure(figsize=(10, 7), layout="constrained")
    upper, lower = figure.subplots(2, 1)
    first = workload.jobs[0].submit
    for (name, schedule), colour in zip(schedules, COLOURS * len(schedules), strict=False):
        hours = [(when - first) / 3600 for when, _ in schedule.usage]
        upper.step(hours, [used for _, used in schedule.usage], where="post", color=colour, label=name, lw=1)
        taken = sorted((each.end - each.job.submit) / 3600 for each in schedule.outcomes)
        share = [(place + 1) / len(taken) for place in range(len(taken))]
        lower.step(taken, share, where="post", color=colour, label=name)
    upper.set(xlabel="hours", ylabel="nodes in use", ylim=(0, nodes * 1.02))
    lower.set(xlabel="turnaround, hours", ylabel="share of jobs", xscale="log", ylim=(0, 1))
    for each in (upper, lower):
        each.grid(alpha=0.3)
    handles, labels = upper.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        fail(f"can't draw {path}: {error}")
