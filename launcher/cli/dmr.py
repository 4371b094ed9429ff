"""``dmr``: look at runs and steer them.

Each command lives in a module of its own that is imported when the command is called; a new one is
a line in `COMMANDS`.
"""

from __future__ import annotations

from typing import NoReturn

import click

from . import LazyGroup, run_command

COMMANDS = {
    "advise": (".advise:advise", "What a run should ask for, when and why."),
    "checkpoint": (".steer:checkpoint", "Ask a live run to save now and go on."),
    "ckpt": (".ckpt:ckpt", "List, show and check the checkpoints of a run."),
    "cluster": (".cluster:cluster", "A private Slurm on this machine, without root."),
    "completion": (".completion:completion", "Shell completion for bash, zsh and fish."),
    "doctor": (".doctor:doctor", "What this place allows, and what to do about the rest."),
    "experiment": (".experiment:experiment", "Measure how a program scales, phase by phase."),
    "explain": (".decisions:explain", "Print the table behind a run's decisions."),
    "history": (".look:history", "One line a generation: size, times, why it ended."),
    "model": (".model:model", "What earlier runs taught of a program."),
    "replay": (".decisions:replay", "What another policy would have done in a run."),
    "report": (".report:report", "What runs were worth: phases, use, verdicts, advice."),
    "resize": (".steer:resize", "Ask a live run for another size."),
    "resume": (".steer:resume", "Continue a run whose launcher is gone."),
    "simulate": (".simulate:simulate", "Simulate malleable jobs on a workload."),
    "status": (".look:status", "State, step, size and pending successor of runs."),
    "stop": (".steer:stop", "Save and end a live run."),
    "top": (".top:top", "This user's runs, live."),
}
"""Name of each command → (module and attribute, what it does)."""


@click.command(
    cls=LazyGroup,
    table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="A RUN is a run directory, or a run's id below ./dmr-runs.",
)
@click.version_option(package_name="dmr-malleable", prog_name="dmr")
def group() -> None:
    """Look at malleable runs and steer them. Runs are started with dmr-launch.

    \b
    Examples:
      dmr status                          all runs below ./dmr-runs
      dmr resize dmr-runs/heat --nodes 4  another size, from outside
      dmr history heat --json             what happened, for scripts
    """


def main() -> NoReturn:
    """Entry point of the program ``dmr``."""
    run_command(group, "dmr")
