"""The state of runs as an OpenMetrics text file, for node_exporter's textfile collector and others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from .status import RunStatus

STATES = ("starting", "running", "saving", "leaving", "queued", "finished", "stopped", "failed", "lost")
_GAUGES: tuple[tuple[str, str, Callable[[RunStatus], float | None]], ...] = (
    ("dmr_run_nodes", "Nodes that the run holds.", lambda run: run.nodes),
    ("dmr_run_ranks", "Ranks of the program.", lambda run: run.ranks),
    ("dmr_run_pending_nodes", "Nodes that a waiting successor asks for.", lambda run: run.pending_nodes),
    ("dmr_run_step", "Steps that the program has done.", lambda run: run.step),
    ("dmr_run_steps", "Steps that it has to do.", lambda run: run.steps),
    ("dmr_run_step_seconds", "Seconds a step.", lambda run: run.seconds_per_step),
    ("dmr_run_remaining_seconds", "Seconds until the run is done, at its speed.", lambda run: run.remaining),
    ("dmr_run_checkpoint_timestamp_seconds", "When the last checkpoint was made.", lambda run: run.checkpoint_time),
    ("dmr_run_updated_timestamp_seconds", "When the run last gave a sign of life.", lambda run: run.updated),
)
_COUNTERS: tuple[tuple[str, str, Callable[[RunStatus], float | None]], ...] = (
    ("dmr_run_generations", "Starts of the program.", lambda run: run.generation),
    ("dmr_run_resizes", "Changes of size.", lambda run: run.resizes),
    ("dmr_run_crashes", "Crashes of the program.", lambda run: run.crashes),
    ("dmr_run_node_seconds", "Node-seconds used.", lambda run: 3600 * run.node_hours),
    ("dmr_run_scheduler_queries", "Questions to the scheduler.", lambda run: run.queries),
)


def openmetrics(runs: Iterable[RunStatus]) -> str:
    """Return the text (OpenMetrics 1.0): a state set, gauges and counters, labelled with the run and its folder."""
    found = sorted(runs, key=lambda run: (run.run, run.folder))
    lines = ["# TYPE dmr_run_state stateset", "# HELP dmr_run_state What the run is doing."]
    for run in found:
        for state in STATES:
            lines.append(f'dmr_run_state{{{_labels(run)},dmr_run_state="{state}"}} {int(run.state == state)}')
    for kind, suffix, table in (("gauge", "", _GAUGES), ("counter", "_total", _COUNTERS)):
        for name, text, value in table:
            lines += [f"# TYPE {name} {kind}", f"# HELP {name} {text}"]
            for run in found:
                number = value(run)
                if number is not None and math.isfinite(number):
                    lines.append(f"{name}{suffix}{{{_labels(run)}}} {float(number):.15g}")
    return "\n".join([*lines, "# EOF"]) + "\n"


def _labels(run: RunStatus) -> str:
    return f'run="{_escaped(run.run)}",folder="{_escaped(run.folder)}"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
