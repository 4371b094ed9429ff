"""Faults drawn at random over many short runs on a private Slurm; after each run the bits are compared.

Prints what was done and what came of it; exit status 1 when a run ended with wrong bits, got stuck, or went on in two
places. ``lost steps`` were computed again after a fault; ``overlap`` are steps that ranks whose launcher was killed
still computed beside their successors, before they were told: harmless, since they can't commit any more.

Examples: ``chaos.py --runs 20``, ``chaos.py --minutes 10 --seed 7 --json -``
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dmr.launcher.cluster import PrivateCluster
from dmr.launcher.run.history import SuccessorRecord
from dmr.launcher.run.identity import lives

sys.path.insert(0, str(Path(__file__).parent))
from conftest import APPS, BIN, SlurmBench, expected  # type: ignore[import-not-found]

STEPS = 160
SECONDS = 0.05
NODES = 8
SIZES = (1, 2, 3, 4)
STUCK = 240.0
"""A run that has not finished by then, whatever was done to it, is stuck."""
KINDS = (
    "kill launcher", "kill rank", "kill starter", "resize", "cancel successor", "cancel run", "requeue",
    "pause controller", "restart controller", "lose node", "rival", "stop", "damage checkpoint",
)  # fmt: skip
"""What may be done to a run: each is a method of `Chaos` that tells whether it was possible."""


@dataclass
class Tally:
    """What was done, and what came of it."""

    runs: int = 0
    generations: int = 0
    faults: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(KINDS, 0)))
    resumed: int = 0
    lost_steps: int = 0
    overlap: int = 0
    duplicates: int = 0
    wrong_bits: int = 0
    stuck: int = 0
    seconds: float = 0.0

    @property
    def bad(self) -> bool:
        return bool(self.duplicates or self.wrong_bits or self.stuck)

    def as_json(self) -> dict[str, Any]:
        return {**self.__dict__, "faults": dict(self.faults)}


class Chaos:
    """One run and what befalls it."""

    def __init__(self, cluster: PrivateCluster, folder: Path, dice: random.Random, tally: Tally) -> None:
        self.bench = SlurmBench(folder)
        self.bench.cluster = cluster
        self.cluster, self.dice, self.tally = cluster, dice, tally
        self.down: list[str] = []

    def run(self, faults: int) -> None:
        """Start a run, do ``faults`` things to it, and judge it."""
        nodes = self.dice.choice(SIZES)
        options = ("--nodes", "1:4", "--dwell", "2", "--checkpoint-every", "15steps", "--max-restarts", "60")
        self.bench.submit(
            STEPS, SECONDS, "--trace", "trace.jsonl", options=options, exec_=self.dice.random() < 0.5,
            sbatch=(f"--nodes={nodes}", "--no-kill", "--requeue"), before="set -e",
        )  # fmt: skip
        until = time.monotonic() + STUCK
        pauses = [self.dice.uniform(0.2, 3.5) for _ in range(faults)]
        self.tally.runs += 1
        while not self.finished() and time.monotonic() < until:
            if pauses and self.computing():
                time.sleep(pauses.pop())
                self.strike()
            self.go_on()
            time.sleep(0.2)
        for node in self.down:
            self.cluster.start_node(node)
        self.judge(time.monotonic() >= until)

    # -- what is done to it

    def strike(self) -> None:
        """Do one thing at random that is possible now, of those done least so far: a short campaign does each."""
        kinds = self.dice.sample(KINDS, len(KINDS))
        for kind in sorted(kinds, key=lambda kind: self.tally.faults[kind]):
            with suppress(OSError):
                if getattr(self, kind.replace(" ", "_"))():
                    self.tally.faults[kind] += 1
                    return

    def kill_launcher(self) -> bool:
        lease = self.lease()
        if not lives(lease):  # it left already, or waits in the queue; its number may be another process's by now
            return False
        os.kill(int(lease["pid"]), signal.SIGKILL)
        return True

    def kill_rank(self) -> bool:
        return self._kill_one(b"PMIX_RANK=")

    def kill_starter(self) -> bool:
        for pid in self._processes():
            with suppress(OSError):
                if b"srun" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
                    return True
        return False

    def resize(self) -> bool:
        return self.bench.dmr("resize", "run", "--nodes", str(self.dice.choice(SIZES))).returncode == 0

    def cancel_successor(self) -> bool:
        pending = self.bench.history.open_successor or self._wait_behind_others()
        if pending is None or pending.job is None:
            return False
        self.cluster.run(["scancel", pending.job], check=False)
        return True

    def _wait_behind_others(self) -> SuccessorRecord | None:
        """Have the run ask for more nodes than another job leaves; returns the successor that waits for them."""
        last = self.bench.history.last
        if last is None or last.nodes >= SIZES[-1]:
            return None
        self._other_job(NODES - last.nodes, seconds=8)
        time.sleep(2)
        self.bench.dmr("resize", "run", "--nodes", str(SIZES[-1]))
        until = time.monotonic() + 4
        while time.monotonic() < until:
            found = self.bench.history.open_successor
            if found is not None and found.job is not None:
                return found
            time.sleep(0.1)
        return None

    def cancel_run(self) -> bool:
        return self._on_own_job(["scancel"])

    def requeue(self) -> bool:
        return self._on_own_job(["scontrol", "requeue"])

    def pause_controller(self) -> bool:
        with self.cluster.paused_controller():
            time.sleep(self.dice.uniform(1, 6))
        return True

    def restart_controller(self) -> bool:
        self.cluster.stop_controller()
        time.sleep(self.dice.uniform(0, 4))
        self.cluster.start_controller()
        return True

    def lose_node(self) -> bool:
        last = self.bench.history.last
        if last is None or len(last.hosts) < 2 or self.down or last.hosts[-1] == last.hosts[0]:
            return False
        node = last.hosts[-1]
        self.cluster.kill_node(node)
        self.down.append(node)
        for pid in self._processes():
            with suppress(OSError):
                if f"SLURMD_NODENAME={node}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    os.kill(pid, signal.SIGKILL)
        return True

    def rival(self) -> bool:
        self._other_job(self.dice.randint(2, 6), seconds=4)
        return True

    def _other_job(self, nodes: int, seconds: int) -> None:
        self.cluster.run(["sbatch", f"--nodes={nodes}", "--time=1", "--output=/dev/null", f"--wrap=sleep {seconds}"])

    def stop(self) -> bool:
        return self.bench.dmr("stop", "run", *(["--now"] * (self.dice.random() < 0.5))).returncode == 0

    def damage_checkpoint(self) -> bool:
        files = sorted((self.bench.run.folder / "checkpoints").glob("step-*.h5"))
        if len(files) < 2:
            return False
        with open(files[-1], "r+b") as stream:
            stream.seek(-200, os.SEEK_END)
            byte = stream.read(1)
            stream.seek(-200, os.SEEK_END)
            stream.write(bytes([byte[0] ^ 0xFF]))
        return True

    # -- what a user would do then

    def go_on(self) -> None:
        """Resume a run that stands still, and let a requeued job start at once."""
        queue = self.bench.queue()
        for job, state in queue.items():
            if state == "PENDING":
                self.cluster.run(["scontrol", "update", f"JobId={job}", "StartTime=now"], check=False)
        try:
            state = json.loads(self.bench.dmr("status", "run", "--json").stdout)["state"]
        except (ValueError, KeyError):
            return
        own = [job for job, name in self._names().items() if not name.startswith("wrap") and job in queue]
        if state in ("lost", "stopped", "failed") and not own:
            self.tally.resumed += self.bench.dmr("resume", "run").returncode == 0

    # -- what came of it

    def judge(self, stuck: bool) -> None:
        history = self.bench.history
        self.tally.generations += len(history.generations)
        if stuck:
            self.tally.stuck += 1
        else:
            self.tally.wrong_bits += not np.array_equal(self.bench.final(), expected(STEPS))
        trace = self._trace()
        self.tally.lost_steps += max(0, len(trace) - STEPS)
        newest = 0
        for generation, _ in trace:
            self.tally.overlap += generation < newest
            newest = max(newest, generation)
        ends = sum(each.why == "finished" for each in history.generations)
        self.tally.duplicates += self._late_commits() + max(0, ends - 1)
        if stuck or self.tally.bad:
            print(self.bench.output(), json.dumps(self.bench.run.events(), indent=0), sep="\n", file=sys.stderr)
        for job in self.bench.queue():
            self.cluster.run(["scancel", job], check=False)

    def _late_commits(self) -> int:
        """Return how many checkpoints a generation committed after a later one had begun to compute."""
        begun = {each["generation"]: each["time"] for each in self.bench.events("loaded")}
        return sum(
            any(other > each["generation"] and moment < each["time"] for other, moment in begun.items())
            for each in self.bench.events("checkpoint")
        )

    # -- helpers

    def finished(self) -> bool:
        return self.bench.history.finished

    def computing(self) -> bool:
        progress = self.bench.run.read_progress()
        return progress is not None and progress.state == "running"

    def lease(self) -> dict[str, Any]:
        return self.bench.run.read_lease(self.bench.run.leases()[-1]) or {}

    def _on_own_job(self, argv: list[str]) -> bool:
        job = self.lease().get("job")
        return bool(job) and self.cluster.run([*argv, str(job)], check=False).returncode == 0

    def _names(self) -> dict[str, str]:
        lines = self.cluster.run(["squeue", "--noheader", "--format=%i %j"], check=False).stdout.splitlines()
        return {job: name for job, _, name in (line.partition(" ") for line in lines)}

    def _processes(self) -> list[int]:
        found = []
        for name in os.listdir("/proc"):
            with suppress(OSError):
                if name.isdigit() and os.readlink(f"/proc/{name}/cwd") == str(self.bench.folder):
                    found.append(int(name))
        self.dice.shuffle(found)
        return found

    def _kill_one(self, variable: bytes) -> bool:
        for pid in self._processes():
            with suppress(OSError):
                if any(each.startswith(variable) for each in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")):
                    os.kill(pid, signal.SIGKILL)
                    return True
        return False

    def _trace(self) -> list[tuple[int, int]]:
        """Return (generation, step) of each step that rank 0 computed, in order of time."""
        rows: list[tuple[int, int]] = []
        with suppress(OSError):
            for line in (self.bench.folder / "trace.jsonl").read_text().splitlines():
                with suppress(ValueError):
                    generation, step = json.loads(line)
                    rows.append((generation, step))
        return rows


def empty(cluster: PrivateCluster) -> None:
    """Cancel what is left, and wait until all nodes are idle."""
    until = time.monotonic() + 60
    while set(cluster.node_states().values()) != {"idle"}:
        assert time.monotonic() < until, f"the nodes don't come back: {cluster.node_states()}"
        for job in cluster.run(["squeue", "--noheader", "--format=%A"], check=False).stdout.split():
            cluster.run(["scancel", job], check=False)
        time.sleep(0.5)


def campaign(runs: int, minutes: float | None, seed: int, faults: int, say: Callable[[str], None]) -> Tally:
    """Do it until the runs are done, or the time is up."""
    tally, began = Tally(), time.monotonic()
    with PrivateCluster(nodes=NODES, config=["SlurmdTimeout=5"]) as cluster:
        while (time.monotonic() - began < 60 * minutes) if minutes else tally.runs < runs:
            empty(cluster)
            dice = random.Random(seed + tally.runs)
            folder = Path(tempfile.mkdtemp(prefix="dmr-chaos-"))
            try:
                Chaos(cluster, folder, dice, tally).run(dice.randint(1, faults))
            finally:
                if not tally.bad:
                    shutil.rmtree(folder, ignore_errors=True)
            tally.seconds = round(time.monotonic() - began, 1)
            say(json.dumps(tally.as_json()))
            if tally.bad:
                break
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--faults", type=int, default=4, help="most in one run")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--json", metavar="FILE", help="- for standard output")
    given = parser.parse_args()
    assert (APPS / "counting.py").exists() and (BIN / "dmr-launch").exists()
    print(f"seed {given.seed}", file=sys.stderr)
    tally = campaign(
        given.runs, given.minutes, given.seed, given.faults, lambda line: print(line, file=sys.stderr, flush=True)
    )
    text = json.dumps({"seed": given.seed, **tally.as_json()}, indent=2)
    if given.json and given.json != "-":
        Path(given.json).write_text(text + "\n")
    else:
        print(text)
    return int(tally.bad)


if __name__ == "__main__":
    sys.exit(main())
