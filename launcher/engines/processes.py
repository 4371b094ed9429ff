"""Ranks as operating-system processes: started in a session of their own, output copied, ended for certain."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .engine import EngineError

MARK = "DMR_RANKS"
"""Variable whose random value tells the processes of one start from any other."""

RANKS = (b"OMPI_COMM_WORLD_RANK=", b"PMI_RANK=", b"PMIX_RANK=")
"""What tells a rank from its starter."""

GRACE_SECONDS = 5.0
KILL_SECONDS = 20.0
_CHUNK = 1 << 16
_LAST = 1 << 14


class ProcessRanks:
    """Ranks under one starter (mpirun, mpiexec, srun) that runs on this machine.

    Parameters
    ----------
    argv
        The starter's command line.
    environ
        The whole environment.
    folder
        Working directory.
    log
        File that the output is appended to beside this process's own standard output; None to inherit both streams.
    ask
        Sends SIGTERM to the ranks, and returns whether it could; without it the starter gets the signal.
    sweep
        Ends what the starter left behind elsewhere (steps of a Slurm job); called by `kill` before it gives up on the
        starter, with the seconds that it may take.
    status
        Makes the status of the ranks of the starter's own and the last of what was put out.

    Raises
    ------
    EngineError
        When the starter can't be executed, or the log can't be opened.
    """

    def __init__(
        self,
        argv: Sequence[str],
        environ: Mapping[str, str],
        folder: Path,
        log: Path | None = None,
        *,
        ask: Callable[[str], bool] | None = None,
        sweep: Callable[[float], None] | None = None,
        status: Callable[[int, bytes], int] | None = None,
    ) -> None:
        self.argv = tuple(argv)
        self._status, self._last = status, bytearray()
        self.mark = secrets.token_hex(8)
        self._ask, self._sweep, self._obeyed = ask, sweep, False
        self._copier: threading.Thread | None = None
        try:
            sink = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600) if log else None
        except OSError as error:
            raise EngineError(f"can't append to the log {log}: {error.strerror}") from None
        try:
            self._process = subprocess.Popen(
                [*_die_with_parent(environ), *argv],
                env={**environ, MARK: self.mark},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if sink is not None else None,
                stderr=subprocess.STDOUT if sink is not None else None,
                start_new_session=True,
            )
        except OSError as error:
            if sink is not None:
                os.close(sink)
            raise EngineError(f"can't start {argv[0]} in {folder}: {error.strerror}") from None
        if sink is not None:
            assert self._process.stdout is not None
            self._copier = threading.Thread(
                target=_copy,
                args=(self._process.stdout.fileno(), sink, self._last),
                name="dmr-output",
                daemon=True,
            )
            self._copier.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """Return the starter's exit status (128 + n after signal n), None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        if self._copier is not None and self._copier.is_alive():
            # What was written last is still in the pipe; a process that outlives its starter may hold it open.
            self._copier.join(0.5)
        found = code if code >= 0 else 128 - code
        return found if self._status is None else self._status(found, bytes(self._last))

    def terminate(self) -> None:
        """Send SIGTERM to the ranks; mpirun and mpiexec hand it on to them."""
        if self._ask is None or not self._ask("TERM"):
            self._end_starter()

    def dump(self) -> None:
        """Send SIGUSR2 to the ranks: by the scheduler, by mpirun, which hands it on, or to those of this machine."""
        if self._ask is not None and self._ask("USR2"):
            return
        by_mpirun = os.path.basename(self.argv[0]) in ("mpirun", "orterun", "prterun")
        for pid in [self.pid] if by_mpirun else marked(self.mark, RANKS):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR2)

    def signal(self, name: str) -> bool:
        """Send a signal to all ranks: by the scheduler, by mpirun, which hands some on, or to those of this machine."""
        if self._ask is not None and self._ask(name):
            return True
        by_mpirun = os.path.basename(self.argv[0]) in ("mpirun", "orterun", "prterun")
        if by_mpirun and name in ("USR1", "USR2"):
            receivers = [self.pid]
        elif self._ask is None:
            receivers = marked(self.mark, RANKS)
        else:
            return False  # ranks of other nodes would not get it
        for pid in receivers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.Signals[f"SIG{name}"])
        return bool(receivers)

    def _end_starter(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """End all ranks, and wait until they are gone; takes at most about half a minute.

        Once, where the starter did as told: Slurm may list for long a step whose processes have ended, and to wait for
        that again brings nothing.
        """
        if self._obeyed:
            return
        deadline = time.monotonic() + KILL_SECONDS
        if self._process.poll() is None:
            self._end_starter()
            self._wait(GRACE_SECONDS)
        obeyed = self._process.poll() is not None
        if self._sweep is not None:
            # A starter that ended by itself has ended its ranks, and that is only to be made sure of.
            left = deadline - time.monotonic()
            self._sweep(max(1.0, left if self._process.poll() is None else left / 4))
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        end_marked(self.mark, until=max(deadline, time.monotonic() + 1.0))
        self._wait(max(1.0, deadline - time.monotonic()))
        if self._copier is not None:
            self._copier.join(1.0)
        self._obeyed = obeyed

    def _wait(self, seconds: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)


def end_marked(mark: str, *, until: float) -> None:
    """SIGKILL this user's processes on this machine that carry a mark, until none is left or the time is over.

    Parameters
    ----------
    until
        On the clock of `time.monotonic`.
    """
    while True:
        found = marked(mark)
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found or time.monotonic() > until:
            return
        time.sleep(0.05)


def marked(mark: str, also: Sequence[bytes] = ()) -> list[int]:
    """Return the living processes that carry a mark in their environment, and one of the variables ``also``."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as stream:
                variables = stream.read().split(b"\0")
            if wanted in variables and (not also or any(each.startswith(tuple(also)) for each in variables)):
                found.append(int(name))
        except OSError:
            continue
    return found


def _die_with_parent(environ: Mapping[str, str]) -> list[str]:
    # Without it a launcher that is killed leaves its ranks computing for nobody. (In the milliseconds before it takes
    # effect it still does; such ranks are fenced as soon as the run goes on.)
    setpriv = shutil.which("setpriv", path=environ.get("PATH")) or shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []


def _copy(source: int, sink: int, last: bytearray) -> None:
    """Copy output to a log and to standard output, as long as each takes it: neither a full disk nor a reader that is
    gone may block the ranks. The last of it is kept."""
    shown = True
    try:
        while chunk := os.read(source, _CHUNK):
            _write(sink, chunk)
            shown = shown and _write(sys.stdout.fileno(), chunk)
            last += chunk
            del last[:-_LAST]
    except (OSError, ValueError):
        return
    finally:
        os.close(sink)


def _write(handle: int, data: bytes) -> bool:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(handle, view) :]
        except OSError:
            return False
    return True
