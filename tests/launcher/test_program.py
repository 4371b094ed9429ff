"""A program that is not there is told before a run is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmr.launcher.engines.program import doubled, missing, script_of
from dmr.launcher.slurm.statuses import own_status


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python app.py --size 3", "app.py"),
        ("/opt/py/bin/python3.11 -u -X dev -W ignore sub/app.py", "sub/app.py"),
        ("python3 -Wignore -OO app.py -m x", "app.py"),
        ("python -m app", None),
        ("python -um app x.py", None),
        ("python -c pass", None),
        ("python -", None),
        ("python", None),
        ("python3-config a.py", None),
        ("bash run.sh -c", "run.sh"),
        ("bash -c true", None),
        ("sh", None),
        ("solver input.py", None),
    ],
)
def test_the_script_of_a_command(command: str, script: str | None) -> None:
    assert script_of(command.split()) == script


def test_what_is_missing_and_what_is_not(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name, mode in (("solver", 0o755), ("data", 0o644), ("app.py", 0o644)):
        (tmp_path / "bin" / name).touch(mode)
    folder, environ = str(tmp_path / "bin"), {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}

    def why(*command: str) -> str:
        return missing(command, folder, environ) or ""

    assert why("solver") == why("./solver") == why(f"{folder}/solver", "deck") == why("sh", "app.py") == ""
    assert why("sh", "-c", "nowhere") == why("sh", "../bin/app.py") == ""
    assert "not executable" in why("./data") and "chmod" in why("./data")
    assert "no program './other'" in why("./other") and "no program '../bin'" in why("../bin")
    assert "did you mean ./data" in why("data")
    assert "no file 'gone.sh'" in why("sh", "gone.sh") and folder in why("sh", "gone.sh")


def test_ranks_that_would_be_started_twice_are_told() -> None:
    assert "leave srun out" in (doubled(["srun", "-n", "4", "python", "app.py"], {}) or "")
    assert "leave mpirun out" in (doubled(["/opt/mpi/bin/mpirun", "./solver"], {}) or "")
    assert doubled(["python", "mpirun.py"], {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}) is None
    for count in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"):
        assert "started 4 times" in (doubled(["./solver"], {count: "4"}) or "")
    assert doubled([], {}) is None


SAID = b"""step 3
srun: error: n2: task 1: Exited with exit code 3
srun: launch/slurm: _step_signal: Terminating StepId=7.0
slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-30T05:40:00 ***
srun: error: n1: task 0: Terminated
"""


@pytest.mark.parametrize(
    ("status", "said", "own"),
    [
        (143, SAID, 3),
        (137, SAID.replace(b"task 1", b"tasks 1,3-5"), 3),
        (3, SAID, 3),
        (0, b"", 0),
        (143, b"srun: error: n1: task 0: Terminated\n", 143),
        (143, b"my program says: srun: error: n1: task 0: Exited with exit code 3\n", 143),
        (139, b"srun: error: n1: task 0: Segmentation fault\n", 139),
        (143, b"srun: error: n1: task 0: Exited with exit code 143\n", 143),
    ],
)
def test_the_status_of_the_task_that_failed_first(status: int, said: bytes, own: int) -> None:
    assert own_status(status, said) == own
