"""The decorator, and what becomes of a program that fails."""

from __future__ import annotations

import functools
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, overload

from .ckpt import CheckpointError, Retention, StorageError
from .errors import Error, Released
from .launcher.run.rundir import Generation, RunDir, RunDirError
from .run import Run
from .settings import settings
from .world import world

Result = TypeVar("Result")

USER_ERRORS = (Error, CheckpointError, RunDirError)
"""Told in one line: their text says it all."""


@overload
def malleable(main: Callable[..., Result]) -> Callable[..., Result]: ...
@overload
def malleable(
    *,
    checkpoint_every: str | float | None = None,
    keep: int | Retention | None = None,
    driver: str | None = None,
    background: bool = False,
    fast_dir: str | os.PathLike[str] | None = None,
    compress: str | None = None,
    comm: Any = None,
) -> Callable[[Callable[..., Result]], Callable[..., Result]]: ...
def malleable(
    main: Callable[..., Result] | None = None,
    *,
    checkpoint_every: str | float | None = None,
    keep: int | Retention | None = None,
    driver: str | None = None,
    background: bool = False,
    fast_dir: str | os.PathLike[str] | None = None,
    compress: str | None = None,
    comm: Any = None,
) -> Any:
    """Make a program's main function malleable: it is called with a `Run` first.

    Parameters
    ----------
    checkpoint_every
        Seconds, a time (``15min``, ``1:30:00``), steps (``500steps``), or ``auto`` (by Daly's formula; ``auto/6h`` with
        the mean time between failures); default: when the launcher asks.
    keep
        How many checkpoints to keep, default 2, or a rule of `dmr.ckpt`, as ``KeepLast(2) | KeepEverySteps(1000)``.
    driver
        ``direct``, ``mpio`` or ``auto``.
    background
        Go on computing while a checkpoint that nobody waits for is written; takes memory for one copy of the state.
    fast_dir
        A folder of the node, as ``/dev/shm``, that checkpoints go to first while all ranks are on one node; from there
        they are copied to the run directory in the background. It takes the space of two checkpoints.
    compress
        ``zstd`` or ``zlib``, perhaps with a level (``zstd:3``): keep arrays compressed, without loss.
    comm
        The communicator to run on; default ``MPI.COMM_WORLD``.

    Notes
    -----
    The launcher's options (``dmr-launch --checkpoint-every`` and so on) win over these. When the program leaves for
    another size, what comes after the call of ``main`` does not run: the process ends with status 0. When it raises,
    the rank that failed first shows its traceback, and all ranks end with a status that is not 0.
    """
    if main is None:
        return functools.partial(
            malleable,
            checkpoint_every=checkpoint_every,
            keep=keep,
            driver=driver,
            background=background,
            fast_dir=fast_dir,
            compress=compress,
            comm=comm,
        )
    inner = main

    @functools.wraps(inner)
    def wrapper(*args: Any, **kwargs: Any) -> Result:
        with guarded(comm):
            run = begin(comm, checkpoint_every, keep, driver, background, fast_dir, compress)
            try:
                result = inner(run, *args, **kwargs)
            except Released:
                run.leave()
                sys.stdout.flush()
                raise SystemExit(0) from None
            except SystemExit as leaving:
                if leaving.code in (0, None):
                    run.finish()
                raise
            run.finish()
            return result

    return wrapper


def begin(
    comm: Any = None,
    every: str | float | None = None,
    keep: int | Retention | None = None,
    driver: str | None = None,
    background: bool = False,
    fast_dir: str | os.PathLike[str] | None = None,
    compress: str | None = None,
) -> Run:
    """Return the run of this process. Collective."""
    global _last
    chosen = settings(every, keep, driver, background, fast_dir, compress)
    generation = Generation.from_environment()
    _last = Run(world() if comm is None else comm, generation, chosen)
    return _last


_last: Run | None = None
"""The run of this process, for what its failure means."""
_OWN_FAULT = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError)


class guarded:
    """Ends all ranks when this one fails: left alone, the others would wait for it for ever."""

    def __init__(self, comm: Any = None) -> None:
        self._comm = comm

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, GeneratorExit):
            return
        if isinstance(error, SystemExit) and error.code in (0, None):
            return
        fail(error, self._comm)


def fail(error: BaseException, comm: Any = None) -> NoReturn:
    """Record this rank's failure, show it once, and end all ranks.

    The first rank to fail shows its error (a traceback, or one line for a user's mistake); the others, which
    often fail for the same reason or because of it, stay quiet.
    """
    comm = world_or_none() if comm is None else comm
    rank = comm.Get_rank() if comm is not None else 0
    user = isinstance(error, USER_ERRORS)
    if isinstance(error, SystemExit):
        text = f"dmr: rank {rank}: sys.exit({error.code!r})\n"
    elif user:
        text = f"dmr: error: {error}\n"
    else:
        text = f"dmr: rank {rank} failed:\n" + "".join(traceback.format_exception(error))
    if _first(rank, error, user, text):
        sys.stderr.write(text)
    sys.stdout.flush()
    sys.stderr.flush()
    # Output goes through the MPI launcher, which drops what it has not forwarded when the ranks are aborted.
    time.sleep(0.2)
    status = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1
    if comm is not None and comm.Get_size() > 1:
        comm.Abort(status)
    os._exit(status)


def _first(rank: int, error: BaseException, user: bool, text: str) -> bool:
    """Whether this rank is the one to speak: the first to claim it, or every one where there is no run directory."""
    try:
        generation = Generation.from_environment()
        if generation is None:
            return not user or rank == 0
        record = {
            "rank": rank,
            "time": time.time(),
            "kind": "user" if _would_repeat(error) else "crash",
            "error": type(error).__name__,
            "text": text,
        }
        return RunDir(generation.folder).claim_failure(generation.number, record)
    except (RunDirError, OSError):
        return True


def _would_repeat(error: BaseException) -> bool:
    """Whether a restart would only repeat a failure: a user's mistake, and what fails before the first step.

    What a file system or MPI refuses now it may grant at the next start.
    """
    if isinstance(error, StorageError) or type(error).__module__.partition(".")[0] == "mpi4py":
        return False
    if isinstance(error, USER_ERRORS):
        return True
    passing = isinstance(error, MemoryError) or (isinstance(error, OSError) and not isinstance(error, _OWN_FAULT))
    return not passing and _last is not None and not _last.began


def world_or_none() -> Any:
    """Return the communicator of all ranks; None where there is none, so that a failure can be shown all the same."""
    try:
        return world()
    except Error:
        return None
