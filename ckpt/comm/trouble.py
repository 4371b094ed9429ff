"""Errors that wait until the ranks agree on them."""

from __future__ import annotations

from types import TracebackType


class Trouble:
    """Holds back the first error of a rank, so that it goes on to take part in the collective calls.

    Used as a context manager around local work; after the last collective call the error is agreed upon.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        if isinstance(error, Exception):
            self.error = self.error or error
            return True
        return False
