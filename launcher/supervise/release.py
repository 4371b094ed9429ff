"""How an owner hands its run over to a successor, and leaves.

The owner writes ``released`` and waits until the successor holds the next lease; a successor that does not come loses
the run to the owner again, by the same exclusive creation of the lease.
"""

from __future__ import annotations

import time

from . import exits
from .account import Fenced
from .changes import Changes
from .hooks import reached
from .leave import leave_job

HANDOVER_WAIT = 60.0
"""After that the owner asks the scheduler whether the successor it released to still lives."""
HANDOVER_LIMIT = 300.0
"""A successor that does not take over in this time won't."""
ASK_EVERY = 30.0
WRITE_TRIES = 30


class Release:
    """The last act of an owner."""

    def __init__(self, changes: Changes) -> None:
        self.changes, self.place, self.account = changes, changes.place, changes.account
        self.engine, self.options = changes.place.engine, changes.options
        self.console, self.interrupts, self.successors = changes.console, changes.interrupts, changes.successors

    def hand_over(self) -> int | None:
        """Release the run to the successor and end this job.

        Returns
        -------
        int or None
            The exit status; None when the successor did not come and this launcher goes on.
        """
        successor = self.successors.current
        if successor is None:
            self.console.warn(f"not finished, and nothing follows by itself: dmr resume {self.account.run.folder}")
            return exits.UNFINISHED
        # In a hurry it is released to a successor whose job is not known.
        while successor.job is None and not self.changes.told_to_stop() and not self.changes.signals_served:
            self.successors.tick()
            if self.successors.current is None:
                return None
            time.sleep(1.0)
        if self.changes.told_to_stop() or not self._release(successor.token):
            return None
        reached("released", self.account.number)
        waits_for_us = successor.after is not None or successor.started is None
        if not waits_for_us and not self._taken(successor.token):
            return None
        self.changes.handed_over(f"job {successor.job}", successor.nodes)
        when = ", when it starts" if waits_for_us else ""
        where = f"; its output goes to {path}" if (path := self._output(successor.job)) else ""
        self.console.say(f"handed over to job {successor.job or successor.name}{when}{where}")
        self.successors.forget()
        reached("handed", self.account.number)
        return leave_job(self.engine, self.place.job, self.options.after_handover, self.console, self.interrupts)

    def _output(self, job: str | None) -> str | None:
        from ..slurm.engine import SlurmEngine

        return self.engine.outputs.get(job) if job is not None and isinstance(self.engine, SlurmEngine) else None

    def _release(self, token: str) -> bool:
        """Write ``released``; a run directory that can't be written for a while is tried again."""
        for _ in range(WRITE_TRIES):
            if self.account.record("released", token=token):
                return True
            time.sleep(2.0)
        return False

    def _taken(self, token: str) -> bool:
        """Wait until the successor holds the next lease; False when this launcher took it back."""
        began = looked = self.account.clock()
        run, following = self.account.run, self.account.number + 1
        while True:
            if self.changes.told_to_stop():
                return False
            # Listed first: over NFS the answer that a file is not there may be a minute old.
            if following in run.leases() and (lease := run.read_lease(following)) is not None:
                return lease.get("token") == token
            now = self.account.clock()
            gone = self.successors.withdrew()
            if not gone and now - began > HANDOVER_WAIT and now - looked > ASK_EVERY:
                looked = now
                job = self.successors.current.job if self.successors.current else None
                gone = job is not None and self.engine.job(job).state == "ended"
            if gone or now - began > HANDOVER_LIMIT:
                return self._reclaim("it is gone" if gone else "it did not take over in time")
            time.sleep(0.05)

    def _reclaim(self, reason: str) -> bool:
        """Go on here; True when the successor was quicker after all."""
        successor = self.successors.current
        assert successor is not None
        try:
            self.account.next_generation(self.place.job)
        except Fenced:
            lease = self.account.run.read_lease(self.account.number + 1)
            return lease is not None and lease.get("token") == successor.token
        self.account.record("reclaimed", token=successor.token, reason=reason)
        self.console.warn(f"the successor, job {successor.job}, was to take over, but {reason}: going on here")
        self.successors.cancel(reason)
        return False
