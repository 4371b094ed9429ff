"""A run directory and a hand that plays the launcher: starts ranks, asks, reads what they report."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dmr.launcher.run.rundir import Control, Generation, Progress, RunDir

APPS = Path(__file__).parent / "apps"
DEADLINE = 30.0


@dataclass
class Ended:
    status: int
    out: str
    err: str
    seconds: float


@dataclass
class Hand:
    """Plays the launcher of one run."""

    folder: Path
    run_dir: RunDir = field(init=False)
    number: int = 0
    requests: int = 0

    def __post_init__(self) -> None:
        self.run_dir = RunDir.create(self.folder, {"run": "test-run"})

    def start(
        self, app: str, *args: object, ranks: int = 1, env: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        self.number += 1
        token = f"token-{self.number}"
        assert self.run_dir.take_lease(self.number, {"token": token})
        generation = Generation(self.folder, self.number, token, ranks)
        return start(
            app, *args, ranks=ranks, env={**generation.environment(), "DMR_CHECK_INTERVAL": "0.02", **(env or {})}
        )

    def ask(self, action: str, nodes: int | None = None) -> int:
        self.requests += 1
        self.run_dir.write_control(Control(self.requests, self.number, action, nodes))
        return self.requests

    def progress(self) -> Progress:
        found = self.run_dir.read_progress()
        assert found is not None
        return found

    def wait(self, condition: Callable[[Progress], bool]) -> Progress:
        """Wait until this generation's progress meets the condition."""
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            found = self.run_dir.read_progress()
            if found is not None and found.generation == self.number and condition(found):
                return found
            time.sleep(0.01)
        raise AssertionError(f"not within {DEADLINE} s; the last report is {self.run_dir.read_progress()}")


def start(app: str, *args: object, ranks: int = 1, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, str(APPS / app), *map(str, args)]
    if ranks > 1:
        command = ["mpirun", "--oversubscribe", "-n", str(ranks), *command]
    full = {
        **os.environ,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "H5PY_ALWAYS_USE_MPI": "1",
        **(env or {}),
    }
    return subprocess.Popen(command, env=full, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def end(ranks: subprocess.Popen[str], within: float = DEADLINE) -> Ended:
    begin = time.monotonic()
    try:
        out, err = ranks.communicate(timeout=within)
    except subprocess.TimeoutExpired:
        ranks.kill()
        out, err = ranks.communicate()
        raise AssertionError(f"the ranks did not end within {within} s:\n{out}\n{err}") from None
    return Ended(ranks.returncode, out, err, time.monotonic() - begin)


@pytest.fixture
def hand(tmp_path: Path) -> Hand:
    return Hand(tmp_path / "run")


@pytest.fixture(scope="session")
def finish() -> Callable[..., Ended]:
    return end


@pytest.fixture(scope="session")
def run_app() -> Callable[..., Ended]:
    """Run an application without a launcher, to its end."""
    if shutil.which("mpirun") is None:
        pytest.skip("no mpirun: install openmpi-bin")
    return lambda app, *args, **kwargs: end(start(app, *args, **kwargs))
