"""Work in threads that is done to its end when the program ends meanwhile.

When the main thread is at its end, threads that are no daemons are waited for; but pools take no work any more from
then on, and since Python 3.12 no thread can be started.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")
log = logging.getLogger("dmr.ckpt")


class Pool:
    """Threads that take work; where they can't any more, who brings it does it.

    Parameters
    ----------
    threads
        Their number.
    name
        Of the threads.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    def submit(self, work: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """Begin ``work(*arguments)``."""
        done: Future[Result] = Future()
        claim = threading.Lock()

        def run() -> None:
            # A pool that can't start a thread says so when it has taken the work, which another thread may then do.
            if not claim.acquire(blocking=False) or not done.set_running_or_notify_cancel():
                return
            try:
                found = work(*arguments)
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(found)

        try:
            self._pool.submit(run)
        except RuntimeError:
            run()
        return done

    def close(self) -> None:
        """Wait for what was begun."""
        self._pool.shutdown()


class Task(Generic[Result]):
    """A call in a thread of its own. A program that ends waits for it.

    Parameters
    ----------
    work
        Does it.
    name
        Of the thread.
    tell
        Whether its error is logged at the end of the program when nobody has asked for the outcome.
    """

    def __init__(self, work: Callable[[], Result], name: str, *, tell: bool) -> None:
        self._done: Future[Result] = Future()
        self._tell, self._name = tell, name

        def run() -> None:
            try:
                self._done.set_result(work())
            except BaseException as error:
                self._done.set_exception(error)

        _unasked.add(self)
        self._thread: threading.Thread | None = threading.Thread(target=run, name=name, daemon=False)
        try:
            self._thread.start()
        except RuntimeError:
            self._thread = None
            run()

    @property
    def busy(self) -> bool:
        """Whether it is under way."""
        return not self._done.done()

    def result(self) -> Result:
        """Wait for it; return its result, or raise its error."""
        _unasked.discard(self)
        if self._thread is not None:
            self._thread.join()
        return self._done.result()

    def end(self) -> None:
        """Wait for it, and log its error."""
        if self._thread is not None:
            self._thread.join()
        error = self._done.exception()
        if error is not None and self._tell:
            log.error("%s: %s", self._name, error or type(error).__name__)


_unasked: set[Task[Any]] = set()
# A child has the tasks, but not their threads.
os.register_at_fork(after_in_child=_unasked.clear)


@atexit.register
def _end() -> None:
    # Before MPI is finalised, which mpi4py does after all hooks of Python's.
    while _unasked:
        _unasked.pop().end()
