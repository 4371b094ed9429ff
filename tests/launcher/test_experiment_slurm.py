"""``dmr experiment`` in a Slurm job: on any part of its nodes, within node-hours."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from dmr.launcher.models.store import ModelStore
from dmr.launcher.run.rundir import RunDir

APP = Path(__file__).parent / "apps" / "three_phases.py"


def conduct(slurm: Any, name: str, node_hours: float, *work: str) -> dict[str, Any]:
    """Conduct an experiment in a job of four nodes; returns what it found."""
    command = [
        "dmr", "experiment", "--nodes", "1:4:pow2", "--steps", "4", "--within", "0.02", "--phases", "solve",
        "--node-hours", str(node_hours), "--run-dir", name, "--json", "--", sys.executable, str(APP), *work,
    ]  # fmt: skip
    script = slurm.folder / "job.sh"
    script.write_text(
        f"#!/bin/bash\n#SBATCH --job-name={name}\n{shlex.join(command)} > {name}.json\necho $? > {name}.status\n"
    )
    slurm.run = RunDir(slurm.folder / name)
    slurm.sbatch("--nodes=4", str(script))
    slurm.wait(lambda: (slurm.folder / f"{name}.status").exists(), "the end of the experiment", 60.0)
    slurm.wait(lambda: not slurm.queue(), "an empty queue", 30.0)
    assert (slurm.folder / f"{name}.status").read_text() == "0\n", slurm.seen()
    found: dict[str, Any] = json.loads((slurm.folder / f"{name}.json").read_text())
    return found


@pytest.mark.slow
def test_an_experiment_goes_through_the_sizes_of_its_job_and_teaches(slurm: Any) -> None:
    found = conduct(slurm, "whole", 0.1, "0.8", "5000", "1", "1")
    assert found["ended"] == "all phases are known well enough at all sizes", found
    assert sorted(each.nodes for each in slurm.history.generations) == [1, 2, 4]
    assert len({each.job for each in slurm.history.generations}) == 1 and slurm.events("submitted") == []
    lasted = slurm.history.generations[-1].end - slurm.history.generations[0].start
    # The job keeps its nodes, and all of them count.
    assert found["node_hours"] == pytest.approx(4 * lasted / 3600, rel=0.02)
    speeds = {each["nodes"]: each for each in found["speeds"] if each["phase"] == "solve"}
    assert [size for size, each in speeds.items() if each["measured"]] == [1, 2, 4]
    assert speeds[1]["seconds_per_step"] == pytest.approx(0.8, rel=0.3)
    (entry,) = ModelStore(slurm.folder / "models").read()[0].entries.values()
    assert entry.key.program == "three_phases.py" and entry.sizes("solve") == (1, 2, 4)
    assert "solve" in slurm.dmr("model", "show", "three_phases.py").stdout


@pytest.mark.slow
def test_an_experiment_ends_with_its_node_hours(slurm: Any) -> None:
    found = conduct(slurm, "short", 0.01, "4", "5000", "1", "1")
    assert found["ended"] == "the 0.01 node-hours are used up"
    # It is told to end in whatever state it is: what is used beyond that is a look at the files, a start that had
    # begun, which has ten seconds to leave, and the end, where Slurm may list a step whose processes are gone.
    assert 0.01 <= found["node_hours"] <= 0.01 + 4 * 20.0 / 3600
    assert slurm.history.generations[-1].why == "stopped"
    (entry,) = ModelStore(slurm.folder / "models").read()[0].entries.values()
    assert 4 in entry.sizes("solve")
