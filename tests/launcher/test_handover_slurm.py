"""Changes of size through a real Slurm: shrink in place, successor, chain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Expected = Callable[[int], np.ndarray]


def test_shrinks_in_place_and_grows_by_a_successor(slurm: Any, expected_after: Expected) -> None:
    first = slurm.submit(260, 0.05, options=("--nodes", "1:4", "--dwell", "1h"), sbatch=("--nodes=2",))
    slurm.at_step(5)
    assert slurm.dmr("resize", "run", "--nodes", "1", "--wait").returncode == 0
    assert slurm.cluster.run(["squeue", "--noheader", "--format=%D", f"--jobs={first}"]).stdout.strip() == "1"
    answer = slurm.dmr("resize", "run", "--nodes", "4", "--wait")
    assert answer.returncode == 0, answer.stderr
    out = slurm.finished()
    assert np.array_equal(slurm.final(), expected_after(260)), out
    history = slurm.history
    assert [each.nodes for each in history.generations] == [2, 1, 4], out
    assert [each.why for each in history.generations] == ["shrink", "expand", "finished"]
    assert history.generations[0].job == history.generations[1].job == first
    assert history.generations[2].job not in (first, None)
    assert history.generations[2].wait is not None
    assert f"handed over to job {history.generations[2].job}; its output goes to " in out
    assert (slurm.folder / "post.txt").read_text().count("post-command") == 1  # in the last job alone


def test_the_user_names_nodes_that_are_not_given_back(slurm: Any, expected_after: Expected) -> None:
    slurm.submit(200, 0.05, options=("--nodes", "1:4", "--dwell", "1h"), sbatch=("--nodes=4",))
    slurm.at_step(5)
    (launched,) = slurm.events("launched")
    first, *others = launched["hosts"]
    answer = slurm.dmr("resize", "run", "--nodes", "2", "--keep", "elsewhere")
    assert answer.returncode == 1 and f"elsewhere can't be kept: the job holds {first}" in answer.stderr
    answer = slurm.dmr("resize", "run", "--nodes", "2", "--keep", ",".join(others[-2:]))
    assert answer.returncode == 1 and f"{first} stays, since dmr-launch runs there" in answer.stderr
    answer = slurm.dmr("resize", "run", "--nodes", "2", "--keep", others[-1], "--wait")
    assert answer.returncode == 0, answer.stderr
    assert slurm.events("launched")[-1]["hosts"] == [first, others[-1]]
    out = slurm.finished()
    assert np.array_equal(slurm.final(), expected_after(200)), out


def test_gives_way_to_a_job_that_waits_and_grows_again(slurm: Any, expected_after: Expected) -> None:
    slurm.submit(600, 0.3, "--scale", options=("--nodes", "2:8"), sbatch=("--nodes=8",))
    slurm.at_step(5)
    rival = slurm.cluster.run(["sbatch", "--parsable", "--nodes=4", "--time=1", "--wrap=sleep 4", "--output=/dev/null"])
    slurm.wait(lambda: slurm.history.generations[-1].nodes <= 4, "a shrink")
    slurm.wait(lambda: slurm.queue().get(rival.stdout.strip()) == "RUNNING", "the rival's start")
    slurm.wait(lambda: slurm.history.generations[-1].nodes > 4, "growth")
    out = slurm.finished()
    assert np.array_equal(slurm.final(), expected_after(600)), out
    sizes = [each.nodes for each in slurm.history.generations]
    assert sizes[0] == 8 and min(sizes) <= 4, out


def test_a_chain_where_old_and_new_do_not_fit_side_by_side(slurm: Any, expected_after: Expected) -> None:
    slurm.submit(120, 0.05, options=("--nodes", "1:8", "--dwell", "1h"), sbatch=("--nodes=5",))
    slurm.at_step(5)
    answer = slurm.dmr("resize", "run", "--nodes", "8", "--wait")
    assert answer.returncode == 0, answer.stderr
    out = slurm.finished()
    assert np.array_equal(slurm.final(), expected_after(120)), out
    assert [each.nodes for each in slurm.history.generations] == [5, 8], out
    assert (slurm.folder / "post.txt").read_text().count("post-command") == 1
