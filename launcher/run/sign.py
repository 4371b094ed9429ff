"""The first sign of life: a program says that it is malleable before MPI is initialised.

``import dmr`` under a launcher leaves ``signs/0004.TOKEN`` in the run directory, an empty file that any rank may create
and any number of them at once. A generation that dies after that, before it reports, has not failed: it has
not started. What ends in an orderly way instead (an exception, ``sys.exit``) leaves ``signs/0004.TOKEN.ended``: another
start would repeat it. From then on the launcher's SIGUSR2 has the process show its stacks, should MPI not come up.

Standard library only, and little of that: it is part of ``import dmr``.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import os
import signal
import sys
from collections.abc import Mapping

FOLDER = "signs"
_ENDED = ".ended"
_OWN = ("-m", "dmr", "dmr-launch")
"""First words of this project's own programs; ``-m`` while the module that is to run is still looked for."""


def give(environ: Mapping[str, str] = os.environ) -> None:
    """Leave the sign of this process's generation, where there is a launcher. Never raises."""
    path = _path_of(environ)
    if path is None or os.path.basename(getattr(sys, "argv", [""])[0]) in _OWN:
        return
    try:
        _touch(path)
    except OSError:
        return
    atexit.register(_end, path, os.getpid())
    show_stacks_on_request()


def show_stacks_on_request() -> None:
    """Have SIGUSR2 write the stacks of all threads to standard error, where there is one."""
    with contextlib.suppress(OSError, AttributeError, ValueError, RuntimeError):
        faulthandler.register(signal.SIGUSR2, all_threads=True, chain=False)


def spoke() -> None:
    """Take note that the program reports from now on, which tells more."""
    atexit.unregister(_end)


def given(folder: str | os.PathLike[str], number: int, token: str) -> bool:
    """Whether the generation gave its sign, and no rank of it ended in an orderly way before it reported."""
    found, name = _signs(folder), _name(number, token)
    return name in found and name + _ENDED not in found


def ended(folder: str | os.PathLike[str], number: int, token: str) -> bool:
    """Whether a rank of the generation gave its sign, and ended in an orderly way before it reported."""
    return _name(number, token) + _ENDED in _signs(folder)


def _signs(folder: str | os.PathLike[str]) -> list[str]:
    try:
        # Listed: over NFS the answer that a file is not there may be a minute old.
        return os.listdir(os.path.join(folder, FOLDER))
    except OSError:
        return []


def _name(number: int, token: str) -> str:
    return f"{number:04d}.{token}"


def _path_of(environ: Mapping[str, str]) -> str | None:
    try:
        # A launcher's own environment has no number of nodes.
        folder, number, token, _ = (environ[f"DMR_{each}"] for each in ("RUN_DIR", "GENERATION", "TOKEN", "NODES"))
        return os.path.join(folder, FOLDER, _name(int(number), token)) if token.isalnum() else None
    except (KeyError, ValueError):
        return None


def _touch(path: str) -> None:
    if not os.path.exists(path):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _end(path: str, process: int) -> None:
    if os.getpid() == process:  # not in what was forked of it
        with contextlib.suppress(OSError):
            _touch(path + _ENDED)
