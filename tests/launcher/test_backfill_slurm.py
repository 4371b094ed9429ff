"""What the policy and the simulator take Slurm's backfilling to do, seen on the Slurm that is installed."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from dmr.launcher.cluster import PrivateCluster
from dmr.resize.outlook import Survey, schedule
from dmr.resize.simulate.engine import Simulation
from dmr.resize.simulate.queue import Allocation
from dmr.resize.simulate.workload import Workload
from dmr.resize.view import ClusterView, JobView

NODES, HELD = 8, 7
TURN, HEAD, SMALL = 600.0, 300.0, 1200.0
"""Time limits in seconds: of 7 of 8 nodes, of the head's job, and of a job of one node behind it."""


class Foreseen:
    """Starts of the simulator's scheduler ``slurm``; ``got`` are (start, time limit)."""

    def __init__(self, most: int, least_limit: float) -> None:
        self.simulation = Simulation(Workload((), NODES), NODES, "slurm")
        self.got: dict[str, tuple[float, float]] = {}
        asked = [(HELD, HELD, TURN, TURN), (2, most, HEAD, HEAD), (1, 1, SMALL, least_limit)]
        for number, (least, up_to, limit, cut) in enumerate(asked):
            put = partial(self.simulation.submit, ["held", "head", "small"][number], least, up_to, limit, self)
            self.simulation.at(float(number), partial(put, least_limit=cut))
        self.simulation.run()

    def started(self, allocation: Allocation) -> None:
        now = self.simulation.now
        self.got[allocation.job] = (now, allocation.end - now)
        self.simulation.at(allocation.end, lambda: self.simulation.give_back(allocation))


def shown(cluster: PrivateCluster, job: str) -> dict[str, str]:
    found = cluster.run(["scontrol", "--oneliner", "show", "job", job]).stdout
    return dict(word.split("=", 1) for word in found.split() if "=" in word)


PASSES = 5.0
"""Seconds in which backfilling looks at every job several times."""


def placed(cluster: PrivateCluster, job: str) -> dict[str, str]:
    """Wait until backfilling has started a job, or has given it a time and still has not started it passes later."""
    until, since = time.monotonic() + 60, None
    while time.monotonic() < until:
        found = shown(cluster, job)
        waits = found["JobState"] == "PENDING" and found["StartTime"] != "Unknown"
        since = (since or time.monotonic()) if waits else None
        if found["JobState"] == "RUNNING" or (since is not None and time.monotonic() - since > PASSES):
            return found
        time.sleep(0.2)
    raise AssertionError(f"job {job} got no time within a minute: {shown(cluster, job)}")


@pytest.mark.parametrize(("most", "cut"), [(4, SMALL), (NODES, SMALL), (NODES, 120.0)])
def test_a_turn_keeps_as_many_nodes_as_its_job_takes(
    cluster: PrivateCluster, tmp_path: Path, most: int, cut: float
) -> None:
    """7 of 8 nodes are held. Behind a head of 2 to 4 nodes the eighth is free for a small job; behind one of 2 to 8 it
    is not, but for one whose limit may be cut to less than there is before that turn."""

    def submit(nodes: str, seconds: float, *more: str) -> str:
        script = ["--exclusive", "--output=/dev/null", "--wrap=sleep 600"]
        argv = ["sbatch", "--parsable", f"--nodes={nodes}", f"--time={seconds / 60:.0f}", *more, *script]
        return cluster.run(argv, cwd=tmp_path).stdout.strip()

    held = submit(str(HELD), TURN)
    assert placed(cluster, held)["JobState"] == "RUNNING"
    head = submit(f"2-{most}", HEAD)
    turn = placed(cluster, head)
    assert turn["JobState"] == "PENDING"
    small = placed(cluster, submit("1", SMALL, *([f"--time-min={cut / 60:.0f}"] if cut < SMALL else [])))
    start, limit = Foreseen(most, cut).got["small"]
    assert (small["JobState"] == "RUNNING") == (start < TURN) == (most < NODES or cut < SMALL), small
    if cut < SMALL:
        hours, minutes, _ = map(int, small["TimeLimit"].split(":"))
        assert 60 * (60 * hours + minutes) == limit == cut, "and to that it is cut, whatever there is"

    jobs = (
        JobView("1", "running", HELD, end=TURN),
        JobView("2", "pending", 2, 2.0, time_limit=HEAD, nodes_max=most),
        JobView("3", "pending", 1, 1.0, time_limit=SMALL, nodes_max=1),
    )
    view = ClusterView(0.0, NODES, NODES - HELD, jobs)
    starting = [each.job.job for each in schedule(0.0, view.idle, [(TURN, HELD)], Survey(view).waiting).started]
    assert starting == (["3"] if most < NODES else []), "the policy does not count on a limit that is cut"
