"""The start of a program that checkpoints by itself: fresh, or from the newest checkpoint that is whole."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..engines.engine import Engine, Launch
from ..run.options import RunOptions
from ..run.rundir import Generation, RunDir
from ..supervise.console import Console
from .ask import find_ask
from .catalogue import Catalogue, Record
from .description import Start
from .errors import ForeignError
from .load import described
from .log import Log
from .monitor import Interval, Monitor
from .ranks import ForeignRanks
from .report import Report
from .scan import Completeness, Finder, Found
from .sealing import Sealer
from .sizes import refusal
from .words import fill

LEAST_KEPT = 2
"""One checkpoint may turn out to be damaged."""
PREPARE_SECONDS = 3600.0


def start_foreign(engine: Engine, launch: Launch, options: RunOptions, console: Console) -> ForeignRanks:
    """Start one generation, as `Engine.start` does.

    Raises
    ------
    EngineError
        When the program can't be started; with a failure of the run recorded where another try would fail too.
    """
    assert options.app is not None
    app = described(options.app)
    generation = Generation.from_environment(launch.environment)
    assert generation is not None, "a launch carries its generation"
    run, folder = RunDir(generation.folder), launch.folder
    tasks = launch.allocation.tasks_per_node
    nodes = len(launch.allocation.nodes)
    if (why := refusal(app, nodes, tasks)) is not None:
        raise _for_good(run, generation, why)
    catalogue = Catalogue(run.checkpoints, folder)
    record = _newest_whole(catalogue, run, generation, console)
    if record is not None and not app.processes.change and record.ranks != nodes * tasks:
        why = f"{app.name} goes on only with the {record.ranks} processes that wrote {record.name}, not {nodes * tasks}"
        raise _for_good(run, generation, why)
    values = {
        "ranks": str(nodes * tasks), "nodes": str(nodes), "generation": str(generation.number),
        "run_dir": str(run.folder), "folder": str(folder),
    }  # fmt: skip
    finder = Finder(app.files, app.progress, folder)
    if record is not None:
        values |= {"checkpoint": catalogue.root(record), "step": str(record.step)}
    if app.restart.in_place:
        _put_in_place(catalogue, record, finder, generation, console)
    how = app.restart if record is not None else app.start
    environment = {**launch.environment, **{key: fill(value, values) for key, value in how.environment}}
    _prepare(how, values, folder, environment)
    log_path = launch.log if app.progress.log is None else folder / app.progress.log
    assert log_path is not None, "the launcher keeps a log of its ranks"
    # What is there before the start is known, so that only what comes after counts.
    log, completeness = Log(app.progress, app.files, log_path), Completeness(app.files, finder, time.monotonic)
    ranks = engine.start(
        dataclasses.replace(launch, command=command_line(launch.command, how, values), environment=environment)
    )
    report = Report(run, options.run, generation, nodes * tasks, record)
    monitor = Monitor(
        app, run, generation.number, ranks, find_ask(app.request, ranks, folder, environment), log, completeness,
        catalogue, Sealer(catalogue, app.files, generation.number, nodes * tasks), report, console,
        interval=_interval(options.checkpoint_every), keep=max(LEAST_KEPT, options.keep or LEAST_KEPT),
        values=lambda: {**values, "step": str(report.progress.step)},
    )  # fmt: skip
    return ForeignRanks(ranks, monitor)


def command_line(command: Sequence[str], how: Start, values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command line of a start."""
    if how.command:
        words = [fill(word, values) for word in how.command]
    else:
        instead = {word: fill(value, values) for word, value in how.replace}
        words = [instead.get(word, word) for word in command]
    return (*words, *(fill(word, values) for word in how.append))


def _newest_whole(catalogue: Catalogue, run: RunDir, generation: Generation, console: Console) -> Record | None:
    """Return the newest checkpoint whose files are as they were recorded; None when none was ever recorded.

    Raises
    ------
    ForeignError
        When some were recorded, and none is whole.
    """
    records = catalogue.records()
    for record in records:
        why = catalogue.problem(record)
        if why is None:
            return record
        if record.bad is None:
            catalogue.mark_bad(record, why)
            run.append(generation.number, "checkpoint passed over", by_app=True, name=record.name, error=why)
            console.warn(f"checkpoint {record.name} is passed over: {why}")
    if records:
        raise _for_good(
            run, generation, f"none of the {len(records)} checkpoints recorded in {catalogue.checkpoints} is whole any "
            f"more: bring one of their files back, or start a new run in another --run-dir"
        )  # fmt: skip
    return None


def _for_good(run: RunDir, generation: Generation, why: str) -> ForeignError:
    """Record a failure that another try would only repeat."""
    run.claim_failure(generation.number, {"kind": "user", "text": why, "time": time.time()})
    return ForeignError(why)


def _put_in_place(
    catalogue: Catalogue, record: Record | None, finder: Finder, generation: Generation, console: Console
) -> None:
    """See to it that a program that looks for its files by itself finds those of the record, and no part of others."""
    try:
        if record is not None:
            catalogue.restore(record)
        unknown = _unknown(record, finder, generation)
        catalogue.set_aside(unknown, generation.number)
    except OSError as error:
        raise ForeignError(f"restart files can't be put in place: {error.filename}: {error.strerror}") from None
    if unknown:
        names = ", ".join(root for each in unknown for root in each.roots)
        console.say(f"set aside, since they are not known to be whole: {names}")


def _unknown(record: Record | None, finder: Finder, generation: Generation) -> list[Found]:
    if record is not None:
        return [each for each in finder.find().values() if each.step is not None and each.step > record.step]
    if generation.number == 1:
        return []  # what lay there before the run is there because the user wants it
    began = (generation.folder / "run.json").stat().st_mtime_ns
    return [each for each in finder.find().values() if max(file.mtime_ns for file in each.files) >= began]


def _prepare(how: Start, values: Mapping[str, str], folder: Path, environment: Mapping[str, str]) -> None:
    if not how.prepare:
        return
    argv = [fill(word, values) for word in how.prepare]
    try:
        done = subprocess.run(
            argv, cwd=folder, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, errors="replace", timeout=PREPARE_SECONDS,
        )  # fmt: skip
    except OSError as error:
        raise ForeignError(f"prepare: can't start {argv[0]}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise ForeignError(f"prepare: {argv[0]} did not end within {PREPARE_SECONDS:.0f} s") from None
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise ForeignError(f"prepare: {argv[0]} ended with exit status {done.returncode}: {lines[-1] if lines else ''}")


def _interval(every: str | None) -> Interval:
    if every is None:
        return Interval()
    steps = every.removesuffix("steps").removesuffix("step").strip()
    return Interval(steps=int(steps)) if steps != every.strip() else Interval(seconds=float(every))
