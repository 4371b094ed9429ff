"""The default policy: aware of the queue, fair to it, and of what a change costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from .. import words
from ..limit import limit_for
from ..policy import Glance, Proposal
from ..situation import Rules, Situation
from ..view import Choice, JobView

LEAVES_FIRST = "the run would have to leave its nodes first, and others wait"


@dataclass(frozen=True)
class Queue:
    """Gives way to waiting jobs, takes nodes that nobody waits for.

    It shrinks by the least that lets the highest-priority waiting job start that a shrink can help, if that job
    gains more time by it than this run loses. It grows into idle nodes that no waiting job could use before this run
    would be done, to the size that ends first, if that brings more than it costs; while others wait, not beyond the
    preferred size. It leaves a size that was measured to be slower than a smaller one. A successor that it
    asked for is given up when it would lose more than starting it again would cost, or its nodes are not to be had.

    Attributes
    ----------
    worth
        How many seconds of this run it gives for one second that a waiting job starts earlier.
    """

    worth: float = 1.0
    rules: Rules = Rules()
    name: str = "queue"
    moldable: ClassVar[bool] = True

    def may_change(self, held: int, sizes: Sequence[int], glance: Glance) -> bool:
        """Whether a waiting job could get enough from us, or we enough idle nodes for a larger size."""
        if glance.missing is not None and glance.missing <= held - sizes[0]:
            return True
        larger = next((size for size in sizes if size > held), None)
        return larger is not None and glance.idle >= (larger if held + larger <= glance.total else larger - held)

    def propose(self, situation: Situation) -> Proposal:
        remarks: dict[int, str] = {}
        shrink = self._give_way(situation, remarks)
        return shrink if shrink is not None else self._fastest(situation, remarks)

    # -- giving way

    def _give_way(self, situation: Situation, remarks: dict[int, str]) -> Proposal | None:
        run, outlook = situation.run, situation.outlook
        found = outlook.helped(run.nodes, situation.sizes)
        if found is None:
            if situation.detailed:
                remarks.update({each: "lets no waiting job start" for each in situation.sizes if each < run.nodes})
            return None
        job, size = found
        if situation.detailed:
            for other in (each for each in situation.sizes if each < run.nodes and each != size):
                early = "lets no waiting job start" if other > size else f"job {job.job} starts with less given"
                remarks[other] = early
        if situation.is_chain(size):
            remarks[size] = LEAVES_FIRST
            return None
        saved, lost = self._saved(situation, job, size), self._lost(situation, job, size)
        if saved <= 0:
            remarks[size] = f"job {job.job} starts by itself before the change would be done"
            return None
        if self.worth * saved <= lost:
            remarks[size] = f"job {job.job} would start {saved:.0f} s earlier, this run would lose {lost:.0f} s"
            return None
        hasty = f"{saved:.0f} s earlier" if math.isfinite(saved) else "now instead of at a time unknown"
        return Proposal(
            size,
            f"job {job.job} waits for {words.nodes(job.nodes)} and starts {hasty} with {run.nodes - size} of ours",
            cancel=run.pending is not None,
            remarks=remarks,
        )

    def _saved(self, situation: Situation, job: JobView, size: int) -> float:
        """Return how much earlier the job starts, seconds."""
        left = situation.seconds_left(situation.run.nodes)
        done = math.inf if left is None else situation.run.time + left.value
        change = situation.cost(size)
        return situation.outlook.wait_without(job, done) - situation.wait(size)[0] - change.save - change.lost

    def _lost(self, situation: Situation, job: JobView, size: int) -> float:
        """Return by how much this run ends later, seconds: it is slower until the job's limit, then grows again."""
        run, change = situation.run, situation.cost(size).total
        here, there = situation.seconds_left(run.nodes), situation.seconds_left(size)
        if here is None or there is None:
            return change
        lost = change + max(0.0, there.value - here.value)
        if job.time_limit is not None and there.value > 0:
            lost = min(lost, 2 * change + job.time_limit * max(0.0, 1 - here.value / there.value))
        if run.end is not None and here.value <= run.end - run.time < there.value + change:
            lost += change + situation.outlook.wait_at_least(size)
        return lost

    # -- being fast

    def _fastest(self, situation: Situation, remarks: dict[int, str]) -> Proposal:
        run = situation.run
        gains: dict[int, float] = {}
        for size in situation.sizes:
            if size == run.nodes or (size < run.nodes and size not in situation.speed.samples):
                continue
            if not situation.detailed and size > run.nodes and situation.beside(size) > situation.outlook.room:
                continue
            refusal = self._refuse(situation, size)
            if refusal:
                remarks[size] = refusal if size > run.nodes else remarks.get(size, refusal)
                continue
            gain = situation.if_free(size).gain
            gains[size] = math.inf if gain is None else gain
        if not gains:
            why = "no other size pays or is free" if run.nodes < situation.sizes[-1] else "at the largest size"
            if run.pending is not None and run.pending in remarks:
                why = f"the {words.nodes(run.pending)} asked for: {remarks[run.pending]}"
            return Proposal(run.nodes, why, cancel=run.pending is not None, remarks=remarks)
        size = self._best(situation, gains)
        gain = gains.pop(size)
        remarks.update(dict.fromkeys(gains, words.count(size, "node brings more", "nodes bring more")))
        pays = f"ends {abs(gain):.0f} s {'sooner' if gain >= 0 else 'later'}"
        if not math.isfinite(gain):
            pays = "what it brings is not yet measured"
        if size < run.nodes:
            return Proposal(size, f"measured to be faster; {pays}", cancel=run.pending is not None, remarks=remarks)
        reason = f"{words.count(situation.beside(size), 'node is', 'nodes are')} idle that nobody waits for; {pays}"
        return Proposal(size, reason, remarks=remarks, limit=situation.outlook.limit(situation.beside(size)))

    def _best(self, situation: Situation, gains: Mapping[int, float]) -> int:
        """Return the size that brings most; that of a successor under way, where another brings hardly more."""
        size, pending = max(gains, key=lambda each: (gains[each], each)), situation.run.pending
        if pending is None or pending not in gains or math.isinf(gains[size]):
            return size
        return pending if gains[size] - gains[pending] <= situation.cost(size).total else size

    def _done(self, situation: Situation, row: Choice) -> float:
        """Return the earliest end of a time limit with which the run is done, at the slow end of what is known."""
        if row.finish is None:
            return math.inf
        end, step = row.finish + (row.gain_error or 0.0), situation.speed.at(row.nodes)
        now, save = situation.run.time, situation.cost(row.nodes).save
        return now + limit_for(end - now, 0.0 if step is None else step.value, save)

    def _refuse(self, situation: Situation, size: int) -> str:
        outlook, need = situation.outlook, situation.beside(size)
        row = situation.if_free(size) if need <= outlook.room else situation.row(size)
        if size > situation.run.nodes:
            done = self._done(situation, row)
            if need > situation.cluster.idle:
                return f"needs {words.count(need, 'idle node')}, there are {situation.cluster.idle}"
            if need > outlook.unwanted(done):
                return f"needs {need} idle nodes that nobody waits for, there are {outlook.unwanted(done)}"
            if situation.told(size) > 0:
                more = words.count(need, "more node")
                return f"the scheduler says that {more} can't be had for {situation.told(size):.0f} s"
            if situation.is_chain(size) and outlook.waiting:
                return LEAVES_FIRST
            preferred = self.rules.preferred
            if preferred is not None and size > max(preferred, situation.run.nodes) and outlook.now.head is not None:
                return f"beyond the preferred {words.nodes(preferred)} while others wait"
        elif situation.is_chain(size) and outlook.waiting:
            return LEAVES_FIRST
        if row.gain is None or row.gain_error is None or row.cost is None:
            return "" if size > situation.run.nodes else "not known to be faster"
        if size == situation.run.pending and size > situation.run.nodes:
            return self._turned(situation, row.gain, row.cost)
        if row.gain <= self.rules.margin * row.cost:
            return f"brings {row.gain:.0f} s, too little beside a cost of {row.cost:.0f} s"
        if row.gain <= row.gain_error and size <= situation.speed.largest:
            return f"brings {row.gain:.0f} s, less than the uncertainty of {row.gain_error:.0f} s"
        return ""

    def _turned(self, situation: Situation, gain: float, cost: float) -> str:
        """Return why a successor under way is given up for its gain, which wobbles as more is measured.

        To start it again would cost what a change costs: as long as it loses less, it is kept.
        """
        left = situation.seconds_left(situation.run.nodes)
        if left is not None and left.value <= (1 + self.rules.margin) * cost:
            return f"the run ends in {left.value:.0f} s, a change costs {cost:.0f} s"
        return "" if gain > -cost else f"it would end {-gain:.0f} s later, a change costs {cost:.0f} s"
