"""Runs of dmr-launch for the tests: started in a folder of their own, watched, ended for certain."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmr.launcher.cluster import PrivateCluster
from dmr.launcher.run.history import History, read_history
from dmr.launcher.run.rundir import RunDir

APPS = Path(__file__).parent / "apps"
BIN = Path(sys.executable).parent
DEADLINE = 60.0
CELLS = 97


def expected(steps: int) -> np.ndarray:
    """Return what ``counting.py`` computes, at any number of ranks and however often it was interrupted."""
    rows = np.arange(CELLS, dtype="f8")[:, None]
    values = rows + np.arange(3)
    for step in range(steps):
        values = np.sin(values) * 1.7 + rows / (step + 1)
    return np.column_stack([values, np.full(CELLS, steps)])


@dataclass
class Bench:
    """Starts launchers in one folder and looks at their run."""

    folder: Path
    run: RunDir = field(init=False)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.run = RunDir(self.folder / "run")

    def environment(self, **extra: str) -> dict[str, str]:
        hidden = ("SLURM_", "DMR_", "PYTHONUNBUFFERED")
        clean = {key: value for key, value in os.environ.items() if not key.startswith(hidden)}
        return {
            **clean,
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "DMR_CHECK_INTERVAL": "0.02",
            "DMR_MODEL_DIR": str(self.folder / "models"),
            **extra,
        }

    def launch(self, *args: object, options: tuple[str, ...] = (), kill_at: str = "") -> subprocess.Popen[str]:
        """Start ``dmr-launch`` with ``counting.py``; its nodes are virtual ones of this machine."""
        return self.start(
            "dmr-launch", "--engine", "local", "--local-nodes", "4", "--query-interval", "1", "--run-dir", "run",
            *options, "--", sys.executable, str(APPS / "counting.py"), *map(str, args), kill_at=kill_at,
        )  # fmt: skip

    def start(self, program: str, *args: str, kill_at: str = "") -> subprocess.Popen[str]:
        extra = {"DMR_TEST_KILL_AT": kill_at} if kill_at else {}
        process = subprocess.Popen(
            [str(BIN / program), *args], cwd=self.folder, env=self.environment(**extra), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.started.append(process)
        return process

    def dmr(self, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(BIN / "dmr"), *args], cwd=self.folder, env=self.environment(**environ), text=True, capture_output=True,
            timeout=DEADLINE,
        )  # fmt: skip

    def end(self, process: subprocess.Popen[str], within: float = DEADLINE) -> str:
        """Wait for the end; returns the output."""
        try:
            return process.communicate(timeout=within)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"no end within {within} s:\n{process.communicate()[0]}") from None

    def wait(self, condition: Callable[[], Any], what: str = "the condition", within: float = DEADLINE) -> Any:
        limit = time.monotonic() + within
        while not (found := condition()):
            if time.monotonic() > limit:
                ledger = "\n".join(json.dumps(each)[:200] for each in self.run.events())
                raise AssertionError(f"not within {within} s: {what}; {self.seen()}\nthe ledger:\n{ledger}")
            time.sleep(0.02)
        return found

    def seen(self) -> str:
        """Return what a failed test should show of its surroundings."""
        return ""

    def at_step(self, step: int, generation: int | None = None) -> None:
        """Wait until the application has done some steps."""

        def reached() -> bool:
            progress = self.run.read_progress()
            return (
                progress is not None
                and progress.state == "running"
                and progress.step >= step
                and generation in (None, progress.generation)
            )

        self.wait(reached, f"step {step}")

    @property
    def history(self) -> History:
        return read_history(self.run.events())

    def events(self, name: str) -> list[dict[str, Any]]:
        return [each for each in self.run.events() if each["event"] == name]

    def final(self) -> np.ndarray:
        found: np.ndarray = np.load(self.folder / "final.npy")
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    if shutil.which("mpirun") is None:
        pytest.skip("no mpirun: install openmpi-bin")
    made = Bench(tmp_path)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()


class SlurmBench(Bench):
    """Runs of dmr-launch in jobs of a private Slurm."""

    cluster: PrivateCluster

    def submit(
        self,
        *args: object,
        options: tuple[str, ...] = (),
        sbatch: tuple[str, ...] = ("--nodes=2",),
        after: str = "echo post-command >> post.txt",
        before: str = "",
        kill_at: str = "",
        exec_: bool = False,
    ) -> str:
        """Submit a job script with dmr-launch and ``counting.py``; returns the job id."""
        launch = shlex.join(
            ["dmr-launch", "--query-interval", "2", "--dwell", "1", "--run-dir", "run", *options, "--",
             sys.executable, str(APPS / "counting.py"), *map(str, args)]
        )  # fmt: skip
        script = self.folder / "job.sh"
        script.write_text(f"#!/bin/bash\n#SBATCH --job-name=counting\n{before}\n{'exec ' * exec_}{launch}\n{after}\n")
        return self.sbatch(*sbatch, str(script), kill_at=kill_at)

    def sbatch(self, *args: str, kill_at: str = "") -> str:
        env = {
            "PATH": f"{BIN}:{self.cluster.env['PATH']}",
            "DMR_CHECK_INTERVAL": "0.02",
            "DMR_MODEL_DIR": str(self.folder / "models"),
        }
        if kill_at:
            env["DMR_TEST_KILL_AT"] = kill_at
        argv = ["sbatch", "--parsable", "--time=10", "--ntasks-per-node=1", "--output=out-%j.txt", *args]
        return self.cluster.run(argv, cwd=self.folder, env={**self._clean(), **env}).stdout.strip()

    def _clean(self) -> dict[str, str]:
        return {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def environment(self, **extra: str) -> dict[str, str]:
        return {**super().environment(**extra), **self.cluster.exports}

    def queue(self) -> dict[str, str]:
        """Return state by job id."""
        lines = self.cluster.run(["squeue", "--noheader", "--format=%i %T"]).stdout.split("\n")
        return dict(line.split() for line in lines if line)  # type: ignore[misc]

    def seen(self) -> str:
        commands = ["squeue --format=%i|%T|%r|%N|%S", "sinfo --Node --format=%N|%t", "scontrol show jobs"]
        shown = [self.cluster.run(each.split(" "), check=False).stdout for each in commands]
        log = Path(self.cluster.exports["SLURM_CONF"]).parent / "log" / "slurmctld.log"
        return "\n".join(["", *shown, log.read_text()[-3000:], self.output()])

    def output(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.txt")))

    def finished(self, within: float = 90.0) -> str:
        """Wait until the run has finished and no job of its is left; returns all output."""
        self.wait(lambda: self.history.finished, "the end of the run", within)
        self.wait(lambda: not self.queue(), "an empty queue", 60.0)
        return self.output()


@pytest.fixture
def slurm(cluster: PrivateCluster, tmp_path: Path) -> SlurmBench:
    """A bench on the private Slurm with 8 nodes."""
    made = SlurmBench(tmp_path)
    made.cluster = cluster
    return made


@pytest.fixture
def slurm_on(tmp_path: Path) -> Callable[[PrivateCluster], SlurmBench]:
    """Return a bench on a cluster of the test's own."""

    def make(cluster: PrivateCluster) -> SlurmBench:
        made = SlurmBench(tmp_path)
        made.cluster = cluster
        return made

    return make


@pytest.fixture(scope="session")
def expected_after() -> Callable[[int], np.ndarray]:
    return expected
