"""What a successor is made from, kept in the run directory: with it a run can be resubmitted from a login node.

The controller forgets a job and its script minutes after its end.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..engines.engine import EngineError
from ..run.rundir import ENV_GENERATION, ENV_NODES, ENV_RUN_DIR, ENV_TOKEN
from .engine import SlurmEngine
from .script import BatchScript
from .submit import Origin

FILE = "origin.json"
# Slurm's own, and where programs and libraries are found: the shell that resumes may not have them loaded. The rest of
# the environment may hold secrets, and stays out of files.
_KEPT = (
    "SLURM_", "SBATCH_", "DMR_", "PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_", "MODULEPATH",
    "LOADEDMODULES", "_LMFILES_", "OMP_", "OMPI_", "UCX_", "I_MPI_", "MPICH_",
)  # fmt: skip
_NOT_KEPT = (ENV_RUN_DIR, ENV_GENERATION, ENV_TOKEN, ENV_NODES, "DMR_TEST_")


def save_origin(folder: Path, engine: SlurmEngine) -> None:
    """Keep the job's record, script and Slurm's variables in a run directory.

    Raises
    ------
    EngineError, OSError
    """
    found = dataclasses.asdict(engine.origin())
    found["environ"] = {key: value for key, value in found["environ"].items() if _is_kept(key)}
    temporary = folder / f".{FILE}.{os.getpid()}"
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        json.dump(found, stream)
    temporary.rename(folder / FILE)


def _is_kept(key: str) -> bool:
    return key.startswith(_KEPT) and not key.startswith(_NOT_KEPT)


def engine_from_saved(folder: Path, environ: Mapping[str, str] = os.environ) -> SlurmEngine:
    """Return an engine that stands for the job which the run began in: it submits, asks and cancels.

    Raises
    ------
    EngineError
        When nothing was kept, or it can't be read.
    """
    try:
        found: dict[str, Any] = json.loads((folder / FILE).read_text())
        batch = BatchScript(found["batch"]["text"], tuple(found["batch"]["arguments"]), found["batch"]["name"])
        merged = {**environ, **found["environ"]}
        origin = Origin(found["job"], found["record"], batch, merged, int(found["held"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EngineError(
            f"{folder} doesn't hold the job script ({error}): resume it within an allocation, by salloc or in a script"
        ) from None
    engine = SlurmEngine(merged)
    engine.use_origin(origin)
    return engine
