"""A successor, seen by the launcher that asked for it.

Every step is in the ledger before it is done: ``submitted`` (without a job id) before the submission, ``cancelled``
before the cancellation. So whatever becomes of this launcher or of the scheduler's answer, a successor
that starts finds out from the ledger whether it is wanted (see `.arrival`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...resize import words
from ...resize.view import ClusterView
from ..engines.engine import Engine, EngineError, Submission, SubmitRefused, Unanswered
from ..run.history import SuccessorRecord
from ..run.rundir import ENV_GENERATION, ENV_RUN_DIR, ENV_TOKEN, RunDir, new_token
from ..slurm.reasons import waits_for
from .console import Console
from .hooks import reached

NODE_LIMITS = frozenset({"AssocGrpNodeLimit", "MaxNodePerAccount", "QOSGrpNodeLimit", "QOSMaxNodePerUserLimit"})
"""Limits that this run's own nodes count in: beside them the successor does not start."""

LOOK_FOR_START = 0.5
"""Seconds between two looks for a successor that has started."""
LOOK_FOR_LOST = 30.0
"""Seconds between two looks for a submission whose answer was lost."""
GIVE_UP_LOST = 90.0
"""A submission that is not there after that was not accepted."""


def job_name(run: str, generation: int, token: str) -> str:
    """Return the name of a generation's job, by which it is found again."""
    return f"dmr:{run}:{generation}:{token}"


@dataclass
class Successor:
    """One successor that may take over. ``job`` is None while the scheduler's answer is missing."""

    token: str
    number: int
    nodes: tuple[int, int]
    submitted: float
    name: str
    job: str | None = None
    after: str | None = None
    started: dict[str, Any] | None = None


class Successors:
    """At most one successor at a time: submits it, follows it, gives it up.

    Parameters
    ----------
    record
        Appends an event to the ledger of the generation that this launcher now is; False when it can't.
    """

    def __init__(
        self,
        run: RunDir,
        run_id: str,
        engine: Engine,
        console: Console,
        record: Callable[..., bool],
        clock: Callable[[], float],
    ) -> None:
        self.run, self.run_id, self.engine, self.console = run, run_id, engine, console
        self.record, self._clock = record, clock
        self.current: Successor | None = None
        self.refused_until = 0.0
        """No submission before that: the scheduler said no, or what it took was cancelled."""
        self.refusal = ""
        """Why."""
        self._refusals = 0
        self._to_cancel: list[str | Successor] = []
        self._next_look = self._listed = 0.0

    def adopt(self, found: SuccessorRecord) -> None:
        """Take over the successor that an earlier launcher of the run submitted."""
        self.current = Successor(
            found.token, found.number, found.nodes, found.submitted, found.name, found.job, found.after
        )

    def submit(
        self,
        owner: int,
        nodes: tuple[int, int],
        *,
        after: str | None = None,
        by: str,
        reason: str,
        limit: float | None = None,
        whole: bool = False,
    ) -> bool:
        """Submit a successor; False when the scheduler refused it. Unanswered counts as submitted until it is known.

        Parameters
        ----------
        limit, whole
            See `Submission`.
        """
        number, token = owner + 1, new_token()
        name = job_name(self.run_id, number, token)
        environment = {ENV_RUN_DIR: str(self.run.folder), ENV_GENERATION: str(number), ENV_TOKEN: token}
        successor = Successor(token, number, nodes, self._clock(), name, after=after)
        fields = {"token": token, "successor": number, "name": name, "nodes": list(nodes), "after": after, "by": by}
        if limit is not None:
            fields["limit"] = round(limit)
        if not self.record("submitted", job=None, reason=reason, **fields):
            return False  # without a record nobody could find it again, or stop it
        reached("submitting", owner)
        self.current = successor
        wanted = Submission(number, token, name, nodes, environment, after, limit=limit, whole=whole)
        try:
            successor.job = self.engine.submit(wanted)
        except SubmitRefused as error:
            self._back_off(str(error))
            self._drop(f"refused: {error}")
            self.console.warn(f"a job with {words.span(*nodes)} was refused, going on as it is: {error}")
            return False
        except Unanswered as error:
            self._next_look = self._clock() + LOOK_FOR_LOST / 3
            self.console.warn(f"no answer to the submission of {words.span(*nodes)}; looking for it: {error}")
            return True
        except EngineError as error:
            self._back_off(str(error))
            self._drop(f"could not be submitted: {error}")
            self.console.warn(f"could not submit a job with {words.span(*nodes)}, going on as it is: {error}")
            return False
        self._refusals = 0
        reached("submitted", owner)
        self.record("submitted", job=successor.job, **fields)
        self.console.say(f"submitted job {successor.job} with {words.span(*nodes)}: {reason}")
        return True

    def arrived(self) -> bool:
        """Whether the successor's launcher has started. Asks no scheduler."""
        successor = self.current
        if successor is None:
            return False
        if successor.started is None and self._announced(successor):
            events = [e for e in self._events(successor) if e.get("token") == successor.token]
            successor.started = next((e for e in events if e.get("event") == "started"), None)
            if successor.started is not None and successor.job is None:
                successor.job = successor.started.get("job")
        return successor.started is not None

    def withdrew(self) -> bool:
        """Whether the successor was ended while it waited for its turn, and said so."""
        successor = self.current
        return successor is not None and any(
            e.get("event") == "cancelled" and e.get("token") == successor.token and e.get("by") == "successor"
            for e in self._events(successor)
        )

    def tick(self) -> None:
        """Look for a submission whose answer was lost, and try cancellations again that failed."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_FOR_LOST
        waiting, self._to_cancel = self._to_cancel, []
        for each in waiting:
            self._cancel_job(each)
        successor = self.current
        if successor is not None and successor.job is None and not self.arrived():
            self._find(successor)

    def _find(self, successor: Successor) -> None:
        try:
            info = self.engine.find(successor.name)
        except EngineError:
            return
        if info is not None and info.state in ("pending", "running"):
            successor.job = info.job
            self.record(
                "submitted", token=successor.token, successor=successor.number, name=successor.name,
                nodes=list(successor.nodes), after=successor.after, job=info.job,
            )  # fmt: skip
            self.console.say(f"found it: job {info.job}")
        elif info is not None or self._clock() - successor.submitted > GIVE_UP_LOST:
            self._drop("the submission did not arrive")

    def see(self, view: ClusterView) -> None:
        """Take note of what the queue says of the successor."""
        successor = self.current
        if successor is None or successor.job is None or self.arrived():
            return
        job = next((each for each in view.jobs if each.job == successor.job), None)
        if job is None:
            info = self.engine.job(successor.job)
            if info.state == "ended" and not self.arrived():
                self.console.say(f"the successor, job {successor.job}, is gone without a start: going on as it is")
                reason = f"ended before it took over: {info.reason or 'cancelled'}"
                self._drop(reason)
                self._back_off(reason)  # who cancelled it does not want the next one at once
            return
        if job.state != "pending":
            return
        if waits_for(job.reason) == "never":
            self.give_up(f"it would never start: {job.reason}")
        elif successor.after is None and job.reason.strip("()").split(",")[0] in NODE_LIMITS:
            self.give_up(f"it would not start beside this job: {job.reason}")

    def follow(self, nodes: tuple[int, int], by: str, reason: str) -> bool:
        """Ask for another size in the successor that waits; False when the scheduler does not change it."""
        successor = self.current
        if successor is None or successor.job is None or successor.nodes == nodes:
            return True
        try:
            self.engine.resize_pending(successor.job, nodes)
        except EngineError as error:
            self.console.detail(f"job {successor.job} keeps asking for {words.span(*successor.nodes)}: {error}")
            return False
        self.record("resized", token=successor.token, nodes=list(nodes), by=by, reason=reason)
        self.console.say(f"job {successor.job} now asks for {words.span(*nodes)}: {reason}")
        successor.nodes = nodes
        return True

    def cancel(self, reason: str) -> None:
        """Give the successor up, for good: recorded first, then told to the scheduler until it knows."""
        successor = self.current
        if successor is None:
            return
        self.arrived()
        self._drop(reason)
        self.console.say(f"cancelled the successor{f', job {successor.job}' if successor.job else ''}: {reason}")
        self._cancel_job(successor.job or successor)

    def give_up(self, reason: str) -> None:
        """Cancel the successor, and submit no other one for a while."""
        self.cancel(reason)
        self._back_off(reason)

    def forget(self) -> None:
        """Take note that the successor has taken over, or never will."""
        self.current = None

    def _back_off(self, why: str) -> None:
        self._refusals += 1
        self.refusal = why
        self.refused_until = self._clock() + min(3600.0, 300.0 * 2 ** (self._refusals - 1))

    def _drop(self, reason: str) -> None:
        successor, self.current = self.current, None
        assert successor is not None
        self.record("cancelled", token=successor.token, job=successor.job, reason=reason)

    def _cancel_job(self, what: str | Successor) -> None:
        try:
            if isinstance(what, Successor):
                info = self.engine.find(what.name)
                if info is None and self._clock() - what.submitted < GIVE_UP_LOST:
                    self._to_cancel.append(what)
                if info is None:
                    return
                what = info.job
            self.engine.cancel(what)
        except EngineError as error:
            self._to_cancel.append(what)
            self.console.detail(f"could not cancel {what if isinstance(what, str) else what.name} yet: {error}")

    def _events(self, successor: Successor) -> list[dict[str, Any]]:
        try:
            return self.run.events(successor.number)
        except OSError:  # looked at again in the next turn
            return []

    def _announced(self, successor: Successor) -> bool:
        folder = self.run.folder / "ledger"
        now = self._clock()
        if 0 <= now - self._listed < LOOK_FOR_START:
            return False
        self._listed = now
        try:
            # Listed: over NFS the answer that a file is not there may be a minute old.
            return f"{successor.number:04d}.{successor.token}.jsonl" in os.listdir(folder)
        except OSError:
            return False
