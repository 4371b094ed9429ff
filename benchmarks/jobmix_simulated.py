"""The mix of `jobmix.py` simulated, over several seeds: what malleable runs, a central scheduler and rigid jobs have,
and where the node-seconds go that nobody holds.

ends     idle, and all that is there has its largest size: begin and tail
turn     idle before the turn of a job that needs more
looks    idle between two looks of a launcher, within the dwell time, or while runs change
waits    idle while a successor waits for the scheduler
passes   idle until the scheduler's next pass
beside   idle, but fewer than a new allocation beside the old one needs

Examples: ``jobmix_simulated.py --jobs 60 120 240``, ``jobmix_simulated.py --start-most 4 --seeds 12 --json -``
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import Counter
from typing import Any

import jobmix
from figures import put_out
from jobmix_forecast import CYCLE, SCHEDULER, Costs, central, forecast, with_overhead

from dmr.resize.policy import load_policy
from dmr.resize.simulate.engine import Simulation
from dmr.resize.simulate.malleable import Fleet, Launcher, Run
from dmr.resize.simulate.metrics import Metrics, metrics
from dmr.resize.simulate.workload import make_malleable

COSTS = Costs(1.6, 0.15, 0.01, 0.6, 0.03)
"""Seconds of a start, an end, and the parts of a change, as measured on a quiet machine."""
TICK = 0.25


def reason(simulation: Simulation) -> str:
    """Return why nodes are idle now."""
    free = simulation.machine.free
    runs = [each.owner for each in simulation.machine.held.values() if isinstance(each.owner, Run)]
    waiting = [each for each in simulation.queue if each.owner.allocation is None]
    if waiting:
        return "passes" if waiting[0].nodes <= free else "turn"
    if all(run.nodes == run.job.sizes[-1] for run in runs):
        return "ends"
    if len(simulation.queue):
        return "waits"
    return "beside" if all(run.nodes == run.job.sizes[-1] or free <= run.nodes for run in runs) else "looks"


def simulated(given: argparse.Namespace) -> tuple[Metrics, dict[str, float]]:
    """Run the mix with all jobs malleable; return its metrics, and the shares of node-seconds held or idle."""
    malleable = make_malleable(jobmix.drawn(given), 1.0, given.nodes, given.seed)
    jobs = with_overhead(malleable, COSTS.startup + COSTS.closing)
    policy = load_policy(given.policy, {"dwell": f"{given.dwell:g}"})
    launcher = Launcher(
        policy, given.interval, COSTS.save, COSTS.launch, COSTS.load, start_most=given.start_most,
        time_min=given.time_min,
    )  # fmt: skip
    simulation = Simulation(jobs, given.nodes, SCHEDULER, cycle=CYCLE)
    Fleet(simulation)
    found: Counter[str] = Counter()

    def look() -> None:
        free = simulation.machine.free
        if len(simulation.schedule.outcomes) == len(jobs.jobs) and free == given.nodes and not len(simulation.queue):
            return
        found["held"] += given.nodes - free
        if free:
            found[reason(simulation)] += free
        simulation.at(simulation.now + TICK, look)

    simulation.at(TICK, look)
    schedule = simulation.run(launcher.submit)
    return metrics(schedule), {each: count / found.total() for each, count in found.items()}


def row(given: argparse.Namespace, jobs: int) -> dict[str, Any]:
    """Return means over the seeds."""
    mine, ideal, rigid, shares = [], [], [], Counter[str]()
    for seed in range(1, given.seeds + 1):
        drawn = argparse.Namespace(**{**vars(given), "jobs": jobs, "seed": seed})
        told, where = simulated(drawn)
        mine.append(told)
        shares.update(where)
        work = jobmix.drawn(drawn)
        extra = {job.id: COSTS.startup + COSTS.closing for job in work.jobs}
        ideal.append(metrics(central(make_malleable(work, 1.0, drawn.nodes, seed), drawn, extra)))
        rigid.append(metrics(forecast(make_malleable(work, 0.0, drawn.nodes, seed), COSTS, drawn)))
    return {
        "jobs": jobs,
        **{
            f"{name}_{what}": round(statistics.fmean(value(each) for each in told), 4)
            for name, told in (("malleable", mine), ("central", ideal), ("rigid", rigid))
            for what, value in (
                ("utilisation", lambda each: each.utilisation), ("makespan", lambda each: each.makespan),
                ("turnaround", lambda each: each.all.turnaround),
            )
        },
        "shares": {name: round(value / given.seeds, 4) for name, value in sorted(shares.items())},
    }  # fmt: skip


def show(found: dict[str, Any]) -> None:
    for each in found["rows"]:
        print(f"{each['jobs']} jobs")
        for name in ("malleable", "central", "rigid"):
            print(
                f"  {name:10} utilisation {each[f'{name}_utilisation']:.1%}  makespan {each[f'{name}_makespan']:.0f} s"
                f"  turnaround {each[f'{name}_turnaround']:.1f} s"
            )
        print("  " + "  ".join(f"{name} {value:.1%}" for name, value in each["shares"].items()))


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--jobs", type=int, nargs="+", default=[60], help="sizes of the mix (default: 60)")
    made.add_argument("--nodes", type=int, default=100)
    made.add_argument("--work", type=float, default=400.0, help="mean seconds of a job on one node")
    made.add_argument("--load", type=float, default=1.5)
    made.add_argument("--seeds", type=int, default=10)
    made.add_argument("--policy", default="queue")
    made.add_argument("--interval", type=float, default=5.0)
    made.add_argument("--dwell", type=float, default=10.0)
    made.add_argument("--start-most", type=float, default=math.inf)
    made.add_argument("--time-min", type=float, default=1.0)
    made.add_argument("--json", metavar="FILE", help="write the figures there; - is standard output")
    given = made.parse_args()
    put_out({"seeds": given.seeds, "rows": [row(given, jobs) for jobs in given.jobs]}, given.json, show)


if __name__ == "__main__":
    main()
