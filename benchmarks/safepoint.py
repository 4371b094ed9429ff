"""What an idle safe point costs: a turn of run.steps less a turn of a bare range, in nanoseconds.

Run alone or on ranks (``mpirun -n 2 python benchmarks/safepoint.py``); rank 0 reports.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import click

import dmr


def seconds_per_turn(turns: Iterable[int], count: int) -> float:
    begin = time.perf_counter()
    for _ in turns:
        pass
    return (time.perf_counter() - begin) / count


@click.command(help=__doc__)
@click.option("--turns", default=300_000, show_default=True, help="Turns of the loop in a round.")
@click.option("--rounds", default=9, show_default=True, help="Rounds; the median counts.")
@click.option("--json", "out", type=click.Path(path_type=Path), help="Write the figures as JSON; - for output.")
def main(turns: int, rounds: int, out: Path | None) -> None:
    @dmr.malleable
    def measure(run: dmr.Run) -> None:
        state = run.array("u", (1000,), "f8")
        state.local[:] = 1.0
        idle, calls, bare = [], [], []
        for _ in range(rounds):
            bare.append(seconds_per_turn(range(turns), turns))
            idle.append(seconds_per_turn(run.steps(turns), turns))
        check = run.check
        for _ in range(rounds):
            begin = time.perf_counter()
            for _ in range(turns):
                check()
            calls.append((time.perf_counter() - begin) / turns)
        if run.rank:
            return
        base = statistics.median(bare)
        found = {
            "idle_ns": round((statistics.median(idle) - base) * 1e9, 1),
            "check_ns": round((statistics.median(calls) - base) * 1e9, 1),
            "bare_ns": round(base * 1e9, 1),
            "ranks": run.ranks,
            "turns": turns,
            "rounds": rounds,
        }
        if out is None:
            print(f"idle safe point: {found['idle_ns']} ns by run.steps, {found['check_ns']} ns by dmr.check")
        elif str(out) == "-":
            json.dump(found, sys.stdout)
            print()
        else:
            out.write_text(json.dumps(found) + "\n")

    measure()


if __name__ == "__main__":
    main()
