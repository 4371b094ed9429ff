"""Whether the program to be run is there, as far as this node can tell before anything is made."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence

_PYTHON = re.compile(r"(python|pypy)\d*(\.\d+)*t?$")
_SHELL = re.compile(r"(ba|da|k|z)?sh$")
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
"""Options of Python's whose value is the next word."""


STARTERS = ("srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "jsrun", "aprun")
_COUNTS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")


def doubled(command: Sequence[str], environ: Mapping[str, str] = os.environ) -> str | None:
    """Return what to do where ranks would be started twice: by the command, or around dmr-launch; None where not.

    Parameters
    ----------
    command
        Empty where a starter of its own may be right in it.
    """
    name = os.path.basename(command[0]) if command else ""
    if name in STARTERS:
        return f"leave {name} out, and its options: dmr-launch starts the ranks itself, and chooses how (--mpi, -v)"
    for count in _COUNTS:
        if environ.get(count, "1") not in ("", "0", "1"):
            return (
                f"dmr-launch was itself started {environ[count]} times ({count}={environ[count]}): start it once, "
                "without srun or mpirun before it; it starts the ranks"
            )
    return None


def missing(command: Sequence[str], folder: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return what is missing, and what to do; None when the program, and the script that it is to run, are there.

    Parameters
    ----------
    folder
        Working directory of the ranks.
    """
    program = command[0]
    if os.sep in program:
        path = os.path.join(folder, program)
        if os.path.isdir(path) or not os.access(path, os.F_OK):
            return f"there is no program {program!r} (in {folder}): name it by its path, or by a name on PATH"
        if not os.access(path, os.X_OK):
            return f"{program} is not executable: chmod +x it, or name the program that is to run it before it"
    elif shutil.which(program, path=environ.get("PATH")) is None:
        own = os.path.isfile(os.path.join(folder, program))
        return f"there is no program {program!r} on PATH" + (f": did you mean ./{program}?" if own else "")
    script = script_of(command)
    if script is not None and not os.path.exists(os.path.join(folder, script)):
        return f"there is no file {script!r} in {folder} for {os.path.basename(program)} to run"
    return None


def script_of(command: Sequence[str]) -> str | None:
    """Return the script that a command hands to Python or a shell, None where there is none or it is not certain."""
    name, words = os.path.basename(command[0]), iter(command[1:])
    if _SHELL.match(name):
        first = next(words, "-")
        return None if first.startswith(("-", "+")) else first
    if not _PYTHON.match(name):
        return None
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            return word
        elif word in ("-", "--") or re.match(r"-[A-Za-z]*[cm]", word):
            return None
    return None
