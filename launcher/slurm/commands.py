"""Run Slurm's commands: as a list, with a time-out, counted, their errors told apart."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..engines.engine import EngineError, Unanswered

QUERY_SECONDS = 20.0
QUERY_TRIES = 3

# Each of these changes what a query prints; the formats given here are explicit.
_SHAPING = ("SQUEUE_", "SINFO_", "SCONTROL_", "SACCT_", "SPRIO_", "SLURM_JSON", "SLURM_YAML")

_TRANSIENT = re.compile(
    r"socket timed out|unable to contact slurm controller|connection (?:refused|timed out|reset)|"
    r"zero bytes were transmitted|transport endpoint is not connected|resource temporarily unavailable|"
    r"controller not responding|backup controller in standby|unable to establish control|"
    r"error connecting to slurm|slurm_persist_conn_open|communication connection failure|"
    r"message (?:send|receive) failure|slurm_receive_msg|no route to host|"
    r"munge(?:d is up)?.*(?:fail|restart)|protocol authentication error|invalid authentication credential|"
    r"temporary failure in name resolution",
    re.IGNORECASE,
)
_BUSY = re.compile(r"try again|please retry|not available right now|rate.?limit", re.IGNORECASE)
_UNKNOWN_JOB = re.compile(r"invalid job id specified|already completing or completed|already finished", re.IGNORECASE)


class CommandFailed(EngineError):
    """Slurm answered with an error; ``words`` is what it said."""

    def __init__(self, argv: Sequence[str], code: int, words: str) -> None:
        self.code, self.words = code, words
        super().__init__(f"{os.path.basename(argv[0])} failed: {words or f'exit status {code}'}")

    @property
    def unknown_job(self) -> bool:
        """Whether Slurm doesn't know the job, or knows that it has ended."""
        return _UNKNOWN_JOB.search(self.words) is not None

    @property
    def busy(self) -> bool:
        """Whether Slurm did nothing, and asks to come again."""
        return _BUSY.search(self.words) is not None


class CommandMissing(EngineError):
    """A command of Slurm's is not on PATH."""


@dataclass(frozen=True)
class Answer:
    """What a command printed."""

    out: str
    err: str


class Commands:
    """Runs Slurm's commands for one user of them; may be used from several threads.

    Parameters
    ----------
    environ
        Environment in which the controller is found; what shapes a query's output is taken out.
    seconds
        Time-out of a query; an act has twice as much.

    Attributes
    ----------
    calls, unanswered
        How often each command was run, and had no answer.
    """

    def __init__(self, environ: Mapping[str, str], seconds: float = QUERY_SECONDS) -> None:
        kept = {key: value for key, value in environ.items() if not key.startswith(_SHAPING)}
        # Unix seconds know no daylight saving; and the C library's messages are matched in English.
        self._environ = {**kept, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
        self._seconds = seconds
        self._lock = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.unanswered: Counter[str] = Counter()

    def query(
        self, argv: Sequence[str], *, tries: int = 1, name: str | None = None, seconds: float | None = None
    ) -> Answer:
        """Ask; asking again does no harm, so it is tried again (with growing, jittered pauses) without an answer.

        Parameters
        ----------
        name
            What it is counted as, where that is not the command's own name.
        seconds
            A shorter time-out than usual.

        Raises
        ------
        Unanswered, CommandFailed, CommandMissing
        """
        wait = self._seconds if seconds is None else min(self._seconds, seconds)
        for attempt in range(1, tries + 1):
            try:
                return self._run(argv, self._environ, wait, name=name)
            except (Unanswered, CommandFailed) as error:
                if attempt == tries or (isinstance(error, CommandFailed) and not error.busy):
                    raise
                time.sleep(2.0 ** (attempt - 1) * random.uniform(0.5, 1.5))
        raise AssertionError("a query has at least one try")

    def act(
        self,
        argv: Sequence[str],
        *,
        environ: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        seconds: float | None = None,
    ) -> Answer:
        """Change something, once: without an answer it may have happened all the same.

        Parameters
        ----------
        environ
            Whole environment of the command, the one of queries by default.

        Raises
        ------
        Unanswered, CommandFailed, CommandMissing
        """
        wait = 2 * self._seconds if seconds is None else seconds
        return self._run(argv, self._environ if environ is None else environ, wait, cwd)

    def _run(
        self,
        argv: Sequence[str],
        environ: Mapping[str, str],
        seconds: float,
        cwd: Path | None = None,
        name: str | None = None,
    ) -> Answer:
        name = name or os.path.basename(argv[0])
        with self._lock:
            self.calls[name] += 1
        try:
            process = subprocess.Popen(
                argv,
                env=dict(environ),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            if cwd is not None and error.filename == str(cwd):
                raise EngineError(f"can't run {name} in {cwd}: the folder is gone") from None
            raise CommandMissing(f"{name} is not on PATH: Slurm's commands are needed here") from None
        except OSError as error:
            raise EngineError(f"can't run {name}: {error.strerror}") from None
        try:
            # A script of any bytes comes back as it went; text mode would change its line ends.
            out, err = (part.decode(errors="surrogateescape") for part in process.communicate(timeout=seconds))
        except subprocess.TimeoutExpired:
            # The group: a site's wrapper around a command may have children that hold the pipe.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=2.0)
            raise self._without_answer(name, f"{name} gave no answer in {seconds:.0f} s") from None
        if process.returncode == 0:
            return Answer(out, err)
        words = _words(err) or _words(out)
        if _TRANSIENT.search(err):
            raise self._without_answer(name, f"{name} did not reach the controller: {words}")
        raise CommandFailed(argv, process.returncode, words)

    def _without_answer(self, name: str, text: str) -> Unanswered:
        with self._lock:
            self.unanswered[name] += 1
        return Unanswered(text)


def _words(text: str) -> str:
    text = text.encode(errors="surrogateescape").decode(errors="replace")
    lines = [re.sub(r"^\w+: (?:(?:error|fatal|info): )?", "", line.strip()) for line in text.splitlines()]
    return "; ".join(dict.fromkeys(line for line in lines if line))
