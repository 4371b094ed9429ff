"""How each daemon of a private cluster is started, and what it said when it failed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from .errors import ClusterError
from .processes import Process, identify
from .tools import Tools, search_path

_KEPT = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")


def daemon_environment(folder: Path) -> dict[str, str]:
    """Return the environment of the daemons: next to nothing of the caller's."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, "PATH": search_path(os.environ.get("PATH")), "SLURM_CONF": f"{folder}/slurm.conf"}


def start(
    argv: Sequence[str], name: str, folder: Path, cwd: Path, environment: Mapping[str, str] | None = None
) -> Process:
    """Start a daemon in the foreground mode of its own, in a session of its own.

    What it says before its log is open goes to ``log/NAME.err``.
    """
    with open(folder / "log" / f"{name}.err", "ab") as said:
        started = subprocess.Popen(
            argv,
            cwd=cwd,
            env={**daemon_environment(folder), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    started.returncode = 0  # its end is watched in /proc; without this, Popen complains when it is collected
    found = identify(started.pid)
    if found is None:
        raise ClusterError(f"{name} ended by itself; its last words:\n{tail(folder, name)}")
    return found


def munged(tools: Tools, folder: Path) -> list[str]:
    """Return munged's command line; its key and socket are the cluster's own."""
    where = folder / "munge"
    return [
        tools["munged"],
        "--foreground",
        # The folders are closed to others, which munged takes for a mistake.
        "--force",
        f"--key-file={where}/key",
        f"--socket={where}/socket",
        f"--pid-file={where}/pid",
        f"--log-file={folder}/log/munged.log",
        f"--seed-file={where}/seed",
    ]


def slurmctld(tools: Tools, folder: Path) -> list[str]:
    """Return the controller's command line."""
    return [tools["slurmctld"], "-D", "-f", f"{folder}/slurm.conf"]


def slurmd(tools: Tools, folder: Path, node: str) -> list[str]:
    """Return the command line of a virtual node's daemon."""
    return [tools["slurmd"], "-D", "-N", node, "-f", f"{folder}/slurm.conf"]


def tail(folder: Path, name: str, lines: int = 8) -> str:
    """Return the last lines that a daemon said, for an error's text."""
    for path in (folder / "log" / f"{name}.err", folder / "log" / f"{name}.log"):
        try:
            text = path.read_text(errors="replace").strip()
        except OSError:
            continue
        if text:
            return "\n".join(f"  {line}" for line in text.splitlines()[-lines:])
    return "  (it said nothing)"
