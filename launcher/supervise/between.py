"""What users ask while no ranks are there: between two generations, and while the next start is waited for.

A stop ends the run before other ranks are started, and another size is the one that they are started with. What only
an application can answer is kept until there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..run.requests import UserRequest

if TYPE_CHECKING:
    from .changes import Changes


def by_whom(request: UserRequest) -> str:
    """Return who asked, in words."""
    return f"user {request.by}" if request.by else "user"


class Between:
    """Takes up requests, whether or not there is an application.

    Attributes
    ----------
    stopped
        Whether the run was told to stop while no ranks were there.
    """

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._kept: list[UserRequest] = []
        self.stopped = False

    def take(self) -> list[UserRequest]:
        """Return what an application that is there has to answer: requests that were kept, and new ones."""
        kept, self._kept = self._kept, []
        return kept + self._changes.requests.take()

    def hear(self) -> bool:
        """Take up requests while no ranks are there; True when the run was told to stop."""
        changes = self._changes
        for request in changes.requests.take():
            if request.action == "stop":
                changes.requests.answer(request, "accepted", "stopping")
                self._stop(by_whom(request))
            elif request.action == "resize" and request.nodes is not None:
                changes.user_asks(None, request, by_whom(request))
            else:
                self._kept.append(request)
        return self.stopped

    def told_to_stop(self) -> bool:
        """Whether a user or a signal told the run to stop while no ranks were there."""
        if not self.hear() and self._changes.told_to_end and self._changes.ending() == "cancelled":
            self._stop("signal")
        return self.stopped

    def _stop(self, by: str) -> None:
        changes = self._changes
        if not self.stopped:
            changes.account.record("stopping", by=by)
            changes.console.warn(f"{by}: ending the run before the next start")
            changes.successors.cancel(f"the run was stopped by {by}")
        self.stopped = True
