"""How fast the simulator is, and how much of what a central scheduler gains malleable runs gain by themselves.

python benchmarks/simulate.py --json -

``easy_10k_s``
    10,000 rigid jobs under EASY on 128 nodes, seconds; to reach: 5.
``malleable_50k_s``
    50,000 jobs, every one that can be malleable, each decision taken by the default policy, seconds; to reach: 120.
    With ``--trace FILE.swf`` the jobs of that trace, else drawn from the Lublin-Feitelson model.
``share_of_central``
    Gain in mean turnaround over all rigid, as a share of what central malleability gains; mean over the seeds of the
    Amdahl recipe; to reach: 0.8.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from pathlib import Path
from typing import Any

from dmr.resize.policy import load_policy
from dmr.resize.simulate import swf
from dmr.resize.simulate.engine import simulate_rigid
from dmr.resize.simulate.experiment import Interval, Regime, compare, simulate_malleable
from dmr.resize.simulate.generate import amdahl, lublin
from dmr.resize.simulate.malleable import Launcher
from dmr.resize.simulate.metrics import metrics
from dmr.resize.simulate.workload import Workload, make_malleable

NODES = 128
LOAD = 0.85
"""Offered load of the drawn workloads: crowded, but not without end."""


def timed(call: Any, *words: Any, **options: Any) -> tuple[Any, float, float]:
    """Return the result, seconds by the clock, and seconds of the processor."""
    began, used = time.perf_counter(), time.process_time()
    result = call(*words, **options)
    return result, time.perf_counter() - began, time.process_time() - used


def speed_easy(found: dict[str, Any]) -> None:
    jobs = lublin(10_000, NODES, 1).scaled(LOAD, NODES)
    _, found["easy_10k_s"], found["easy_10k_cpu_s"] = timed(simulate_rigid, jobs, NODES)


def speed_malleable(found: dict[str, Any], trace: Path | None, count: int, cores: int) -> None:
    jobs = read(trace, cores).first(count) if trace else lublin(count, NODES, 1).scaled(LOAD, NODES)
    nodes = jobs.nodes or NODES
    mixed = make_malleable(jobs, 1.0, nodes, 1)
    launcher = Launcher(load_policy("queue"))
    schedule, found["malleable_50k_s"], found["malleable_50k_cpu_s"] = timed(simulate_malleable, mixed, nodes, launcher)
    rigid, after = metrics(simulate_rigid(jobs, nodes)), metrics(schedule)
    found["malleable_50k"] = {
        "source": jobs.source, "jobs": len(jobs.jobs), "malleable": after.malleable.jobs, "nodes": nodes,
        "load": jobs.load(nodes), "decisions": schedule.decisions, "resizes": after.resizes,
        "turnaround_ratio": after.all.turnaround / rigid.all.turnaround,
        "makespan_ratio": after.makespan / rigid.makespan,
    }  # fmt: skip


def read(path: Path, cores: int) -> Workload:
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8", errors="replace")
    return swf.to_workload(swf.parse(text.splitlines()), cores, path.name)


def worth(found: dict[str, Any], seeds: int, load: float) -> None:
    launcher = Launcher(load_policy("queue"))
    regimes = [Regime("rigid", "rigid")]
    for share in (1.0, 0.5):
        regimes.append(Regime(f"central {share}", "central", share))
        regimes.append(Regime(f"user {share}", "user", share, launcher=launcher))
    results = {
        each.name: each
        for each in compare(lambda seed: amdahl(300, NODES, seed, load=load), NODES, regimes, range(seeds))
    }
    all_, half = results["user 1.0"], results["user 0.5"]
    found["recipe"] = {
        "load": load, "seeds": seeds,
        "share_of_central": plain(all_.share_of_central),
        "makespan_ratio": plain(all_.ratios["makespan"]),
        "turnaround_ratio": plain(all_.ratios["turnaround"]),
        "utilisation": plain(all_.values["utilisation"]),
        "utilisation_rigid": plain(results["rigid"].values["utilisation"]),
        "rigid_turnaround_half_mix": plain(half.rigid_effect),
        "share_of_central_half_mix": plain(half.share_of_central),
    }  # fmt: skip
    found["share_of_central"] = all_.share_of_central.mean


def plain(value: Interval) -> dict[str, float]:
    return {"mean": round(value.mean, 4), "half": round(value.half, 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", default="-", help="where to write the numbers; - is standard output")
    parser.add_argument("--trace", type=Path, help="a trace in the Standard Workload Format for the 50,000 jobs")
    parser.add_argument("--cores-per-node", type=int, default=1, help="processors of the trace that make a node")
    parser.add_argument("--jobs", type=int, default=50_000, help="how many of them")
    parser.add_argument("--seeds", type=int, default=10, help="seeds of the Amdahl recipe")
    parser.add_argument("--load", type=float, default=1.5, help="offered load of the Amdahl recipe")
    parser.add_argument("--only", choices=["easy", "malleable", "worth"], help="one part alone")
    given = parser.parse_args()
    found: dict[str, Any] = {}
    if given.only in (None, "easy"):
        speed_easy(found)
    if given.only in (None, "malleable"):
        speed_malleable(found, given.trace, given.jobs, given.cores_per_node)
    if given.only in (None, "worth"):
        worth(found, given.seeds, given.load)
    text = json.dumps(found, indent=2)
    if given.json == "-":
        sys.stdout.write(text + "\n")
    else:
        Path(given.json).write_text(text + "\n")


if __name__ == "__main__":
    main()
