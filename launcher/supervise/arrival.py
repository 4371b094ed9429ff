"""A successor's side of a handover: may it take over the run, and when.

A successor does not compute before it holds the next lease. It takes it

- when the owner has written ``released`` with its token, or
- when the owner is dead without having said so (see `.owner`), after `AFTER_DEATH` seconds.

It ends without taking over

- when its token was cancelled in the ledger: the run goes on elsewhere;
- when the run has finished, or was told to end (``stopping``) in the owner's generation: a user who cancels or stops
  the run stops its successor, too (``stopping`` is on disk before anything else is done about a signal);
- when the owner is dead without a word, and the scheduler says that its job was cancelled: that is a user's scancel
  which the launcher did not live to record. A launcher that leaves by cancelling its own job has written
  ``released`` before;
- when the scheduler knows nothing of the owner's job any more, and the owner noted a signal (``signalled``) that the
  time limit does not explain. Without such a note the owner is taken to have died otherwise.

Between ``released`` and the lease the owner waits; if the successor does not come, the owner takes the next
lease itself. Both create the same file exclusively, so whatever the timing, one of them goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ..engines.engine import Engine
from ..run.history import History, read_history
from ..run.rundir import RunDir
from .console import Console
from .hooks import reached
from .owner import Owner, OwnerWatch, lease_content, owner_of

AFTER_DEATH = 10.0
"""Seconds between the owner's death and the take-over, in which the scheduler may still end this job, too."""
LONGEST_WAIT = 3600.0
"""An owner that lives but does not hand over in this time never will."""

Verdict = Literal["go", "done", "finished", "unwanted", "stopped"]
"""``done``: the run has finished in this very job, before it was requeued or its script came to a second launcher."""


@dataclass(frozen=True)
class Turn:
    """What came of the wait; ``number`` is the lease that is held with ``go``."""

    verdict: Verdict
    number: int = 0
    reason: str = ""


class Arrival:
    """Waits for this successor's turn; `step` never blocks for long.

    Parameters
    ----------
    token, number
        As the submission gave them; the number is that of the ledger file until a lease is held.
    """

    def __init__(
        self,
        run: RunDir,
        engine: Engine,
        console: Console,
        token: str,
        number: int,
        *,
        job: str | None,
        restarts: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.run, self.engine, self.console = run, engine, console
        self.token, self.number, self.job, self.restarts = token, number, job, restarts
        self._clock = clock
        self._began = clock()
        self._watch: OwnerWatch | None = None
        self._dead_since: float | None = None

    def announce(self, nodes: int, host: str) -> None:
        """Tell the owner that this successor has started."""
        self.run.append(
            self.number, "started", claimant=self.token, token=self.token, job=self.job, nodes=nodes, host=host
        )
        reached("started", self.number)

    def withdraw(self, reason: str) -> None:
        """Tell the owner that this successor will not come."""
        self.run.append(
            self.number, "cancelled", claimant=self.token, token=self.token, job=self.job, reason=reason, by="successor"
        )

    def step(self) -> Turn | None:
        """Return the verdict, None while there is none yet."""
        owner = owner_of(self.run)
        if owner is None:
            return Turn("unwanted", reason="the run has no owner: it was never started")
        same_job = self.job is not None and owner.job == self.job
        if owner.token == self.token or (same_job and int(owner.lease.get("restarts", 0)) < self.restarts):
            return self._again(owner)
        if self.restarts and not same_job and self._held_before():
            return Turn("unwanted", reason=f"{owner.describe()} took over the run while this job was queued again")
        history = read_history(self.run.events(skip=("decided",)))
        if (turn := self._told_to_end(owner, history)) is not None:
            return turn
        released = any(
            each.get("event") == "released" and each.get("token") == self.token
            for each in self.run.events(owner.number)
        )
        if released or self._owner_is_gone(owner):
            return self._take(owner, "released to this job" if released else "the launcher before is gone")
        if self._clock() - self._began > LONGEST_WAIT:
            return Turn("unwanted", reason=f"{owner.describe()} did not hand over in {LONGEST_WAIT / 60:.0f} min")
        return None

    def _held_before(self) -> bool:
        """Whether this job held the run before it was requeued."""
        leases = (self.run.read_lease(number) or {} for number in self.run.leases())
        return any(self.job is not None and lease.get("job") == self.job for lease in leases)

    def _told_to_end(self, owner: Owner, history: History) -> Turn | None:
        mine = next((each for each in history.successors if each.token == self.token), None)
        if mine is not None and mine.end == "cancelled":
            return Turn("unwanted", reason=mine.reason)
        last = history.generations[-1] if history.generations else None
        if last is not None and last.number == owner.number and last.why in ("finished", "failed"):
            return Turn("finished", reason=f"the run has {last.why}")
        if owner.number in history.stopping or (last and last.number == owner.number and last.why == "stopped"):
            return Turn("stopped", reason="the run was told to end")
        if self._dead_since is not None and self._cancelled_by_user(owner, history):
            return Turn("stopped", reason=f"job {owner.job} was cancelled, and the run with it")
        return None

    def _cancelled_by_user(self, owner: Owner, history: History) -> bool:
        info = self._watch.info if self._watch else None
        if info is not None and (info.outcome or info.state in ("pending", "running")):
            return info.outcome == "cancelled"
        return owner.number in history.signalled

    def _owner_is_gone(self, owner: Owner) -> bool:
        if self._watch is None or self._watch.owner.number != owner.number:
            self._watch = OwnerWatch(
                self.run, owner, self.engine, my_job=self.job, my_restarts=self.restarts, clock=self._clock
            )
            self._dead_since = None
        if self._watch.life() != "dead":
            self._dead_since = None
            return False
        if self._dead_since is None:
            self._dead_since = self._clock()
            if owner.job is not None and self._watch.info is None:
                self._watch.info = self.engine.job(owner.job)
            self.console.say(f"{owner.describe()} is gone without a word; taking over in {AFTER_DEATH:.0f} s")
            return False
        return self._clock() - self._dead_since > AFTER_DEATH

    def _take(self, owner: Owner, reason: str) -> Turn | None:
        reached("taking", self.number)
        number = owner.number + 1
        if self.run.take_lease(number, lease_content(self.token, self.job, self.restarts)):
            return Turn("go", number, reason)
        return None  # somebody else was first: look again who owns the run now

    def _again(self, owner: Owner) -> Turn:
        """This job held the run before: it was requeued, or `dmr resume` took the lease for it."""
        last = read_history(self.run.events(owner.number, skip=("decided",))).last
        if last is not None and last.why == "finished":
            return Turn("done", owner.number, "the run has finished already")
        # By a user: the signal of a requeue whose reason could not be found out is told as a stop, too.
        stops = (each for each in self.run.events(owner.number) if each.get("event") == "stopping")
        if any(str(each.get("by", "")).startswith("user") for each in stops):
            return Turn("stopped", owner.number, "the run was told to end")
        number = owner.number + 1
        if self.run.take_lease(number, lease_content(self.token, self.job, self.restarts)):
            return Turn("go", number, "resumed" if owner.queued else "requeued")
        return Turn("unwanted", reason="another launcher has taken over the run")
