"""An incremental scaling experiment: one malleable run that is taken through the sizes, phase by phase.

The run is started as any other, with the policy ``static``; this process watches its progress, asks for sizes as
``dmr resize`` does, and stops it when enough is known or the node-hours are used up. A Slurm job keeps its nodes
meanwhile, and the run goes on any part of them: so it can go where most is to be learnt, whatever the site allows, and
never into another job that nobody would watch.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...resize import words
from ...resize.phases.experiment import Trial, is_known, next_trial
from ...resize.view import Rate
from ..run.history import FINAL, History, read_history
from ..run.requests import Requests
from ..run.rundir import Progress, RunDir

POLL = 0.25
STDERR = 2
STOP_SECONDS = 120.0
RESIZE_SECONDS = 300.0
"""A size that has not come in that time is given up."""
WAIT_SECONDS = 30.0
"""Phases that may still come are waited for as long as was useful before, and no less than this."""
FUTILE = 10
"""So many times the steps of a measurement that could not be counted are enough."""


@dataclass(frozen=True)
class Design:
    """What an experiment is to find out, and what it may cost.

    ``phases`` are those that have to be measured before it ends, None for those that it comes across. ``held`` are the
    nodes of the job, which all count while it lasts; None for those that are used.
    """

    sizes: tuple[int, ...]
    steps: int = 10
    within: float = 0.1
    node_hours: float | None = None
    held: int | None = None
    phases: tuple[str, ...] | None = None


@dataclass
class Meter:
    """Measures seconds a step by phase and size from the reports of a run."""

    measured: dict[tuple[str | None, int], list[float]] = field(default_factory=dict)
    seen: list[str | None] = field(default_factory=list)
    _before: Progress | None = None

    def take(self, progress: Progress, nodes: int) -> None:
        """Take a report of the run on so many nodes."""
        before, self._before = self._before, progress
        if not self.seen or self.seen[-1] != progress.phase:
            self.seen.append(progress.phase)
        if before is None or before.token != progress.token or before.phase != progress.phase:
            return
        steps = progress.step - before.step
        if steps > 0 and progress.seconds_per_step is not None:
            entry = self.measured.setdefault((progress.phase, nodes), [0.0, 0.0])
            entry[0] += steps
            entry[1] += steps * progress.seconds_per_step

    @property
    def rates(self) -> list[Rate]:
        return [
            Rate(nodes, seconds / steps, int(steps), phase)
            for (phase, nodes), (steps, seconds) in self.measured.items()
            if steps >= 1
        ]

    @property
    def came_again(self) -> bool:
        """Whether a phase has come a second time, so that those between are all there are as far as can be told."""
        return len(self.seen) > len(set(self.seen))


@dataclass
class Standstill:
    """Notices that an experiment learns nothing any more.

    It does when steps are counted that were wanted, and when a size comes that was asked for.
    """

    steps: int
    _state: tuple[int, int] | None = None
    _began: float = 0.0
    _useful: float = 0.0
    _step: int = 0

    def take(self, rates: Sequence[Rate], nodes: int, step: int, now: float) -> None:
        """Take note of what is measured at step ``step`` on so many nodes."""
        state = (nodes, sum(min(each.steps, self.steps) for each in rates))
        if state != self._state:
            if self._state is None:
                self._began = now
            self._state, self._useful, self._step = state, now, step

    def idle(self, now: float) -> float:
        """Return the seconds since something was learnt, 0 as long as waiting may be worth it."""
        seconds = now - self._useful
        return seconds if seconds > max(WAIT_SECONDS, self._useful - self._began) else 0.0

    def is_futile(self, step: int, now: float) -> bool:
        """Whether the program does many steps, none of which can be counted."""
        return step - self._step > FUTILE * self.steps and self.idle(now) > 0


class Experiment:
    """Takes one run through its sizes.

    Parameters
    ----------
    argv
        Command line of the launcher.
    say
        Takes lines for the user.
    """

    def __init__(
        self,
        run: RunDir,
        argv: Sequence[str],
        design: Design,
        say: Callable[[str], None],
        poll: float = POLL,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.run, self.design, self.say, self._clock = run, design, say, clock
        self.meter = Meter()
        self._argv, self._poll = list(argv), poll
        self._asked: tuple[int, float] | None = None
        self._refused: set[int] = set()
        self._told: set[tuple[str | None, int, str]] = set()
        self._standstill = Standstill(design.steps)

    def conduct(self) -> tuple[int, str]:
        """Run it to its end; returns the launcher's exit status and why it ended."""
        # The program's own output is beside what was found, which scripts read.
        process = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL, stdout=STDERR)
        why = "the program ended"
        stopping: float | None = None
        try:
            while process.poll() is None:
                time.sleep(self._poll)
                reason = self._turn() if stopping is None else None
                if reason is not None:
                    why, stopping = reason, time.monotonic()
                    self.say(f"enough: {reason}")
                    Requests(self.run).post("stop", now=True, by="experiment")
                if stopping is not None and time.monotonic() - stopping > STOP_SECONDS:
                    process.send_signal(signal.SIGTERM)
                    stopping = time.monotonic()
        except BaseException:
            process.send_signal(signal.SIGTERM)
            process.wait()
            raise
        return process.returncode, why

    def _turn(self) -> str | None:
        """Look, and ask for what is to be measured next; returns why to stop."""
        if not (self.run.folder / "run.json").exists():
            return None
        history = read_history(event for event in self.run.events() if event.get("event") != "decided")
        # Before anything of the ranks is looked at: while they start they cost what they cost later.
        if self.design.node_hours is not None and self.node_hours(history) >= self.design.node_hours:
            return f"the {self.design.node_hours:g} node-hours are used up"
        progress, last = self.run.read_progress(), history.last
        if last is None or progress is None or progress.generation != last.number or progress.token != last.token:
            return None
        self.meter.take(progress, last.nodes)
        if progress.state not in ("running", "saving") or self._is_changing(history):
            return None
        return self._decide(progress, last.nodes)

    def node_hours(self, history: History) -> float:
        """Return what was used: the nodes of a job all count, from the run's beginning on."""
        now, held = time.time(), self.design.held
        if held is None or not history.generations:
            return history.node_hours(now)
        last = history.generations[-1]
        end = last.end if last.end is not None and last.why in FINAL else now
        return max(history.node_hours(now), held * (end - history.generations[0].start) / 3600)

    def _decide(self, progress: Progress, nodes: int) -> str | None:
        design, rates, now = self.design, self.meter.rates, self._clock()
        trial: Trial = next_trial(
            rates, progress.phase, self._reachable(), nodes, within=design.within, steps=design.steps
        )
        self._standstill.take(rates, nodes, progress.step, now)
        self._tell(progress.phase, nodes, trial)
        if trial.action == "size":
            self.say(f"to {trial.nodes} node{'s' * (trial.nodes > 1)}{_of(progress.phase)}: {trial.reason}")
            Requests(self.run).post("resize", nodes=trial.nodes, by="experiment")
            self._asked = (trial.nodes, now)
        elif trial.action == "done" and self._complete(progress.phase):
            return "all phases are known well enough at all sizes"
        elif trial.action == "done":
            return self._waited_enough(now)
        elif self._standstill.is_futile(progress.step, now):
            return f"the steps{_of(progress.phase)} can't be measured: it is over before two reports of it have come"
        return None

    def _waited_enough(self, now: float) -> str | None:
        """Return why not to wait any longer for phases that are not known; None while it is worth it."""
        seen = list(dict.fromkeys(self.meter.seen))
        idle = self._standstill.idle(now)
        if not idle or any(each not in seen for each in self.design.phases or ()):
            return None
        names = [each for each in seen if self.design.phases is None or each in self.design.phases]
        missing = [each for each in names if not self._is_known([each])]
        if not missing:
            return f"all phases that came are known well enough at all sizes, and for {idle:.0f} s no other came"
        phases = ", ".join(each or "what is no phase" for each in missing)
        return f"{phases} did not come again for {idle:.0f} s: not known well enough at all sizes, and no more to learn"

    def _tell(self, phase: str | None, nodes: int, trial: Trial) -> None:
        """Tell what is measured, and what was, each once."""
        where, steps = f"{nodes} node{'s' * (nodes > 1)}", self.design.steps
        if trial.action == "measure":
            self._once(phase, nodes, "begun", f"measuring {words.count(steps, 'step')}{_of(phase)} on {where}")
        own = next((each for each in self.meter.rates if (each.phase, each.nodes) == (phase, nodes)), None)
        if own is not None and own.steps >= steps:
            speed = f"{own.seconds_per_step:.3g} s a step{_of(phase)} on {where}"
            self._once(phase, nodes, "measured", f"{speed}, {self._known(phase)}")
        if trial.action == "done" and not self._complete(phase):
            what = phase or "this"
            self._once(phase, 0, "waiting", f"{what} is known at all sizes; waiting for what is not, or for the end")

    def _known(self, phase: str | None) -> str:
        """Return how far it is with a phase, in words."""
        own = [each for each in self.meter.rates if each.phase == phase]
        enough = {each.nodes for each in own if each.steps >= self.design.steps}
        return f"{len(enough)} of {len(self.design.sizes)} sizes measured"

    def _once(self, phase: str | None, nodes: int, what: str, text: str) -> None:
        if (phase, nodes, what) not in self._told:
            self._told.add((phase, nodes, what))
            self.say(text)

    def _complete(self, phase: str | None) -> bool:
        design = self.design
        wanted = design.phases
        if wanted is None and phase is not None and not self.meter.came_again:
            return False  # there may be phases that have not come yet
        names: Sequence[str | None] = wanted if wanted is not None else list(dict.fromkeys(self.meter.seen))
        return self._is_known(names)

    def _is_known(self, phases: Sequence[str | None]) -> bool:
        design = self.design
        return is_known(self.meter.rates, phases, self._reachable(), within=design.within, steps=design.steps)

    def _reachable(self) -> list[int]:
        return [size for size in self.design.sizes if size not in self._refused]

    def _is_changing(self, history: History) -> bool:
        """Whether a size that was asked for has not come yet; one that does not come is not asked for again."""
        if self._asked is None:
            return False
        nodes, since = self._asked
        if history.last is not None and history.last.nodes == nodes:
            self._asked = None
            return False
        if self._clock() - since > RESIZE_SECONDS:
            self.say(f"{words.count(nodes, 'node was', 'nodes were')} not to be had: going on without")
            self._refused.add(nodes)
            self._asked = None
            return False
        return True


def _of(phase: str | None) -> str:
    return f" of {phase}" if phase else ""


def launcher_argv(run_dir: Path, sizes: str, options: Sequence[str], command: Sequence[str]) -> list[str]:
    """Return the command line that starts the run of an experiment."""
    return [
        sys.executable, "-P", "-c", "from dmr.launcher.cli.launch import main; main()",
        "--nodes", sizes, "--run-dir", str(run_dir), "--policy", "static", "--no-learn", "--quiet", *options, "--",
        *command,
    ]  # fmt: skip


def job_nodes(environ: Mapping[str, str] = os.environ) -> int | None:
    """Return the number of nodes of the Slurm job around this process, None outside of one."""
    if "SLURM_JOB_ID" not in environ:
        return None
    given = environ.get("SLURM_JOB_NUM_NODES") or environ.get("SLURM_NNODES") or ""
    return int(given) if given.isdigit() else 1
