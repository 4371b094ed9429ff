"""Run directories as launchers, ranks and samplers leave them, with known contents."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dmr.launcher.run.options import RunOptions
from dmr.launcher.run.rundir import RunDir
from dmr.launcher.telemetry.layout import Header, Pyramid
from dmr.launcher.telemetry.node import COLUMNS

T0 = 1_800_000_000.0
SERIAL = {"mesh": 0.15, "solve": 0.002, "write": 0.8}
CPU = {"mesh": 0.6, "solve": 0.97, "write": 0.15}


def seconds_per_step(phase: str, nodes: int) -> float:
    return SERIAL[phase] + (1 - SERIAL[phase]) / nodes


@dataclass
class MadeRun:
    """A run on virtual time: ``launch``, ``compute``, ``save`` and ``leave`` move on its clock."""

    folder: Path
    sizes: tuple[int, ...] = (1, 2, 4, 8, 16)
    clock: float = T0
    generation: int = 0
    nodes: int = 0
    step: int = 0
    job: str | None = "100"
    lines: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    ahead: dict[str, float] = field(default_factory=dict)
    """By file of the ledger, or node: by how much its clock is ahead."""

    def __post_init__(self) -> None:
        options = RunOptions("made", ("python", "app.py", "--size", "9"), "/", self.sizes)
        self.run = RunDir.create(self.folder, options.to_json())
        self.rng = np.random.default_rng(3)
        self.event("created", generation=1, run="made", nodes=4)

    def event(self, event: str, *, app: bool = False, generation: int | None = None, at: float | None = None,
              claimant: str | None = None, **fields: Any) -> None:  # fmt: skip
        number = generation or self.generation
        name = f"{number:04d}{'.app' if app else f'.{claimant}' if claimant else ''}.jsonl"
        time = (self.clock if at is None else at) + self.ahead.get(name, 0.0)
        self.lines.setdefault(name, []).append({"time": time, "generation": number, "event": event, **fields})

    def launch(
        self, nodes: int, *, seconds: float = 4.0, load: float = 0.0, cause: str = "fresh", token: str = ""
    ) -> None:
        self.generation, self.nodes = self.generation + 1, nodes
        hosts = [f"n{index}" for index in range(nodes)]
        token = token or f"t{self.generation}"
        self.event("launched", token=token, job=self.job, nodes=nodes, hosts=hosts, ranks=nodes, cause=cause)
        self.began, self.samples = self.clock, []
        self._sample(seconds + load, 0.3, None)
        self.event("loaded", launch=seconds, load=load or None, step=self.step)
        self.first = self.step

    def compute(self, phase: str, steps: int, *, declare: bool = True) -> None:
        if declare:
            self.event("phase", app=True, phase=phase, step=self.step)
        per_step = seconds_per_step(phase, self.nodes)
        self._sample(steps * per_step, CPU[phase], per_step)
        self.step += steps

    def _sample(self, seconds: float, cpu: float, per_step: float | None) -> None:
        until = self.clock + seconds
        first, base = self.clock, self.step
        while self.clock + 1e-9 < until:
            self.clock = min(until, np.floor(self.clock) + 1.0)
            step = base + (self.clock - first) / per_step if per_step else np.nan
            self.samples.append((self.clock, cpu, np.floor(step), per_step or np.nan))

    def save(self, seconds: float = 1.0) -> None:
        self._sample(seconds, 0.1, None)
        name = f"step-{self.step:012d}-g{self.generation:04d}.h5"
        self.event("checkpoint", app=True, name=name, step=self.step, bytes=10**9, seconds=seconds)

    def resize(
        self,
        nodes: int,
        *,
        by: str = "policy queue",
        reason: str = "idle nodes",
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Change size in place."""
        decision = {"action": "expand", "nodes": nodes, "reason": reason, "policy": "queue",
                    "facts": {"waiting": 2, "idle": 3, "total": 16, **(facts or {})}}  # fmt: skip
        self.event("decided", step=self.step, decision=decision)
        self.event("requested", id=self.generation, action="resize", nodes=nodes, by=by, reason=reason)
        why = "expand" if nodes > self.nodes else "shrink"
        self.save()
        self.end(why)
        self.launch(nodes, load=1.0, cause=why)

    def successor(self, nodes: int, waits: float, phase: str, *, reason: str = "it pays") -> None:
        """Change size by a successor that waits while this one computes in a phase."""
        token, number, owner = f"s{self.generation + 1}", self.generation + 1, self.generation
        about = {"token": token, "successor": number, "name": f"made:{number}", "nodes": [nodes] * 2, "after": None}
        self.event("submitted", job=None, by="policy queue", reason=reason, **about)
        self.event("submitted", job="101", by="policy queue", **about)
        self.compute(phase, int(waits / seconds_per_step(phase, self.nodes)), declare=False)
        self.event("started", generation=number, claimant=token, token=token, job="101", nodes=nodes, host="n9")
        self.event("requested", id=owner, action="resize", nodes=nodes, by="successor", reason="job 101 has started")
        self.compute(phase, 2, declare=False)
        self.save()
        self.end("expand")
        self.event("released", token=token)
        self.job = "101"
        self.launch(nodes, load=1.0, cause="expand", token=token)

    def end(self, why: str = "finished") -> None:
        self.event("ended", why=why, exit=0, step=self.step, first_step=self.first, rates=[], seconds_per_step=1.0)
        for index in range(self.nodes):
            self._telemetry(f"n{index}", index == 0)
        self.clock += 0.5 if why != "finished" else 0.0

    def _telemetry(self, node: str, first: bool) -> None:
        columns = (*COLUMNS, *(("step", "seconds_per_step", "state") if first else ()))
        facts = {"period": 1.0, "cpus": 4, "memory_held": 64e9, "machine": "cluster", "token": "", "first": first,
                 "clock_ahead": self.ahead.get(node, 0.0)}  # fmt: skip
        pyramid = Pyramid(self.folder / "telemetry", Header(self.generation, node, columns, facts=facts))
        for time, cpu, step, per_step in self.samples:
            row = dict.fromkeys(columns, np.nan)
            busy = 4 * cpu + 0.1 * self.rng.normal()
            row.update(cpu=busy, memory=12e9 + 1e8 * self.rng.normal(), ranks=1, cpus=4, processes=1, threads=1,
                       switches=100, read=0, write=5e6 if cpu == CPU["write"] else 0, sampler=0.002, step=step,
                       seconds_per_step=per_step, state=1)  # fmt: skip
            pyramid.append(time + self.ahead.get(node, 0.0), [row[name] for name in columns])
        pyramid.close()

    def write(self) -> Path:
        """Write the ledger, each file as old as its last line."""
        for name, lines in self.lines.items():
            path = self.folder / "ledger" / name
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
            moment = lines[-1]["time"] - self.ahead.get(name, 0.0)
            os.utime(path, (moment, moment))
        return self.folder


def three_phases(folder: Path, *, declare: bool = True, rounds: int = 2, **options: Any) -> MadeRun:
    """Return a run that begins on 4 nodes, grows in place to 8 in the last round's solve, and ends."""
    made = MadeRun(folder, **options)
    made.launch(4)
    for number in range(rounds):
        made.compute("mesh", 60, declare=declare)
        if number == rounds - 1:
            made.compute("solve", 40, declare=declare)
            made.resize(8)
            if declare:
                made.event("phase", app=True, phase="solve", step=made.step)
        made.compute("solve", 160, declare=declare)
        made.save()
        made.compute("write", 40, declare=declare)
    made.end()
    return made


def changed(folder: Path) -> MadeRun:
    """Return a run with an effective, a late and an effective change of size."""
    made = MadeRun(folder)
    made.launch(4)
    made.compute("mesh", 100)
    made.compute("solve", 100)
    made.successor(16, 60.0, "solve", reason="12 nodes are idle that nobody waits for")
    made.event("phase", app=True, phase="solve", step=made.step)
    made.compute("solve", 300)
    made.compute("mesh", 100)
    made.resize(2, by="policy phases", facts={"for_phase": "mesh"})
    made.compute("write", 60)
    made.resize(8, by="user root")
    made.compute("write", 60)
    made.compute("solve", 300)
    made.end()
    made.write()
    return made


def labels(phases: Sequence[Any]) -> list[tuple[str, int]]:
    return [(each.label, each.nodes) for each in phases]
