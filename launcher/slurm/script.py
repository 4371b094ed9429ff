"""The script of the job that this process runs in, and the arguments that it was given."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class BatchScript:
    """Text, arguments, and a name for the file to submit it from."""

    text: str
    arguments: tuple[str, ...] = ()
    name: str = "job.sh"


def generated(command: Sequence[str]) -> BatchScript:
    """Return a script that runs one command, for a job without a script of its own (salloc)."""
    return BatchScript(f"#!/bin/sh\nexec {shlex.join(command)}\n", name=os.path.basename(command[0]) + ".sh")


def own_arguments(record: Mapping[str, str]) -> tuple[str, ...]:
    """Return the batch script's arguments: exact from the shell that runs it, else from the record.

    Where the script has replaced itself by the launcher (``exec dmr-launch``), the shell is gone, and the record joins
    arguments with spaces (22.05), shows the line of sbatch (25.11 and later), or keeps quiet about them (between).
    """
    pid = os.getppid()
    while pid > 1:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="surrogateescape").split("\0")[:-1]
            parent = int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
        for index, word in enumerate(words):
            if os.path.basename(word) == "slurm_script":
                return tuple(words[index + 1 :])
        pid = parent
    script, *arguments = record.get("Command", "").split() or [""]
    submitted = record.get("SubmitLine", "").split()
    if not arguments:
        names = [index for index, word in enumerate(submitted) if index and word.endswith(os.path.basename(script))]
        arguments = submitted[names[0] + 1 :] if names and script else []
    return tuple(arguments)
