"""How a program is asked for a checkpoint."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Protocol

from ..engines.engine import EngineError, Ranks
from .description import Request
from .words import fill

COMMAND_SECONDS = 60.0
"""A command that asks has to end in that time."""


class Ask(Protocol):
    """One way to ask."""

    def begin(self, values: Mapping[str, str]) -> None:
        """Ask.

        Raises
        ------
        EngineError
            When that did not work.
        """

    def problem(self) -> str | None:
        """Return why the request failed after it was begun, None while it has not."""

    def withdraw(self) -> None:
        """Clean up once the request is served, or given up."""


class BySignal:
    """Asks by a signal to all ranks."""

    def __init__(self, ranks: Ranks, name: str) -> None:
        self._ranks, self._name = ranks, name

    def begin(self, values: Mapping[str, str]) -> None:
        if not self._ranks.signal(self._name):
            raise EngineError(
                f"SIG{self._name} could not be sent to the ranks: the scheduler did not answer, or the ranks' starter "
                f"hands it not on (USR1 and USR2 go by mpirun, any by srun)"
            )

    def problem(self) -> str | None:
        return None

    def withdraw(self) -> None:
        return


class ByFile:
    """Asks by a file that appears in one step; whoever is first takes it away, the program or the launcher."""

    def __init__(self, folder: Path, name: str, text: str) -> None:
        self._folder, self._name, self._text = folder, name, text
        self._path: Path | None = None

    def begin(self, values: Mapping[str, str]) -> None:
        path = self._folder / fill(self._name, values)
        try:
            handle, temporary = tempfile.mkstemp(prefix=".dmr-ask-", dir=path.parent)
            with os.fdopen(handle, "w") as stream:
                stream.write(self._text)
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except OSError as error:
            raise EngineError(f"the file {path} that is to ask can't be written: {error.strerror}") from None
        self._path = path

    def problem(self) -> str | None:
        return None

    def withdraw(self) -> None:
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
            self._path = None


class ByCommand:
    """Asks by a command on the launcher's node."""

    def __init__(self, folder: Path, command: tuple[str, ...], environment: Mapping[str, str]) -> None:
        self._folder, self._command, self._environment = folder, command, environment
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._began = 0.0

    def begin(self, values: Mapping[str, str]) -> None:
        self.withdraw()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `withdraw`)
        self._began = time.monotonic()
        argv = [fill(word, values) for word in self._command]
        try:
            self._process = subprocess.Popen(
                argv, cwd=self._folder, env={**os.environ, **self._environment}, stdin=subprocess.DEVNULL,
                stdout=self._output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise EngineError(f"checkpoint.command: can't start {argv[0]}: {error.strerror}") from None

    def problem(self) -> str | None:
        if self._process is None:
            return None
        code = self._process.poll()
        if code is None:
            if time.monotonic() - self._began < COMMAND_SECONDS:
                return None
            self.withdraw()
            return f"checkpoint.command did not end within {COMMAND_SECONDS:.0f} s"
        self._process = None
        return None if code == 0 else f"checkpoint.command ended with exit status {code}{self._last_line()}"

    def _last_line(self) -> str:
        assert self._output is not None
        self._output.seek(0)
        lines = self._output.read()[-4096:].decode(errors="replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""

    def withdraw(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._output is not None:
            self._output.close()
            self._output = None


class ByWaiting:
    """Can't ask: the program writes at its own interval."""

    def begin(self, values: Mapping[str, str]) -> None:
        return

    def problem(self) -> str | None:
        return None

    def withdraw(self) -> None:
        return


def find_ask(request: Request, ranks: Ranks, folder: Path, environment: Mapping[str, str]) -> Ask:
    """Return the way to ask that a description names."""
    if request.kind == "signal":
        return BySignal(ranks, request.signal)
    if request.kind == "file":
        return ByFile(folder, request.file, request.text)
    if request.kind == "command":
        return ByCommand(folder, request.command, environment)
    return ByWaiting()
