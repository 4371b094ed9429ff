"""One run as `dmr top` shows it: its state, its size over time, its last decision. From files alone."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...resize import words
from .history import GenerationRecord
from .rundir import RunDir, RunDirError
from .status import LIVE, RunStatus, events_without_decisions, read_status

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 24
TAIL = 1 << 17
"""Bytes at the end of a ledger in which the last decision is looked for."""


@dataclass(frozen=True)
class Watched:
    """A run at one time. ``sizes`` is a line of bars, ``decision`` a sentence; seconds and unix seconds."""

    status: RunStatus
    sizes: str
    decision: str
    waiting: float | None
    changed: float

    @property
    def live(self) -> bool:
        return self.status.state in LIVE


def watch(run: RunDir, now: float | None = None) -> Watched | None:
    """Look at a run; None when it can't be read."""
    now = time.time() if now is None else now
    try:
        status = read_status(run, now)
        history = events_without_decisions(run)
    except (RunDirError, OSError):
        return None
    last = history.last
    changed = status.updated or (last.end or last.start if last else 0.0)
    end = now if status.state in LIVE else changed
    interval = float(run.description().get("query_interval", 60.0))
    return Watched(
        status,
        bars(history.generations, end, WIDTH),
        decision_line(last_decision(run, status.generation), interval, now),
        now - status.pending_since if status.pending_since else None,
        changed,
    )


def bars(generations: Sequence[GenerationRecord], end: float, width: int) -> str:
    """Return the size over time as ``width`` bars, the largest size the full one; a gap is a blank. Pure."""
    if not generations or width < 1:
        return ""
    start = generations[0].start
    most = max(each.nodes for each in generations)
    step = max(end - start, 1e-9) / width
    line = ""
    for place in range(width):
        moment = start + (place + 0.5) * step
        held = [each for each in generations if each.start <= moment and (each.end is None or moment < each.end)]
        line += BARS[max(0, held[-1].nodes * len(BARS) // most - 1)] if held else " "
    return line


def last_decision(run: RunDir, generation: int) -> dict[str, Any] | None:
    """Return the last ``decided`` event of a generation, from the end of its ledger."""
    path = run.folder / "ledger" / f"{generation:04d}.jsonl"
    try:
        with open(path, "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - TAIL))
            lines = stream.read().splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        if b'"event": "decided"' in line[:200]:
            try:
                found = json.loads(line)
            except ValueError:
                continue
            return found if isinstance(found, dict) else None
    return None


def decision_line(event: Mapping[str, Any] | None, interval: float, now: float) -> str:
    """Return a decision in a sentence, with the queue that it saw and when the next one is due. Pure."""
    if event is None:
        return ""
    decision = event.get("decision", {})
    facts = decision.get("facts", {})
    ago = max(0.0, now - float(event.get("time", now)))
    numbers = {key: facts[key] for key in ("idle", "total", "waiting") if isinstance(facts.get(key), (int, float))}
    seen = ", ".join(f"{key} {value:g}" for key, value in numbers.items())
    due = f"next look in {max(0.0, interval - ago):.0f} s"
    what = f"{decision.get('action', '?')} ({words.count(decision.get('nodes', 0), 'node')})"
    text = f"{what} {ago:.0f} s ago: {decision.get('reason', '')}"
    return f"{text} [{seen}]; {due}" if seen else f"{text}; {due}"
