"""The same crowded mix of jobs on a real Slurm three times: all rigid, half of them malleable, all malleable.

A private Slurm with so many virtual nodes; every job is a real run under dmr-launch of a program whose step time
follows Amdahl's law, scaled in time, with a real state that is saved and repartitioned. Jobs are drawn after the Amdahl
recipe (`dmr simulate amdahl`); rigid ones ask for a size between preferred and largest. The simulator's forecast of
each mix, with the costs of a start and of a change that were measured in it, stands beside it.

makespan_ratio, turnaround_ratio  all malleable over all rigid
utilisation_gain                  points of a hundred, all malleable less all rigid; nodes held as sinfo shows them,
                                  from first submission to last end; of that, "computing" is without starts and changes
                                  of size, "useful" counts each job's work on one node, "steady" is held while jobs
                                  keep coming, from a sixth of them to the last
central                           the all malleable mix under a simulated scheduler that resizes running jobs itself, at
                                  once and for nothing: what there is to be had
rigid_turnaround_half_mix         of the jobs that stay rigid in the half mix: turnaround there over that in all rigid
forecast_error                    largest relative error of makespan and mean turnaround over the three mixes

A hundred nodes of one machine have no cores of their own: a rank stands for --nodes-per-rank nodes.

Examples: ``jobmix.py --nodes 100 --json -``, ``jobmix.py --nodes 16 --jobs 10 --work 60``
"""

from __future__ import annotations

import argparse
import math
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from figures import put_out
from jobmix_forecast import central, computed, forecast, measured, overheads, work_of

from dmr.launcher.cluster import PrivateCluster
from dmr.launcher.run.history import History, read_history
from dmr.launcher.run.rundir import RunDir
from dmr.resize.simulate.engine import Schedule
from dmr.resize.simulate.generate import amdahl
from dmr.resize.simulate.metrics import metrics, turnaround_of
from dmr.resize.simulate.workload import Job, Workload, make_malleable
from dmr.resize.sizes import format_sizes

HERE = Path(__file__).resolve().parent
MIXES = {"rigid": 0.0, "half": 0.5, "malleable": 1.0}
STEPS = 50
"""As in the simulator: a step is a fiftieth of the run time at the size asked for."""
LOOK = 2.0
MINUTE = 60.0
SCHEDULER = "SchedulerParameters=bf_resolution=1,default_queue_depth=1000"
LEAD_SHARE, STARTUP = 0.75, 15.0
"""dmr-launch leaves when a quarter of the time limit is left; these limits are far longer than that."""


@dataclass
class Mix:
    """One of the three mixes as it ran. ``held`` are (time, nodes held) as sampled."""

    workload: Workload
    submitted: dict[int, float] = field(default_factory=dict)
    started: dict[int, float] = field(default_factory=dict)
    ended: dict[int, float] = field(default_factory=dict)
    held: list[tuple[float, int]] = field(default_factory=list)
    histories: dict[int, History] = field(default_factory=dict)
    load: list[float] = field(default_factory=list)

    @property
    def makespan(self) -> float:
        return max(self.ended.values()) - min(self.submitted.values())

    def overhead(self) -> dict[int, float]:
        """Return the seconds of each job before its first step and after its last."""
        starts, ends = overheads(self.histories, self.started, self.ended)
        return {job: starts[job] + ends[job] for job in starts}

    def turnaround(self, jobs: Sequence[int] | None = None) -> float:
        return statistics.fmean(self.ended[each] - self.submitted[each] for each in jobs or self.ended)

    def utilisation(self, nodes: int) -> float:
        """Return the share of node-seconds that were held between first submission and last end."""
        return self._held(nodes, min(self.submitted.values()), max(self.ended.values()))

    def steady(self, nodes: int) -> float:
        """Return the share that was held while jobs kept coming: from a sixth of them to the last."""
        submitted = sorted(self.submitted.values())
        return self._held(nodes, submitted[len(submitted) // 6], submitted[-1])

    def computing(self, nodes: int) -> float:
        """Return the share of node-seconds in which ranks computed."""
        found = sum(computed(each) for history in self.histories.values() for each in history.generations)
        return found / (nodes * self.makespan)

    def useful(self, nodes: int) -> float:
        """Return the share that all work takes at an efficiency of 1: holding too many nodes does not raise it."""
        return sum(work_of(job) for job in self.workload.jobs) / (nodes * self.makespan)

    def _held(self, nodes: int, first: float, last: float) -> float:
        samples = [(time, held) for time, held in self.held if first <= time <= last]
        used = sum(held * (after - time) for (time, held), (after, _) in zip(samples, samples[1:], strict=False))
        return used / (nodes * (samples[-1][0] - samples[0][0])) if len(samples) > 1 else 0.0


def drawn(given: argparse.Namespace) -> Workload:
    """Return the jobs, with limits in whole minutes as Slurm takes them."""
    recipe = amdahl(given.jobs, given.nodes, given.seed, load=given.load, mean_work=given.work)

    def limited(job: Job) -> Job:
        wanted = max(job.limit, (job.runtime + STARTUP) / LEAD_SHARE)
        return replace(job, limit=MINUTE * math.ceil(wanted / MINUTE))

    return replace(recipe, jobs=tuple(limited(job) for job in recipe.jobs))


def longest(job: Job) -> float:
    """Return the time limit of a job, as the simulator has it: scaled to its least size when malleable."""
    return job.limit * job.seconds(job.sizes[0]) / job.runtime if job.malleable else job.limit


class Bench:
    """Runs mixes on one cluster."""

    def __init__(self, cluster: PrivateCluster, folder: Path, given: argparse.Namespace) -> None:
        self.cluster, self.folder, self.given = cluster, folder, given

    def run(self, name: str, workload: Workload) -> Mix:
        """Submit the jobs when they are due, and wait until all have ended."""
        folder = self.folder / name
        folder.mkdir()
        mix, waiting = Mix(workload), list(workload.jobs)
        begun, looked, checked = time.time(), 0.0, time.time()
        while len(mix.ended) < len(workload.jobs):
            now = time.time()
            while waiting and waiting[0].submit <= now - begun:
                job = waiting.pop(0)
                mix.submitted[job.id] = time.time()
                self._submit(folder, job)
            if now - looked >= LOOK:
                looked = now
                mix.held.append((now, self._held()))
                mix.load.append(os.getloadavg()[0])
                self._see_ended(folder, mix)
            if now - checked >= 10 * LOOK and not waiting:
                checked = now
                self._check_alive(folder, mix)
            if now - begun > self.given.deadline:
                raise SystemExit(f"jobmix.py: {name}: not done after {self.given.deadline:.0f} s: see {folder}")
            time.sleep(0.2)
        self._wait_idle()
        for job in workload.jobs:
            mix.started[job.id] = float((folder / f"{job.id}.start").read_text())
            mix.histories[job.id] = read_history(RunDir(folder / str(job.id)).events(skip=("decided",)))
        return mix

    def _submit(self, folder: Path, job: Job) -> None:
        given = self.given
        sizes = job.sizes if job.malleable else (job.nodes,)
        argv = [
            str(Path(sys.executable).with_name("dmr-launch")), "--run-dir", str(folder / str(job.id)),
            "--nodes", format_sizes(sizes), "--mpi", str(HERE / "jobmix_start"), "--policy", given.policy,
            "--dwell", f"{given.dwell:g}", "--query-interval", f"{given.interval:g}", "--no-telemetry",
            "--ntasks-per-node", "1",
            "--", sys.executable, str(HERE / "jobmix_worker.py"), repr(work_of(job)), repr(job.parallel), str(STEPS),
            str(given.kib), str(folder / f"{job.id}.done"),
        ]  # fmt: skip
        limit = math.ceil(longest(job) / MINUTE)
        # With --ntasks-per-node sbatch asks for the tasks of the least size, and Slurm gives no more nodes than tasks.
        asked = [f"--nodes={job.nodes}", f"--time={limit}"]
        if job.malleable:
            most = max(size for size in sizes if size <= given.start_most * sizes[0])
            asked = [f"--nodes={sizes[0]}-{most}", f"--time={limit}"]
            if given.time_min < 1:
                asked.append(f"--time-min={math.ceil(given.time_min * limit)}")
        script = folder / f"{job.id}.sh"
        start = shlex.quote(str(folder / f"{job.id}.start"))
        script.write_text(
            f"#!/bin/bash\n#SBATCH {' '.join(asked)}\n[ -e {start} ] || echo $EPOCHREALTIME >{start}\n"
            f"export JOBMIX_NODES_PER_RANK={given.nodes_per_rank} OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1\n"
            f"export DMR_MODEL_DIR={shlex.quote(str(folder / 'model'))}\n"
            f"exec {shlex.join(argv)}\n"
        )
        options = [f"--job-name=job{job.id}", f"--output={folder}/{job.id}-%j.out"]
        self.cluster.run(["sbatch", *options, str(script)], cwd=folder)

    def _held(self) -> int:
        return int(self.cluster.run(["sinfo", "--noheader", "--format=%F"]).stdout.split("/")[0])

    def _see_ended(self, folder: Path, mix: Mix) -> None:
        for number in mix.submitted:
            done = folder / f"{number}.done"
            if number not in mix.ended and done.exists() and (text := done.read_text()):
                mix.ended[number] = float(text)

    def _check_alive(self, folder: Path, mix: Mix) -> None:
        """Make sure that there are jobs left where runs are: a run that failed would be waited for without end."""
        if self.cluster.run(["squeue", "--noheader", "--format=%A"]).stdout.strip():
            return
        self._see_ended(folder, mix)
        lost = sorted(set(mix.submitted) - set(mix.ended))
        if lost:
            logs = sorted(folder.glob(f"{lost[0]}-*.out"))
            last = logs[-1].read_text(errors="replace")[-2000:] if logs else "it left no output"
            raise SystemExit(f"jobmix.py: jobs {lost} ended without a result; the last words of {lost[0]}:\n{last}")

    def _wait_idle(self) -> None:
        limit = time.monotonic() + 60
        while self._held() and time.monotonic() < limit:
            time.sleep(0.5)


# -- what comes of it


def describe(mix: Mix, expected: Schedule, nodes: int) -> dict[str, Any]:
    told = metrics(expected)
    resizes = sum(history.resizes for history in mix.histories.values())
    return {
        "jobs": len(mix.ended), "malleable": sum(job.malleable for job in mix.workload.jobs),
        "makespan": round(mix.makespan, 1), "turnaround": round(mix.turnaround(), 1),
        "wait": round(statistics.fmean(mix.started[each] - mix.submitted[each] for each in mix.ended), 1),
        "throughput_per_hour": round(3600 * len(mix.ended) / mix.makespan, 1),
        "utilisation": round(mix.utilisation(nodes), 4), "steady": round(mix.steady(nodes), 4),
        "computing": round(mix.computing(nodes), 4), "useful": round(mix.useful(nodes), 4), "resizes": resizes,
        "generations": sum(len(history.generations) for history in mix.histories.values()),
        "crashes": sum(history.crashes for history in mix.histories.values()),
        "load_of_machine": round(statistics.fmean(mix.load), 2) if mix.load else None,
        "forecast": {
            "makespan": round(told.makespan, 1), "turnaround": round(told.all.turnaround, 1),
            "wait": round(told.all.wait, 1), "utilisation": round(told.utilisation, 4), "resizes": told.resizes,
        },
        "forecast_error": {
            "makespan": round(told.makespan / mix.makespan - 1, 4),
            "turnaround": round(told.all.turnaround / mix.turnaround() - 1, 4),
        },
    }  # fmt: skip


def summary(mixes: dict[str, Mix], given: argparse.Namespace) -> dict[str, Any]:
    """Return all figures of the three mixes."""
    costs = {name: measured(mix.histories, mix.started, mix.ended) for name, mix in mixes.items()}
    own = {name: mix.overhead() for name, mix in mixes.items()}
    expected = {name: forecast(mix.workload, costs[name], given, own[name]) for name, mix in mixes.items()}
    rows = {name: describe(mix, expected[name], given.nodes) for name, mix in mixes.items()}
    first, half, last = mixes["rigid"], mixes["half"], mixes["malleable"]
    rigid = [job.id for job in half.workload.jobs if not job.malleable]
    ideal = metrics(central(last.workload, given, own["malleable"]))
    expected_rigid = turnaround_of(expected["half"], rigid) / turnaround_of(expected["rigid"], rigid)
    return {
        "nodes": given.nodes, "jobs": given.jobs, "seed": given.seed, "load": given.load, "policy": given.policy,
        "mean_runtime": round(statistics.fmean(job.runtime for job in first.workload.jobs), 1),
        "interval": given.interval, "dwell": given.dwell, "nodes_per_rank": given.nodes_per_rank,
        "time_min": given.time_min, "start_most": given.start_most if math.isfinite(given.start_most) else None,
        "costs": {name: {key: round(value, 3) for key, value in vars(each).items()} for name, each in costs.items()},
        "mixes": rows,
        "central": {
            "makespan": round(ideal.makespan, 1), "turnaround": round(ideal.all.turnaround, 1),
            "utilisation": round(ideal.utilisation, 4),
        },
        "makespan_ratio": round(last.makespan / first.makespan, 4),
        "turnaround_ratio": round(last.turnaround() / first.turnaround(), 4),
        "utilisation_gain": round(100 * (last.utilisation(given.nodes) - first.utilisation(given.nodes)), 1),
        "rigid_turnaround_half_mix": round(half.turnaround(rigid) / first.turnaround(rigid), 4) if rigid else None,
        "rigid_turnaround_half_mix_forecast": round(expected_rigid, 4) if rigid else None,
        "forecast_error": max(abs(each) for row in rows.values() for each in row["forecast_error"].values()),
    }  # fmt: skip


def show(found: dict[str, Any]) -> None:
    print(f"{'':10}{'makespan':>18}{'turnaround':>18}{'utilisation':>20}{'changes of size':>17}")
    for name, row in found["mixes"].items():
        told = row["forecast"]
        print(
            f"{name:10}{row['makespan']:9.0f} ({told['makespan']:.0f})".ljust(28)
            + f"{row['turnaround']:9.0f} ({told['turnaround']:.0f})".ljust(18)
            + f"{row['utilisation']:12.0%} ({told['utilisation']:.0%})".ljust(20)
            + f"{row['resizes']:9d} ({told['resizes']})"
        )
    print("in brackets: the simulator's forecast")
    for key in ("steady", "computing", "useful"):
        print(f"{key:10}" + "  ".join(f"{name} {row[key]:.0%}" for name, row in found["mixes"].items()))
    for key in (
        "makespan_ratio", "turnaround_ratio", "utilisation_gain", "rigid_turnaround_half_mix", "forecast_error"
    ):  # fmt: skip
        print(f"{key} {found[key]}")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--nodes", type=int, default=100)
    made.add_argument("--jobs", type=int, default=60)
    made.add_argument("--work", type=float, default=750.0, help="mean seconds of a job on one node (default: 750)")
    made.add_argument("--load", type=float, default=1.5, help="offered load of the rigid jobs (default: 1.5)")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--policy", default="queue")
    made.add_argument("--interval", type=float, default=5.0, help="seconds between two looks at the queue")
    made.add_argument("--dwell", type=float, default=10.0, help="seconds that a size is kept at least")
    made.add_argument("--time-min", type=float, default=1.0, help="share to which a malleable job's limit may be cut")
    made.add_argument("--start-most", type=float, default=math.inf, help="malleable jobs ask for up to N × the least")
    made.add_argument("--kib", type=int, default=1024, help="state of a job")
    made.add_argument("--nodes-per-rank", type=int, default=16, help="virtual nodes that one rank stands for")
    made.add_argument("--deadline", type=float, default=3600.0, help="seconds that one mix may take")
    made.add_argument("--dir", type=Path, help="keep the runs there (default: a temporary folder)")
    made.add_argument("--json", metavar="FILE", help="write the figures there; - is standard output")
    return made


def cluster_of(nodes: int) -> PrivateCluster:
    """Return a cluster, not started, that jobs can shrink on as often as they like.

    One processor a node: nodes are held whole without OverSubscribe=EXCLUSIVE, under which Slurm 22.05 doesn't give out
    a node again that was given back by a shrink, and used once more, before it has pinged it. Accounting: without it
    Slurm up to 24.05 lets a job give nodes back only once. Its gathering would only cost processor time here.
    """
    config = (SCHEDULER, "SlurmdTimeout=300", "JobAcctGatherType=jobacct_gather/none")
    partitions = ("main OverSubscribe=NO",)
    return PrivateCluster(nodes, cpus_per_node=1, partitions=partitions, config=config, accounting=True)


def everything(given: argparse.Namespace) -> dict[str, Any]:
    """Run the three mixes; return the figures."""
    jobs = drawn(given)
    mixes: dict[str, Mix] = {}
    with tempfile.TemporaryDirectory(prefix="dmr-jobmix-") as name, cluster_of(given.nodes) as cluster:
        folder = Path(name) if given.dir is None else given.dir.resolve()
        folder.mkdir(exist_ok=True)
        bench = Bench(cluster, folder, given)
        for each, share in MIXES.items():
            say(f"{each}: {given.jobs} jobs on {given.nodes} nodes")
            mixes[each] = bench.run(each, make_malleable(jobs, share, given.nodes, given.seed))
            say(f"{each}: makespan {mixes[each].makespan:.0f} s, turnaround {mixes[each].turnaround():.0f} s")
    return summary(mixes, given)


def say(words: str) -> None:
    print(f"jobmix.py: {words}", file=sys.stderr, flush=True)


def main() -> None:
    given = parser().parse_args()
    found = everything(given)
    put_out(found, given.json, show)


if __name__ == "__main__":
    main()
