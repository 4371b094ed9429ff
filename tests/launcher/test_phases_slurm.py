"""A program with three phases that scale differently, three times on a real Slurm: each run teaches the next."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dmr.launcher.models.store import ModelStore
from dmr.launcher.run.history import read_history
from dmr.launcher.run.rundir import RunDir

pytest.importorskip("psutil")
pytest.importorskip("ruptures")

APP = Path(__file__).parent / "apps" / "three_phases.py"
WORK = ("1.5", "250", "150", "50")
"""Seconds of a step on one node, and steps of solve, write and mesh: 95, 207 and 30 s on 4 nodes."""


def run_once(
    bench: Any, name: str, policy: str, app: Path = APP, work: tuple[str, ...] = WORK
) -> tuple[float, float, list[int]]:
    """Run the program to its end; returns seconds, node-hours and sizes."""
    command = ["dmr-launch", "--query-interval", "2", "--dwell", "1", "--policy", policy, "--nodes", "1:8:pow2",
               "--run-dir", name, "--", sys.executable, str(app), *work]  # fmt: skip
    script = bench.folder / "job.sh"
    script.write_text(f"#!/bin/bash\n#SBATCH --job-name={name}\nexport DMR_CHECK_INTERVAL=0.3\n{shlex.join(command)}\n")
    bench.sbatch("--nodes=4", str(script))
    run = RunDir(bench.folder / name)
    bench.wait(lambda: (run.folder / "run.json").exists(), "a start", 30.0)
    bench.wait(lambda: read_history(run.events()).finished, "the end of the run", 900.0)
    bench.wait(lambda: not bench.queue(), "an empty queue", 60.0)
    history = read_history(run.events())
    last = history.generations[-1]
    assert last.end is not None
    return last.end - history.generations[0].start, history.node_hours(0.0), [g.nodes for g in history.generations]


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("DMR_LONG"), reason="takes eighteen minutes: DMR_LONG=1 runs it")
def test_the_second_run_asks_for_what_each_phase_needs_and_the_third_is_not_worse(
    cluster_factory: Callable[..., Any], slurm_on: Callable[..., Any]
) -> None:
    bench = slurm_on(cluster_factory(12))
    time_1, hours_1, sizes_1 = run_once(bench, "first", "static")
    time_2, hours_2, sizes_2 = run_once(bench, "second", "phases")
    time_3, hours_3, sizes_3 = run_once(bench, "third", "phases")
    told = "; ".join(
        f"{seconds:.1f} s, {hours:.4f} node-hours on {sizes}"
        for seconds, hours, sizes in (
            (time_1, hours_1, sizes_1), (time_2, hours_2, sizes_2), (time_3, hours_3, sizes_3)
        )
    )  # fmt: skip
    print(told)
    assert sizes_1 == [4]
    cheaper = hours_2 <= 0.75 * hours_1 and time_2 <= 1.05 * time_1
    faster = time_2 <= 0.8 * time_1 and hours_2 <= hours_1
    assert cheaper or faster, told
    assert hours_3 <= 1.05 * hours_2 and time_3 <= 1.05 * time_2, told

    book, damaged = ModelStore(bench.folder / "models").read()
    (entry,) = book.entries.values()
    assert damaged == () and len(entry.runs) == 3 and set(entry.phases) == {"solve", "write", "mesh"}
    assert len(entry.sizes("write")) >= 2
    report = bench.dmr("report", "first", "second", "third", "--text")
    assert report.returncode == 0 and "--policy phases" in report.stdout, report.stderr


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("DMR_LONG"), reason="takes three minutes: DMR_LONG=1 runs it")
def test_the_second_run_of_a_program_that_declares_nothing_asks_by_itself(slurm: Any) -> None:
    undeclared, work = APP.with_name("undeclared.py"), ("1.6", "40", "30")
    time_1, hours_1, sizes_1 = run_once(slurm, "first", "static", undeclared, work)
    time_2, hours_2, sizes_2 = run_once(slurm, "second", "phases", undeclared, work)
    print(f"{time_1:.1f} s, {hours_1:.4f} node-hours on {sizes_1}; {time_2:.1f} s, {hours_2:.4f} on {sizes_2}")
    said = [each for each in RunDir(slurm.folder / "second").events() if each["event"] == "recognised"]
    print([(each["phase"], each["step"], round(each["confidence"], 3)) for each in said])
    print(slurm.dmr("report", "second", "--text").stdout)
    assert {each["phase"] for each in said} == {"phase 1", "phase 2"}
    assert sizes_1 == [4] and sizes_2[-1] < 4
    assert hours_2 <= 0.85 * hours_1 and time_2 <= 1.25 * time_1
    book, _ = ModelStore(slurm.folder / "models").read()
    (entry,) = book.entries.values()
    assert set(entry.phases) == {"phase 1", "phase 2"} and len(entry.sizes("phase 2")) >= 2
