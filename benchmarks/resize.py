"""What a change of size costs on a real Slurm: seconds without computing, and where they go.

On a private Slurm a program with a state of each size goes, round after round, from 8 nodes to 4 in place, from 4 to 8
by a successor, to 4 again, and to 8 by a chain (with four nodes drained, so that old and new can't stand side by
side). Counted is the time from the end of the last step before to the begin of the first step after:

drain      the ranks end: from the last step's end until they are gone, without the save
save       until the checkpoint is durable
scheduler  from there to the start of the ranks: nodes given back, or the run handed over, or the queue (chain)
launch     from the start of the ranks to their first step, without the load
load       until the state is there, verified

The floor is what no checkpoint-and-restart can do without, measured in the same rounds: save + a bare start of the
same program by the same starter + load. Beside it: the redistribution alone, from memory to memory (Alltoallv), and
``scontrol requeue``.

shrink_in_place_vs_floor, successor_vs_floor, chain_vs_floor, requeue_vs_shrink, requeue_vs_successor
    for 256 MiB, or the size nearest to it

Examples: ``resize.py --json -``, ``resize.py --mib 16 --rounds 1 --no-requeue``, ``resize.py --only shrink --mib 256``
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from figures import put_out
from resize_worker import times

from dmr.launcher.cluster import PrivateCluster
from dmr.launcher.run.requests import Requests
from dmr.launcher.run.rundir import RunDir

WORKER = Path(__file__).with_name("resize_worker.py")
SMALL, LARGE = 4, 8
NODES = SMALL + LARGE
PARTS = ("drain", "save", "scheduler", "launch", "load")
SETTLE = 2.0
"""Seconds of computing between two changes."""
QUERY = 2
DEADLINE = 240.0
REQUEUE_DEADLINE = 300.0
REFERENCE = 256


def until(what: Callable[[], bool], why: str, seconds: float = DEADLINE) -> None:
    limit = time.monotonic() + seconds
    while not what():
        if time.monotonic() > limit:
            raise SystemExit(f"resize.py: not within {seconds:.0f} s: {why}")
        time.sleep(0.1)


class Bench:
    """One run with a state of one size, and what it is measured by.

    Parameters
    ----------
    cluster, folder
        Where it runs, and a folder of its own.
    mib
        Size of the state.
    telemetry
        Whether nodes are sampled: here all samplers start on the cores of one machine.
    wanted
        Changes that are measured.
    """

    def __init__(
        self, cluster: PrivateCluster, folder: Path, mib: int, telemetry: bool, wanted: frozenset[str]
    ) -> None:
        self.cluster, self.folder, self.mib, self.wanted = cluster, folder, mib, wanted
        self.run = RunDir(folder / "run")
        self.times = folder / "times"
        self.times.mkdir()
        self.generation = 1
        self.samples: dict[str, list[dict[str, float]]] = {}
        self.bare: dict[str, list[float]] = {str(SMALL): [], str(LARGE): []}
        self._starts = self.failed_starts = 0
        launch = [
            str(Path(sys.executable).with_name("dmr-launch")), "--run-dir", str(self.run.folder), "--policy", "static",
            "--nodes", f"{SMALL},{LARGE}", "--query-interval", str(QUERY), "--verbose",
            "--telemetry" if telemetry else "--no-telemetry",
            "--", sys.executable, str(WORKER), "run", str(mib), str(self.times), "1000000000",
        ]  # fmt: skip
        self._submit("run", LARGE, f"exec {shlex.join(launch)}")
        self._computes(1)

    def _submit(self, name: str, nodes: int, command: str) -> str:
        script = self.folder / f"{name}.sh"
        script.write_text(f"#!/bin/bash\n{command}\n")
        options = ["--parsable", f"--nodes={nodes}", "--ntasks-per-node=1", f"--output={self.folder}/{name}-%j.out"]
        return self.cluster.run(["sbatch", *options, str(script)], cwd=self.folder).stdout.strip()

    def _computes(self, least: int, seconds: float = DEADLINE) -> None:
        """Wait until that generation computes, or one after it, and let it for a moment."""

        def newest() -> int:
            there = [int(path.name) for path in self.times.iterdir() if path.stat().st_size == 16]
            return max((each for each in there if self._event(each, "loaded") is not None), default=0)

        until(lambda: newest() >= least, f"generation {least} computes with {self.mib} MiB: see {self.folder}", seconds)
        self.generation = newest()
        time.sleep(SETTLE)

    def _event(self, generation: int, name: str) -> dict[str, Any] | None:
        if not self.run.folder.exists():
            return None
        found = [each for each in self.run.events(generation) if each["event"] == name]
        return found[-1] if found else None

    # -- what is measured

    def change(self, how: str, nodes: int) -> None:
        """Have the size changed, and take the times."""
        before = self.generation
        Requests(self.run).post("resize", nodes=nodes)
        self._computes(before + 1)
        if self.generation == before + 1:
            self.samples.setdefault(how, []).append(self._split(before))
        else:
            self.failed_starts += 1
            say(f"{how}: {self.generation - before - 1} starts of MPI failed on the way: not counted")

    def _split(self, before: int) -> dict[str, float]:
        last, first = times(self.times, before)[1], times(self.times, before + 1)[0]
        requested, gone = self._event(before, "requested"), self._event(before, "saved")
        launched, loaded = self._event(before + 1, "launched"), self._event(before + 1, "loaded")
        assert requested and gone and launched and loaded
        found = {
            "stopped": first - last,
            "drain": gone["time"] - last - gone["seconds"],
            "save": gone["seconds"],
            "scheduler": launched["time"] - gone["time"],
            "launch": first - launched["time"] - loaded["load"],
            "load": loaded["load"],
            "notice": last - requested["time"],
        }
        if (submitted := self._event(before, "submitted")) is not None:
            found["queued"] = launched["time"] - submitted["time"]
        return found

    def start_bare(self) -> None:
        """Start the same program without a launcher, on idle nodes, as the launcher would."""
        self._starts += 1
        folder = self.folder / f"bare-{self._starts}"
        folder.mkdir()
        words = [sys.executable, str(WORKER), "bare", str(self.mib), str(folder), f"{SMALL},{LARGE}"]
        self._submit(f"bare-{self._starts}", LARGE, f"exec {shlex.join(words)}")
        until((folder / "bare.json").exists, f"a bare start: see {folder}")
        for size, seconds in json.loads((folder / "bare.json").read_text()).items():
            self.bare[size].append(seconds)
        self.until_idle(LARGE)

    def chain(self) -> None:
        """Go from the small size to the large one where both can't stand side by side."""
        idle = [name for name, state in self.cluster.node_states().items() if state == "idle"]
        drained = ",".join(idle[: NODES - LARGE])
        self.cluster.run(["scontrol", "update", f"NodeName={drained}", "State=DRAIN", "Reason=benchmark"])
        time.sleep(2 * QUERY + 1)
        self.change("chain", LARGE)
        self.cluster.run(["scontrol", "update", f"NodeName={drained}", "State=RESUME"])
        self.until_idle(NODES - LARGE)
        time.sleep(2 * QUERY + 1)

    def requeue(self) -> None:
        """Have Slurm requeue the job; it goes on from a checkpoint made just before."""
        before = self.generation
        saved = self._event(before, "checkpoint")
        Requests(self.run).post("checkpoint")
        until(lambda: self._event(before, "checkpoint") not in (None, saved), "a checkpoint")
        launched = self._event(before, "launched")
        assert launched
        self.cluster.run(["scontrol", "requeue", launched["job"]])
        self._computes(before + 1, REQUEUE_DEADLINE)
        stopped = times(self.times, self.generation)[0] - times(self.times, before)[1]
        self.samples["requeue"] = [{"stopped": stopped}]

    def until_idle(self, nodes: int) -> None:
        until(lambda: list(self.cluster.node_states().values()).count("idle") >= nodes, f"{nodes} idle nodes")

    def end(self) -> None:
        Requests(self.run).post("stop", now=True)
        until(lambda: set(self.cluster.node_states().values()) == {"idle"}, "the end of the run")

    # -- what comes of it

    def table(self) -> dict[str, Any]:
        missing = self.wanted - {"requeue"} - set(self.samples)
        if missing:
            raise SystemExit(f"resize.py: no start of MPI succeeded at once for {', '.join(sorted(missing))}")
        found: dict[str, Any] = {
            "bare_start": {size: round(median(each), 4) for size, each in self.bare.items()},
            "failed_starts": self.failed_starts,
        }
        for how, samples in self.samples.items():
            row: dict[str, Any] = {name: round(median([each[name] for each in samples]), 4) for name in samples[0]}
            row["samples"] = len(samples)
            row["each"] = [round(sample["stopped"], 3) for sample in samples]
            if how != "requeue":
                size = str(SMALL if how == "shrink_in_place" else LARGE)
                row["floor"] = round(row["save"] + median(self.bare[size]) + row["load"], 4)
                row["vs_floor"] = round(row["stopped"] / row["floor"], 3)
            found[how] = row
        return found


def median(values: list[float]) -> float:
    return statistics.median(values)


def in_memory(cluster: PrivateCluster, mib: int, old: int, new: int) -> float:
    """Return the seconds of the redistribution alone, between ranks one a node."""
    from dmr.launcher.engines.mpi import find_flavour

    flavour = find_flavour("auto", [sys.executable], slurm=False, environ=cluster.env)
    words = [sys.executable, str(WORKER), "memory", str(mib), str(old), str(new), "3"]
    argv = ["salloc", "--quiet", f"--nodes={max(old, new)}", "--ntasks-per-node=1", flavour.program]
    done = cluster.run([*argv, "-n", str(max(old, new)), *words], timeout=DEADLINE)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    if found["wrong"]:
        raise SystemExit("resize.py: the redistribution in memory lost something")
    return float(found["seconds"])


def measure(cluster: PrivateCluster, folder: Path, mib: int, given: argparse.Namespace) -> dict[str, Any]:
    say(f"{mib} MiB")
    folder.mkdir()
    bench = Bench(cluster, folder, mib, given.telemetry, given.wanted)
    for turn in range(1, given.rounds + 1):
        bench.change("shrink_in_place", SMALL)
        bench.until_idle(LARGE)
        bench.start_bare()
        bench.change("successor", LARGE)
        if "chain" in given.wanted:
            bench.change("shrink_in_place", SMALL)
            bench.until_idle(LARGE)
            bench.chain()
        say(f"{mib} MiB, round {turn}: {brief(bench)}")
    if "requeue" in given.wanted and mib == given.reference:
        say("scontrol requeue, which waits for two minutes")
        bench.requeue()
    bench.end()
    found = bench.table()
    if "chain" in given.wanted:
        found["in_memory"] = {
            f"{LARGE}to{SMALL}": round(in_memory(cluster, mib, LARGE, SMALL), 4),
            f"{SMALL}to{LARGE}": round(in_memory(cluster, mib, SMALL, LARGE), 4),
        }
    return found


def brief(bench: Bench) -> str:
    return ", ".join(f"{how} {samples[-1]['stopped']:.2f} s" for how, samples in bench.samples.items())


def say(words: str) -> None:
    print(f"resize.py: {words}", file=sys.stderr, flush=True)


def ratios(found: dict[str, Any]) -> dict[str, float]:
    """Return the keys that are to be reached, of the size of reference."""
    shrink, successor = found["shrink_in_place"], found["successor"]
    changes = ("shrink_in_place", "successor", "chain")
    made = {f"{how}_vs_floor": found[how]["vs_floor"] for how in changes if how in found}
    if "requeue" in found:
        waited = found["requeue"]["stopped"]
        made["requeue_vs_shrink"] = round(waited / shrink["stopped"], 1)
        made["requeue_vs_successor"] = round(waited / successor["stopped"], 1)
    return made


def show(found: dict[str, Any]) -> None:
    print(f"{'MiB':>5} {'':16}{'seconds':>9}" + "".join(f"{name:>11}" for name in (*PARTS, "floor", "÷ floor")))
    for mib, table in found["states"].items():
        for how in ("shrink_in_place", "successor", "chain", "requeue"):
            if how in table:
                row = table[how]
                cells = [f"{row[name]:11.2f}" if name in row else f"{'':11}" for name in (*PARTS, "floor", "vs_floor")]
                print(f"{mib:>5} {how:16}{row['stopped']:9.2f}" + "".join(cells))
        for way, seconds in table.get("in_memory", {}).items():
            print(f"{mib:>5} {'in memory ' + way:16}{seconds:9.2f}")
    for name in ratios(found["states"][str(found["reference_mib"])]):
        print(f"{name} {found[name]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write the figures there; - is standard output")
    parser.add_argument("--mib", default="16,256,1024", help="sizes of the state in MiB, comma-separated")
    parser.add_argument("--rounds", type=int, default=3, help="rounds for each; the median counts")
    parser.add_argument("--dir", type=Path, help="where the runs are kept meanwhile (default: a temporary folder)")
    parser.add_argument("--no-requeue", dest="requeue", action="store_false", help="leave scontrol requeue out")
    parser.add_argument("--only", choices=["shrink"], help="only shrinks in place, and the successors between them")
    parser.add_argument("--telemetry", action="store_true", help="sample the nodes as dmr-launch does by default")
    given = parser.parse_args()
    sizes = [int(word) for word in given.mib.split(",")]
    given.wanted = frozenset({"shrink_in_place", "successor"})
    if given.only is None:
        given.wanted |= {"chain", "requeue"} if given.requeue else {"chain"}
    given.reference = min(sizes, key=lambda each: abs(each - REFERENCE))
    found: dict[str, Any] = {
        "nodes": NODES, "rounds": given.rounds, "cores": os.cpu_count(), "telemetry": given.telemetry,
        "reference_mib": given.reference, "load_before": os.getloadavg()[0], "states": {},
    }  # fmt: skip
    with (
        tempfile.TemporaryDirectory(prefix="dmr-resize-", dir=given.dir) as name,
        # Nodes held whole without OverSubscribe=EXCLUSIVE, under which Slurm 22.05 doesn't give out a node again that
        # was given back by a shrink, and used once more, before it has pinged it: a chain would wait for that.
        PrivateCluster(NODES, cpus_per_node=1, partitions=("main OverSubscribe=NO",)) as cluster,
    ):
        found["slurm"] = cluster.run(["sinfo", "--version"]).stdout.split()[-1]
        for mib in sizes:
            found["states"][str(mib)] = measure(cluster, Path(name) / str(mib), mib, given)
    found["load_after"] = os.getloadavg()[0]
    found |= ratios(found["states"][str(given.reference)])
    put_out(found, given.json, show)


if __name__ == "__main__":
    main()
