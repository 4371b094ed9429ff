"""The whole road once: a simulation that gives nodes to a waiting job and takes them back, bit for bit.

On a private Slurm of this machine with 8 virtual nodes, examples/hillslope.py runs under dmr-launch on 4 nodes; a
first job of somebody else holds the other 4. A second job comes into the queue and wants 2: the simulation shrinks
in place, and the job starts. When both jobs have ended the simulation moves to 6 nodes by a successor job. The final
field is compared with that of a run at fixed size.

    make demo
    python examples/demo.py --out out/mine
    python examples/demo.py --engine local

Without Slurm the same goes on the local engine, with the sizes asked for by 'dmr resize'. Exit status 0 when all of
this happened.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from dmr.launcher.cluster import ClusterError, PrivateCluster
from dmr.launcher.run.history import GenerationRecord, History, read_history
from dmr.launcher.run.rundir import RunDir

from timeline import Bar, draw, text

HILLSLOPE = Path(__file__).resolve().with_name("hillslope.py")
NODES = 8
START, SMALL, LARGE = 4, 2, 6
STEPS = 150
# Heavier steps than the example's own: 1.2 s divided by the number of ranks, so that the ranks need no core each.
PACE = 1.2
DEADLINE = 170.0
PROMPTLY = 20.0


class Failed(Exception):
    """Something did not happen; the text says what."""


class Show:
    """The live line: one that changes in a terminal, now and then a new one elsewhere."""

    def __init__(self) -> None:
        self._begun, self._shown, self._last = time.monotonic(), "", 0.0
        self._live = sys.stdout.isatty()

    def line(self, words: str, event: str) -> None:
        """Show what is going on; ``event`` is the part whose change is worth a line of its own."""
        now = time.monotonic()
        whole = f"{now - self._begun:6.1f} s  {words}"
        if self._live:
            print(f"\r\033[K{whole}", end="", flush=True)
        elif event != self._shown or now - self._last >= 5:
            print(whole, flush=True)
            self._shown, self._last = event, now

    def say(self, words: str) -> None:
        if self._live:
            print("\r\033[K", end="")
        print(words, flush=True)


def application(out: Path, *extra: str) -> list[str]:
    return [sys.executable, str(HILLSLOPE), "--steps", str(STEPS), "--out", str(out), *extra]


def launch(run: Path, *options: str) -> list[str]:
    return [program("dmr-launch"), "--run-dir", str(run), *options, "--"]


def brief(options: Sequence[str]) -> str:
    """Return the command line as a user would have written it."""
    return f"dmr-launch {shlex.join(options)} -- python examples/{HILLSLOPE.name} --steps {STEPS} --pace {PACE}"


def program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def standing(run: Path, others: str) -> tuple[str, str, int, int]:
    """Return the live line, its part without step and speed, the generation and the step."""
    folder = RunDir(run)
    progress = folder.read_progress() if run.exists() else None
    history = read_history(folder.events()) if run.exists() else None
    if progress is None or not history or not history.generations:
        return f"hillslope: starting | {others}", f"starting {others}", 0, 0
    last = history.generations[-1]
    bar = "█" * last.nodes + "░" * (LARGE - last.nodes)
    what = f"hillslope: {bar} {last.nodes} nodes | {others}"
    pace = "" if progress.seconds_per_step is None else f", {progress.seconds_per_step:.2f} s a step"
    words = f"hillslope: {bar} {last.nodes} nodes, step {progress.step:3d} of {STEPS}{pace} | {others}"
    settled = progress.generation if progress.generation == last.number else 0
    return words, what, settled, progress.step


def finished(run: Path) -> History:
    """Return the history of a run that came to its end."""
    history = read_history(RunDir(run).events()) if run.exists() else History()
    if not history.generations:
        raise Failed("the run never began")
    if history.generations[-1].why != "finished":
        raise Failed(f"the run did not finish: it {history.generations[-1].why or 'stopped without a word'}")
    return history


# -- on Slurm


class Queue:
    """The jobs of others: what they ask for, when they start and end."""

    def __init__(self, cluster: PrivateCluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        self.jobs: dict[str, str] = {}

    def submit(self, name: str, nodes: int, command: str) -> None:
        # A time limit, as on any machine: the policy reckons by it how long a job would have to wait.
        options = ["--parsable", f"--job-name={name}", f"--nodes={nodes}", "--time=3"]
        options += [f"--output={self._folder / name}.out", "--wrap", command]
        self.jobs[name] = self._cluster.run(["sbatch", *options]).stdout.strip()

    def look(self) -> tuple[dict[str, str], bool]:
        """Return the states by name of these jobs as far as they live, and whether any other job does."""
        query = ["squeue", "--noheader", "--states=pending,running,completing", "--format=%A %T"]
        found = dict(line.split() for line in self._cluster.run(query).stdout.splitlines())
        own = {name: found.pop(job).lower() for name, job in self.jobs.items() if job in found}
        return own, bool(found)

    def facts(self, name: str) -> dict[str, str]:
        said = self._cluster.run(["scontrol", "--oneliner", "show", "job", self.jobs[name]]).stdout
        return dict(word.split("=", 1) for word in said.split() if "=" in word)

    def times(self, name: str) -> tuple[float, float, float]:
        """Return when a job was submitted, started and ended, as unix times."""
        facts = self.facts(name)
        return tuple(  # type: ignore[return-value]
            time.mktime(time.strptime(facts[key], "%Y-%m-%dT%H:%M:%S"))
            for key in ("SubmitTime", "StartTime", "EndTime")
        )

    def hosts(self, name: str) -> list[str]:
        said = self._cluster.run(["scontrol", "show", "hostnames", self.facts(name)["NodeList"]]).stdout
        return said.split()


def on_slurm(cluster: PrivateCluster, folder: Path, show: Show) -> tuple[History, list[Bar], Path, list[str]]:
    run, final, over = folder / "run", folder / "malleable.npy", folder / "first-is-over"
    queue = Queue(cluster, folder)
    queue.submit("first", NODES - START, f"until [ -e {shlex.quote(str(over))} ]; do sleep 0.2; done")
    # Short intervals, since everything here is short; on a shared machine the defaults are a minute.
    options = ["--nodes", f"1:{LARGE}", "--dwell", "3", "--query-interval", "1"]
    argv = launch(run, *options) + application(final, "--pace", str(PACE))
    script = folder / "hillslope.sh"
    script.write_text(
        "#!/bin/bash\n"
        f"#SBATCH --job-name=hillslope --nodes={START} --ntasks-per-node=1 --time=10\n"
        f"#SBATCH --output={folder}/hillslope-%j.out\n"
        f"exec {shlex.join(argv)}\n"
    )
    show.say(f"submitted on {START} nodes: {brief(options)}")
    cluster.run(["sbatch", str(script)], cwd=folder)

    limit, submitted = time.monotonic() + DEADLINE, False
    while time.monotonic() < limit:
        time.sleep(0.25)
        states, running = queue.look()
        others = ", ".join(f"{name} job {states.get(name, 'has ended')}" for name in queue.jobs)
        words, event, generation, step = standing(run, others)
        show.line(words, event)
        if not running:
            break
        if not submitted and generation == 1 and step >= 20:
            show.say("a second job comes into the queue and wants 2 nodes")
            queue.submit("second", SMALL, "sleep 8")
            submitted = True
        elif submitted and "second" not in states:
            over.touch()
    else:
        raise Failed(f"it did not end within {DEADLINE:.0f} s: see {folder}")
    over.touch()
    while queue.look()[0] and time.monotonic() < limit:
        time.sleep(0.25)
    history = finished(run)
    missing = [] if submitted else ["the second job was submitted"]
    bars = [Bar("hillslope", each.hosts, each.start, each.end or each.start) for each in history.generations]
    if submitted:
        asked, began, ended = queue.times("second")
        if began - asked > PROMPTLY:
            missing.append(f"the second job started promptly (it waited {began - asked:.0f} s)")
        show.say(f"the second job waited {began - asked:.0f} s for its nodes")
        bars.append(Bar("second job", tuple(queue.hosts("second")), began, ended))
    _, began, ended = queue.times("first")
    bars.append(Bar("first job", tuple(queue.hosts("first")), began, ended))
    shrunk = [(a, b) for a, b in pairs(history) if b.nodes < a.nodes and a.job == b.job]
    grown = [(a, b) for a, b in pairs(history) if b.nodes > a.nodes and a.job != b.job]
    missing += [] if shrunk else ["the run shrank in place, within its job"]
    missing += [] if grown else ["the run grew again by a successor job"]
    fixed = folder / "fixed.npy"
    show.line("the same at a fixed size, 3 nodes, for comparison", "fixed")
    wrapped = shlex.join(launch(folder / "fixed-run", "--nodes", "3") + application(fixed))
    reference = ["sbatch", "--wait", "--nodes=3", "--ntasks-per-node=1", f"--output={folder}/fixed.out"]
    cluster.run([*reference, "--wrap", wrapped], timeout=120, cwd=folder)
    show.say("")
    return history, bars, fixed, missing


# -- on this machine alone


def on_this_machine(folder: Path, show: Show) -> tuple[History, list[Bar], Path, list[str]]:
    run, final, fixed = folder / "run", folder / "malleable.npy", folder / "fixed.npy"
    options = ["--engine", "local", "--local-nodes", str(LARGE), "--nodes", f"1:{LARGE}", "--start", str(START)]
    argv = launch(run, *options, "--policy", "static") + application(final, "--pace", str(PACE))
    show.say(f"started: {brief(options)}")
    asked: list[int] = []
    limit = time.monotonic() + DEADLINE
    with open(folder / "hillslope.out", "wb") as log:
        running = subprocess.Popen(argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        while running.poll() is None:
            if time.monotonic() > limit:
                raise Failed(f"it did not end within {DEADLINE:.0f} s: see {folder}")
            time.sleep(0.25)
            words, event, generation, step = standing(run, f"asked for {asked or 'nothing'}")
            show.line(words, event)
            for size, after, due in ((SMALL, 1, 20), (LARGE, 2, 40)):
                if size not in asked and generation == after and step >= due:
                    show.say(f"dmr resize {run.name} --nodes {size}")
                    subprocess.run([program("dmr"), "resize", str(run), "--nodes", str(size)], check=True, timeout=60)
                    asked.append(size)
    finally:
        if running.poll() is None:
            running.terminate()
            running.wait(60)
    history = finished(run)
    missing = [] if running.returncode == 0 else [f"the run ended well (its status is {running.returncode})"]
    show.line("the same at a fixed size, 3 nodes, for comparison", "fixed")
    local = ["--engine", "local", "--local-nodes", "3", "--nodes", "3", "--quiet"]
    with open(folder / "fixed.out", "wb") as log:
        command = launch(folder / "fixed-run", *local) + application(fixed)
        subprocess.run(command, cwd=folder, stdout=log, stderr=log, timeout=120, check=True)
    show.say("")
    bars = [Bar("hillslope", each.hosts, each.start, each.end or each.start) for each in history.generations]
    return history, bars, fixed, missing


# -- what came out


def pairs(history: History) -> list[tuple[GenerationRecord, GenerationRecord]]:
    return list(zip(history.generations, history.generations[1:], strict=False))


def verdict(history: History, fixed: Path, malleable: Path, missing: list[str]) -> list[str]:
    """Return what did not happen."""
    sizes = [each.nodes for each in history.generations]
    if len(set(sizes)) < 3:
        missing.append(f"at least three sizes (they were {sizes})")
    same = False
    with suppress(OSError, ValueError):
        one, other = np.load(fixed), np.load(malleable)
        same = one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    print(f"sizes: {' → '.join(map(str, sizes))} nodes")
    print(f"identical to the fixed-size run: {'yes' if same else 'no'}", flush=True)
    return missing if same else [*missing, "the same bits as at a fixed size"]


def choose(engine: str, folder: Path, show: Show) -> tuple[History, list[Bar], Path, list[str]]:
    if engine == "local":
        return on_this_machine(folder, show)
    try:
        cluster = PrivateCluster(NODES).up(owned=True)
    except ClusterError as error:
        if engine == "slurm":
            raise Failed(f"there is no Slurm: {error}") from None
        show.say(
            f"No Slurm can be had here, so this goes on the local engine, with sizes asked for by hand.\n({error})\n"
        )
        return on_this_machine(folder, show)
    try:
        show.say(f"a private Slurm with {NODES} nodes is up ({cluster.run(['sinfo', '--version']).stdout.strip()})")
        return on_slurm(cluster, folder, show)
    finally:
        cluster.down()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("auto", "slurm", "local"), default="auto")
    parser.add_argument("--out", type=Path, help="a new folder for all that comes out (default: below ./out)")
    options = parser.parse_args()
    if options.out is None:
        Path("out").mkdir(exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="demo-", dir="out")).resolve()
    else:
        folder = options.out.resolve()
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            parser.error(f"{options.out}: {error.strerror}: name a folder that is not there yet")
    begun, show = time.monotonic(), Show()
    try:
        history, bars, fixed, missing = choose(options.engine, folder, show)
    except (Failed, ClusterError, subprocess.SubprocessError) as error:
        show.say("")
        print(f"demo: {error}", file=sys.stderr)
        for log in sorted(folder.glob("*.out")):
            print(f"-- {log.name}\n{log.read_text(errors='replace')[-2000:]}", file=sys.stderr)
        return 1
    subprocess.run([program("dmr"), "history", str(folder / "run")], check=True, timeout=60)
    print(f"\n{text(bars)}\n")
    picture = folder / "timeline.png"
    if draw(bars, picture):
        print(f"the same as a picture: {os.path.relpath(picture)}")
    missing = verdict(history, fixed, folder / "malleable.npy", missing)
    for each in missing:
        print(f"demo: did not happen: {each}", file=sys.stderr)
    print(f"({time.monotonic() - begun:.0f} s; files: {os.path.relpath(folder)})")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
