"""The road of the demo in small: on a real Slurm a run gives way to a waiting job and grows again, bit for bit."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from dmr.launcher.cluster import PrivateCluster, processes
from dmr.launcher.run.history import History, read_history
from dmr.launcher.run.rundir import RunDir

pytestmark = pytest.mark.xdist_group("road")

APP = Path(__file__).with_name("creep.py")
LAUNCH = str(Path(sys.executable).with_name("dmr-launch"))
STEPS = 60
DEADLINE = 90.0


def until(what: Callable[[], bool], why: str) -> None:
    limit = time.monotonic() + DEADLINE
    while not what():
        assert time.monotonic() < limit, f"not within {DEADLINE:.0f} s: {why}"
        time.sleep(0.1)


def states(cluster: PrivateCluster) -> dict[str, str]:
    query = ["squeue", "--noheader", "--states=pending,running,completing", "--format=%A %T"]
    return dict(line.split() for line in cluster.run(query).stdout.splitlines())


def submit(cluster: PrivateCluster, folder: Path, name: str, nodes: int, command: str) -> str:
    options = ["--parsable", f"--job-name={name}", f"--nodes={nodes}", "--ntasks-per-node=1", "--time=5"]
    argv = ["sbatch", *options, f"--output={folder}/{name}-%j.out", "--wrap", command]
    return cluster.run(argv, cwd=folder).stdout.strip()


def launch(folder: Path, run: str, out: str, pace: float, *options: str) -> str:
    app = [sys.executable, str(APP), str(STEPS), str(pace), str(folder / out)]
    return "exec " + shlex.join([LAUNCH, "--run-dir", str(folder / run), *options, "--", *app])


def fact(cluster: PrivateCluster, job: str, key: str) -> str:
    said = cluster.run(["scontrol", "--oneliner", "show", "job", job]).stdout
    return dict(word.split("=", 1) for word in said.split() if "=" in word)[key]


def seconds(stamp: str) -> float:
    return time.mktime(time.strptime(stamp, "%Y-%m-%dT%H:%M:%S"))


def logs(folder: Path) -> str:
    return "\n".join(f"-- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in folder.glob("*.out"))


@dataclass(frozen=True)
class Road:
    """What was driven: its folder, the jobs submitted here by name, all that Slurm got since, the run's history."""

    folder: Path
    jobs: dict[str, str]
    known: set[str]
    history: History


@pytest.fixture(scope="module")
def road(session_cluster: PrivateCluster, tmp_path_factory: pytest.TempPathFactory) -> Road:
    """Drive along it once."""
    cluster, folder = session_cluster, tmp_path_factory.mktemp("road")
    run, over = RunDir(folder / "run"), folder / "over"
    jobs = {"first": submit(cluster, folder, "first", 5, f"until [ -e {shlex.quote(str(over))} ]; do sleep 0.1; done")}
    options = ("--nodes", "1:5", "--dwell", "1", "--query-interval", "1")
    jobs["run"] = submit(cluster, folder, "run", 3, launch(folder, "run", "malleable.npy", 0.9, *options))

    def computing(generation: int, step: int) -> bool:
        progress = run.read_progress() if run.folder.exists() else None
        return progress is not None and progress.generation == generation and progress.step >= step

    try:
        until(lambda: computing(1, 8), "the first steps")
        jobs["second"] = submit(cluster, folder, "second", 1, "sleep 4")
        until(lambda: states(cluster).get(jobs["second"]) == "RUNNING", "the run makes room for the waiting job")
        assert states(cluster)[jobs["first"]] == "RUNNING", "the room is to come from the run"
        until(lambda: jobs["second"] not in states(cluster), "the second job's end")
        over.touch()
        until(lambda: not states(cluster), "the end of the run")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{logs(folder)}") from None
    every = cluster.run(["squeue", "--noheader", "--states=all", "--format=%A"]).stdout.split()
    known = {job for job in every if int(job) >= int(jobs["first"])}
    return Road(folder, jobs, known, read_history(run.events()))


def test_it_shrank_in_place_and_grew_by_a_successor(road: Road) -> None:
    jobs, history = road.jobs, road.history
    assert [each.nodes for each in history.generations] == [3, 2, 5], logs(road.folder)
    first, second, third = history.generations
    assert first.job == second.job == jobs["run"] and third.job not in jobs.values()
    assert set(second.hosts) < set(first.hosts)
    assert [each.why for each in history.generations] == ["shrink", "expand", "finished"]
    assert history.crashes == 0


def test_no_step_was_lost_or_done_twice(road: Road) -> None:
    steps = [(each.first_step, each.step) for each in road.history.generations]
    assert steps[0][0] == 0 and steps[-1][1] == STEPS
    assert [end for _, end in steps[:-1]] == [begin for begin, _ in steps[1:]]


def test_the_waiting_job_started_promptly(road: Road, session_cluster: PrivateCluster) -> None:
    asked, began = (seconds(fact(session_cluster, road.jobs["second"], key)) for key in ("SubmitTime", "StartTime"))
    assert began - asked <= 15


def test_there_was_one_successor_only(road: Road) -> None:
    grown = road.history.generations[-1].job
    assert len(road.history.successors) == 1
    assert road.known == {*road.jobs.values(), grown}


def test_it_ended_as_it_would_have_at_a_fixed_size(road: Road, session_cluster: PrivateCluster) -> None:
    folder = road.folder
    fixed = submit(session_cluster, folder, "fixed", 4, launch(folder, "fixed", "fixed.npy", 0.0, "--nodes", "4"))
    until(lambda: fixed not in states(session_cluster), "the end of the run at a fixed size")
    one, other = np.load(folder / "malleable.npy"), np.load(folder / "fixed.npy")
    assert one.tobytes() == other.tobytes()
    assert one[-1] == STEPS
    alone = subprocess.run(
        [sys.executable, str(APP), str(STEPS), "0", str(folder / "alone.npy")], cwd=folder, timeout=60, check=False
    )
    assert alone.returncode == 0 and np.load(folder / "alone.npy").tobytes() == one.tobytes()


def test_no_process_is_left(road: Road, session_cluster: PrivateCluster) -> None:
    folder = road.folder

    def left() -> list[str]:
        found = processes.belonging(session_cluster.folder).values()
        return [name for name in found if name == "slurmstepd" or not processes.is_daemon(name)]

    until(lambda: not left(), "all processes of the jobs gone")
    shown = [command_line(path) for path in Path("/proc").glob("[0-9]*")]
    assert any("pytest" in each for each in shown)
    assert [each for each in shown if str(folder) in each] == []


def command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
