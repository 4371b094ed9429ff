"""Which launcher a run belongs to now, and whether that one still lives.

A run belongs to the launcher with the highest lease. Leases are numbered without gaps and are created
exclusively, so of several launchers that want to follow generation n exactly one gets lease n + 1.

Whether an owner lives is asked in this order: its process, when it is on this machine; its job, when the
scheduler says that it has ended; its sign of life in ``launcher.json``, which the launcher renews every
`BEAT` seconds. Only a change seen by this process counts, so clocks that differ between machines don't matter.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ..engines.engine import JobInfo
from ..run.identity import identity, lives
from ..run.rundir import RunDir

BEAT = 5.0
"""Seconds between two signs of life."""
SILENT = 90.0
"""An owner on another machine without a sign of life for so long is taken for dead."""
FORGOTTEN = 15.0
"""Seconds for a sign of life from a job that the scheduler does not know: it may be another scheduler's."""
ASK_EVERY = 30.0
"""Seconds between two questions to the scheduler about the owner's job."""

Life = Literal["alive", "dead", "unknown"]


class AsksForJobs(Protocol):
    """The part of an engine that is needed here."""

    def job(self, job: str) -> JobInfo: ...


def lease_content(token: str, job: str | None, restarts: int, *, queued: bool = False) -> dict[str, Any]:
    """Return what a lease says of its holder; ``queued``: it is taken for a job that is being submitted."""
    return {**identity(), "token": token, "job": job, "restarts": restarts, "queued": queued, "time": time.time()}


def slurm_restarts(environ: Mapping[str, str] = os.environ) -> int:
    """Return how often the job of this process was requeued."""
    text = environ.get("SLURM_RESTART_COUNT", "0")
    return int(text) if text.isdigit() else 0


@dataclass(frozen=True)
class Owner:
    """The holder of the highest lease. ``queued``: a job that `dmr resume` submitted, and that has not started."""

    number: int
    lease: Mapping[str, Any]
    queued: bool = False
    queued_job: str | None = None

    @property
    def token(self) -> str:
        return str(self.lease.get("token", ""))

    @property
    def job(self) -> str | None:
        return self.lease.get("job") or self.queued_job

    def describe(self) -> str:
        if self.queued and self.job:
            return f"job {self.job}, which continues it when it starts,"
        job = f" in job {self.job}" if self.job else ""
        return f"process {self.lease.get('pid', '?')} on {self.lease.get('host', '?')}{job}"


def owner_of(run: RunDir) -> Owner | None:
    """Return the run's owner, None before its first lease."""
    leases = run.leases()
    if not leases:
        return None
    number = leases[-1]
    lease = run.read_lease(number) or {}
    if not lease.get("queued"):
        return Owner(number, lease)
    events = [each for each in run.events(number, skip=("decided",)) if each.get("token") == lease.get("token")]
    jobs = [str(each["job"]) for each in events if each.get("job")]
    return Owner(number, lease, True, jobs[-1] if jobs else None)


class OwnerWatch:
    """Watches one owner; `life` is to be called again and again, never waits long and asks the scheduler rarely."""

    def __init__(
        self,
        run: RunDir,
        owner: Owner,
        engine: AsksForJobs | None,
        *,
        my_job: str | None = None,
        my_restarts: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.run, self.owner, self.engine = run, owner, engine
        self.info: JobInfo | None = None
        """What the scheduler last said of the owner's job."""
        same_job = owner.job is not None and owner.job == my_job
        self._before = same_job and int(owner.lease.get("restarts", 0)) < my_restarts
        self._clock = clock
        self._began = clock()
        self._asked: float | None = None
        self._sign: float | None = None
        self._changed = self._began
        self._first = True

    def life(self) -> Life:
        """Return what is known now."""
        if self._before:  # the same job before it was requeued
            return "dead"
        here = lives(self.owner.lease)
        if here is not None and not (self.owner.queued and self.owner.job):
            return "alive" if here else "dead"
        if self._saw_sign():
            return "alive"
        if self._job_ended():
            return "dead"
        if self.owner.queued and self.info is not None and self.info.state != "unknown":
            return "alive"
        return "dead" if self._clock() - self._changed > SILENT else "unknown"

    def decide(self, poll: float = 0.5) -> Life:
        """Wait until it is known, at most `SILENT` seconds."""
        while (life := self.life()) == "unknown":
            time.sleep(poll)
        return life

    def _saw_sign(self) -> bool:
        state = self.run.read_launcher()
        sign = state.time if state is not None else None
        changed = not self._first and sign != self._sign
        self._first, self._sign = False, sign
        if changed:
            self._changed = self._clock()
        return self._clock() - self._changed < 2 * BEAT and self._changed > self._began

    def _job_ended(self) -> bool:
        job, now = self.owner.job, self._clock()
        if job is None or self.engine is None:
            return False
        if self._asked is None or now - self._asked > ASK_EVERY:
            self._asked = now
            self.info = self.engine.job(job)
        if self.info is None or self.info.state != "ended":
            return False
        return bool(self.info.outcome) or self.owner.queued or now - self._began > FORGOTTEN
