"""Debian's LAMMPS, as it is: a melt that changes size on a real Slurm."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
ATOMS = 2048

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("lmp") is None, reason="no LAMMPS: make setup LAMMPS=1, or apt-get install lammps"
    ),
]


def slowed(name: str, folder: Path) -> None:
    """Write an input that pauses between steps, so that there is time to change its size."""
    text = (HERE / name).read_text()
    assert text.count("run             ${steps} upto") == 1
    paced = text.replace("${steps} upto", '${steps} upto every 100 "shell sleep 0.15"')
    (folder / name).write_text(paced)


def submit(slurm: Any, profile: str, name: str, steps: int) -> None:
    slowed(name, slurm.folder)
    launch = shlex.join(
        ["dmr-launch", "--nodes", "1:3", "--query-interval", "2", "--dwell", "1h", "--run-dir", "run", "--app", profile,
         "--", "lmp", "-in", name, "-var", "steps", str(steps)]
    )  # fmt: skip
    (slurm.folder / "job.sh").write_text(f"#!/bin/bash\nexport OMP_NUM_THREADS=1\n{launch}\n")
    slurm.cluster.run(
        ["sbatch", "--parsable", "--time=10", "--nodes=1", "--ntasks-per-node=1", "--output=out-%j.txt", "job.sh"],
        cwd=slurm.folder,
        env={"PATH": f"{BIN}:{slurm.cluster.env['PATH']}", "OMPI_ALLOW_RUN_AS_ROOT": "1",
             "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
    )  # fmt: skip


def thermo(log: Path) -> Iterator[tuple[int, list[float]]]:
    """Give step and values of each line of thermodynamic output."""
    for line in log.read_text().splitlines():
        if re.fullmatch(r"\s*\d+(\s+-?\d[\d.e+-]*){5}\s*", line):
            step, *values = line.split()
            yield int(step), [float(value) for value in values]


@pytest.mark.parametrize(("profile", "name"), [("lammps", "in.melt"), ("lammps-halt", "in.melt-halt")])
def test_a_melt_changes_size_on_slurm(slurm: Any, profile: str, name: str) -> None:
    steps = 2400
    submit(slurm, profile, name, steps)
    slurm.at_step(200)
    for nodes in (3, 2):
        answer = slurm.dmr("resize", "run", "--nodes", str(nodes), "--wait")
        assert answer.returncode == 0, answer.stdout + answer.stderr + slurm.output()
    out = slurm.finished(180.0)
    generations = slurm.history.generations
    assert [each.nodes for each in generations] == [1, 3, 2], out
    assert [each.why for each in generations] == ["expand", "shrink", "finished"], out
    assert slurm.history.crashes == 0

    logs = [slurm.run.folder / "logs" / f"{each.number:04d}.out" for each in generations]
    texts = [log.read_text() for log in logs]
    assert [re.findall(r"with (\d+) atoms", text)[-1:] for text in texts][-1] == [str(ATOMS)]
    for text, ranks in zip(texts, (1, 3, 2), strict=True):
        grid = re.search(r"(\d+) by (\d+) by (\d+) MPI processor grid", text)
        assert grid is not None and int(grid[1]) * int(grid[2]) * int(grid[3]) == ranks
        assert f"{ATOMS} atoms" in text  # created by the first, read by the others
    seen: dict[int, list[float]] = {}
    for log, generation in zip(logs, generations, strict=True):
        lines = list(thermo(log))
        begin, values = lines[0]
        assert begin == (generation.first_step or 0)
        if seen:  # the same state at another number of processes, to the digits that are printed
            assert begin in seen
            assert values == pytest.approx(seen[begin], rel=1e-5)
        seen.update(lines)
    assert set(range(0, steps + 1, 20)) <= set(seen)
    energy = [values[3] for _, values in sorted(seen.items())][5:]
    assert max(abs(after - before) for before, after in zip(energy, energy[1:], strict=False)) < 0.005

    assert f"{generations[1].first_step}.restart" in slurm.dmr("ckpt", "ls", "run").stdout
    verified = slurm.dmr("ckpt", "verify", "run")
    assert verified.returncode == 0 and "good" in verified.stdout
    (slurm.folder / f"melt.{generations[1].first_step}.restart").write_bytes(b"damaged")
    assert slurm.dmr("ckpt", "verify", "run").returncode == 1
