"""Running scripts on ranks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent / "ranks"


def starter() -> list[str] | None:
    """Return the command that starts ranks, without their number; None where there is none."""
    beside = Path(sys.executable).parent
    program = next((str(beside / name) for name in ("mpirun", "mpiexec") if (beside / name).exists()), None)
    program = program or shutil.which("mpirun") or shutil.which("mpiexec")
    if program is None:
        return None
    said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    return [program, "--oversubscribe"] if "Open MPI" in said or "OpenRTE" in said else [program]


@pytest.fixture(scope="session")
def on_ranks() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return ``run(ranks, script, *arguments, timeout=60, check=True, **environment)``.

    ``script`` is the name of one in ``tests/ckpt/ranks``. Fails when the ranks don't end within ``timeout`` seconds,
    and with ``check`` when they don't end well.
    """
    command = starter()
    if command is None:
        pytest.skip("no mpirun and no mpiexec")
    pytest.importorskip("mpi4py")

    def run(
        ranks: int, script: str, *arguments: object, timeout: float = 60, check: bool = True, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        settings = {
            **os.environ,
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "H5PY_ALWAYS_USE_MPI": "1",
            **environment,
        }
        found = subprocess.run(
            [*command, "-n", str(ranks), sys.executable, "-m", "mpi4py", str(SCRIPTS / script), *map(str, arguments)],
            env=settings,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and found.returncode:
            pytest.fail(f"status {found.returncode}\n{found.stdout[-3000:]}\n{found.stderr[-6000:]}")
        return found

    return run
