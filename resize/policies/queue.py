"""The default policy: aware of the queue, fair to it, and of what a change costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..policy import Glance, Proposal
from ..situation import Rules, Situation


@dataclass(frozen=True)
class Queue:
    """Gives way to waiting jobs, takes nodes that nobody waits for.

    It shrinks by the least that lets the highest-priority waiting job start that a shrink can help, if
    that job would otherwise wait longer than the change takes. It grows into idle nodes that no waiting
    job could use before this run would be done, to the size that ends first, if that brings more than
    it costs.
    """

    rules: Rules = Rules()
    name: str = "queue"

    def may_change(self, held: int, sizes: Sequence[int], glance: Glance) -> bool:
        """Whether a waiting job could get enough from us, or we enough idle nodes for a larger size."""
        if glance.missing is not None and glance.missing <= held - sizes[0]:
            return True
        larger = next((size for size in sizes if size > held), None)
        return larger is not None and glance.idle >= (larger if held + larger <= glance.total else larger - held)

    def propose(self, situation: Situation) -> Proposal:
        remarks: dict[int, str] = {}
        shrink = self._give_way(situation, remarks)
        return shrink if shrink is not None else self._grow(situation, remarks)

    def _give_way(self, situation: Situation, remarks: dict[int, str]) -> Proposal | None:
        run, outlook = situation.run, situation.outlook
        found = outlook.helped(run.nodes, situation.sizes)
        if found is None:
            for size in situation.sizes:
                if size < run.nodes:
                    remarks[size] = "lets no waiting job start"
            return None
        job, size = found
        for other in (each for each in situation.sizes if each < run.nodes and each != size):
            remarks[other] = f"job {job.job} starts with less given" if other < size else "lets no waiting job start"
        cost = situation.cost(size).total
        saved = outlook.wait_without(job) - cost
        left = situation.seconds_left(run.nodes)
        if left is not None and left.value <= cost:
            remarks[size] = "this run ends sooner than the change would take"
            return None
        if saved <= 0:
            remarks[size] = f"job {job.job} starts by itself before the change would be done"
            return None
        hasty = f"{saved:.0f} s earlier" if math.isfinite(saved) else "now instead of at a time unknown"
        return Proposal(
            size,
            f"job {job.job} waits for {job.nodes} nodes and starts {hasty} with {run.nodes - size} of ours",
            cancel=run.pending is not None,
            remarks=remarks,
        )

    def _grow(self, situation: Situation, remarks: dict[int, str]) -> Proposal:
        run, best = situation.run, None
        for size in (each for each in situation.sizes if each > run.nodes):
            if not situation.detailed and situation.beside(size) > situation.outlook.room:
                continue
            refusal = self._refuse(situation, size)
            if refusal:
                remarks[size] = refusal
                continue
            gain = situation.row(size).gain
            if best is None or gain is None or gain > best[1]:
                best = (size, math.inf if gain is None else gain)
        if best is None:
            why = "no larger size pays or is free" if run.nodes < situation.sizes[-1] else "at the largest size"
            return Proposal(run.nodes, why, cancel=run.pending is not None, remarks=remarks)
        size, gain = best
        pays = f"ends {gain:.0f} s sooner" if math.isfinite(gain) else "what it brings is not yet measured"
        reason = f"{situation.beside(size)} nodes are idle that nobody waits for; {pays}"
        return Proposal(size, reason, remarks=remarks, limit=situation.outlook.limit(situation.beside(size)))

    def _refuse(self, situation: Situation, size: int) -> str:
        outlook, need = situation.outlook, situation.beside(size)
        row = situation.if_free(size) if need <= outlook.room else situation.row(size)
        done = math.inf if row.finish is None else row.finish
        if need > outlook.unwanted(done):
            if need > situation.cluster.idle:
                return f"needs {need} idle nodes, there are {situation.cluster.idle}"
            return f"needs {need} idle nodes that nobody waits for, there are {outlook.unwanted(done)}"
        if situation.is_chain(size) and outlook.waiting:
            return "the run would have to leave its nodes first, and others wait"
        if row.gain is None or row.gain_error is None or row.cost is None:
            return ""
        if row.gain <= self.rules.margin * row.cost:
            return f"brings {row.gain:.0f} s, too little beside a cost of {row.cost:.0f} s"
        return ""
