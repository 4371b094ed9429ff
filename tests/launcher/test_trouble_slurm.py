"""What clusters do to a run: each ends with the right bits, with exactly one launcher at a time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Expected = Callable[[int], np.ndarray]

FILL = ["sbatch", "--parsable", "--output=/dev/null", "--time=5", "--wrap=sleep 600"]


def fill(slurm: Any, nodes: int, seconds: int = 600) -> str:
    """Take nodes, so that whatever else is asked for pends."""
    argv = ["sbatch", "--parsable", "--output=/dev/null", "--time=5", f"--nodes={nodes}", f"--wrap=sleep {seconds}"]
    return str(slurm.cluster.run(argv, cwd=slurm.folder).stdout.strip())


def launcher_pid(slurm: Any) -> int:
    """Return the process that owns the run."""
    return int(slurm.run.read_lease(slurm.run.leases()[-1])["pid"])


def pending(slurm: Any) -> str:
    """Wait for a successor that pends; returns its job."""
    slurm.wait(lambda: slurm.history.open_successor and slurm.history.open_successor.job, "a successor")
    return str(slurm.history.open_successor.job)


def grow_behind_others(slurm: Any, steps: int, *args: object, **kwargs: Any) -> tuple[str, str, str]:
    """Start a run whose successor pends; returns its job, the successor and the job that is in the way."""
    other = fill(slurm, 5)
    slurm.wait(lambda: slurm.queue().get(other) == "RUNNING", "the other job")
    job = slurm.submit(steps, 0.05, *args, options=("--nodes", "1:4", "--dwell", "1h"), sbatch=("--nodes=1",), **kwargs)
    slurm.at_step(3)
    answer = slurm.dmr("resize", "run", "--nodes", "4")
    assert answer.returncode == 0, answer.stderr + slurm.output()
    return job, pending(slurm), other


def test_scancel_of_the_run_cancels_the_successor_that_waits(slurm: Any, expected_after: Expected) -> None:
    job, successor, other = grow_behind_others(slurm, 2000)
    slurm.cluster.run(["scancel", job])
    slurm.wait(lambda: set(slurm.queue()) == {other}, "only the other job in the queue")
    history = slurm.history
    assert history.last.why == "stopped", slurm.output()
    assert history.stopping and history.open_successor is None
    assert slurm.run.read_progress().checkpoint is not None
    assert '"state": "stopped"' in slurm.dmr("status", "run", "--json").stdout
    slurm.cluster.run(["scancel", other])
    time.sleep(3)
    assert slurm.queue() == {} and len(slurm.run.leases()) == 1, successor


def test_scancel_of_the_successor_alone_leaves_the_run_as_it_is(slurm: Any, expected_after: Expected) -> None:
    job, successor, other = grow_behind_others(slurm, 250)
    slurm.cluster.run(["scancel", successor])
    slurm.wait(lambda: slurm.history.open_successor is None, "the cancellation noticed")
    slurm.cluster.run(["scancel", other])
    out = slurm.finished()
    assert np.array_equal(slurm.final(), expected_after(250)), out
    (only,) = slurm.history.generations
    assert only.job == job and only.why == "finished"
    assert slurm.history.successors[0].end == "cancelled"


def test_a_run_that_finishes_cancels_its_successor(slurm: Any, expected_after: Expected) -> None:
    job, successor, other = grow_behind_others(slurm, 200)
    slurm.wait(lambda: slurm.history.finished, "the end")
    slurm.wait(lambda: set(slurm.queue()) == {other}, "no successor left")
    assert np.array_equal(slurm.final(), expected_after(200))


def test_the_successor_takes_over_when_the_launcher_was_killed(slurm: Any, expected_after: Expected) -> None:
    job, successor, other = grow_behind_others(slurm, 400, after="exit 1")
    os.kill(launcher_pid(slurm), signal.SIGKILL)
    slurm.cluster.run(["scancel", other])
    out = slurm.finished()
    assert np.array_equal(slurm.final(), expected_after(400)), out
    assert [each.job for each in slurm.history.generations] == [job, successor], out
    assert slurm.history.generations[-1].cause == "takeover"


def test_the_successor_does_not_go_on_when_a_user_cancelled_a_run_that_could_not_say_so(slurm: Any) -> None:
    job, successor, other = grow_behind_others(slurm, 2000, kill_at="1:signalled")
    slurm.cluster.run(["scancel", job])
    slurm.wait(lambda: job not in slurm.queue(), "the end of the job")
    slurm.cluster.run(["scancel", other])
    slurm.wait(lambda: slurm.queue() == {}, "the successor's end")
    assert len(slurm.run.leases()) == 1, slurm.output()
    assert "was cancelled" in slurm.output()


def test_a_time_limit_is_passed_over_several_generations(slurm: Any, expected_after: Expected) -> None:
    slurm.submit(1500, 0.08, options=("--nodes", "2"), sbatch=("--nodes=2", "--time=1"))
    out = slurm.finished(within=240)
    assert np.array_equal(slurm.final(), expected_after(1500)), out
    history = slurm.history
    assert len(history.generations) >= 3, out
    assert {each.why for each in history.generations[:-1]} == {"time limit"}
    assert sum(each.steps for each in history.generations) == 1500  # none was done twice


POLICY = """
from dmr.resize.policy import Proposal

class Stay:
    moldable = True

    def propose(self, situation):
        return Proposal(situation.run.nodes, "as it is")
"""


def test_a_limit_that_backfilling_cut_is_passed_in_a_successor_that_asks_for_the_whole(
    slurm: Any, expected_after: Expected
) -> None:
    other = slurm.cluster.run([*FILL, "--time=2", "--nodes=4"], cwd=slurm.folder).stdout.strip()
    slurm.wait(lambda: slurm.queue().get(other) == "RUNNING", "the other job")
    head = fill(slurm, 8, seconds=1)
    (slurm.folder / "stay.py").write_text(POLICY)
    job = slurm.submit(
        1100, 0.05, options=("--nodes", "1:4", "--policy", "stay:Stay"), sbatch=("--nodes=2",),
        before="#SBATCH --time=10 --time-min=1",
    )  # fmt: skip
    slurm.at_step(3)

    def record(job: str) -> str:
        return str(slurm.cluster.run(["scontrol", "show", "job", "-o", job]).stdout)

    assert "TimeLimit=00:01:00" in record(job) and slurm.queue()[head] == "PENDING"
    successor = pending(slurm)
    assert "TimeLimit=00:10:00 TimeMin=00:01:00" in record(successor)
    assert slurm.history.open_successor.nodes == (1, 4)
    slurm.cluster.run(["scancel", other])
    out = slurm.finished(within=120)
    assert np.array_equal(slurm.final(), expected_after(1100)), out
    first, second = slurm.history.generations
    assert (first.why, second.job, second.nodes) == ("time limit", successor, 4), out
    assert first.steps + second.steps == 1100, "none was done twice"
    assert "(--time-min): what is not done by then goes on in a successor, which asks for 10 again" in out


def test_resume_from_a_login_node_submits_one_job(slurm: Any, expected_after: Expected) -> None:
    job = slurm.submit(150, 0.05, "--fail-at", "20", options=("--nodes", "2", "--checkpoint-every", "10steps"),
                       sbatch=("--nodes=2",), kill_at="1:ended", after="exit 1")  # fmt: skip
    slurm.wait(lambda: slurm.history.generations and job not in slurm.queue(), "the end of the job")
    slurm.wait(lambda: '"lost"' in slurm.dmr("status", "run", "--json").stdout, "the loss")
    answers = [slurm.start("dmr", "resume", "run") for _ in range(2)]
    outs = [slurm.end(each) for each in answers]
    assert sorted(each.returncode for each in answers) == [0, 1], outs
    again = slurm.dmr("resume", "run")
    assert again.returncode == 1, again
    out = slurm.finished()
    assert np.array_equal(slurm.final(), expected_after(150)), out
    assert slurm.history.generations[-1].cause == "resume"
