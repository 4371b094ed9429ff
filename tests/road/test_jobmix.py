"""The mix of benchmarks/jobmix.py in small: real runs in a crowd of 16 nodes, with the right bits."""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from dmr.launcher.cluster import PrivateCluster
from dmr.launcher.cluster.tools import missing
from dmr.launcher.run.history import GenerationRecord, History
from dmr.resize.simulate.metrics import metrics
from dmr.resize.simulate.workload import Job, Workload, make_malleable

pytestmark = pytest.mark.xdist_group("jobmix")

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "jobmix.py"
NODES = 16
JOBS = ((0.0, 12, 6.0), (1.0, 6, 5.0), (2.0, 10, 4.0), (3.0, 14, 3.0))
"""Submission, nodes asked for, and seconds on them: each in turn too large for what is free."""


@pytest.fixture(scope="module")
def jobmix() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("jobmix", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["jobmix"] = module  # its dataclasses look themselves up
    sys.path.insert(0, str(SCRIPT.parent))
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(SCRIPT.parent))


@pytest.fixture
def forecasts(jobmix: ModuleType) -> ModuleType:
    return importlib.import_module("jobmix_forecast")


def options(jobmix: ModuleType, *words: str) -> argparse.Namespace:
    given: argparse.Namespace = jobmix.parser().parse_args(["--nodes", str(NODES), *words])
    return given


def crowd() -> Workload:
    jobs = [
        Job(number, submit, nodes, seconds, 120.0, tuple(range(2, NODES + 1)), 6, 0.95)
        for number, (submit, nodes, seconds) in enumerate(JOBS, 1)
    ]
    return Workload(tuple(jobs), NODES)


@pytest.fixture
def small_cluster(jobmix: ModuleType) -> Iterator[PrivateCluster]:
    if missing(accounting=True):
        pytest.skip(str(missing(accounting=True)))
    with jobmix.cluster_of(NODES) as made:
        yield made


@pytest.mark.slow
def test_mixes_of_real_runs(jobmix: ModuleType, small_cluster: PrivateCluster, tmp_path: Path) -> None:
    given = options(jobmix, "--jobs", "4", "--interval", "1", "--dwell", "1", "--kib", "64", "--deadline", "80")
    given.nodes_per_rank = 8
    bench = jobmix.Bench(small_cluster, tmp_path, given)
    mixes = {name: bench.run(name, make_malleable(crowd(), share, NODES, 3)) for name, share in jobmix.MIXES.items()
             if name != "half"}  # fmt: skip
    for name, mix in mixes.items():
        # The program itself makes sure of its bits, and leaves nothing to be found where they were wrong.
        assert set(mix.ended) == set(range(1, len(JOBS) + 1)), name
        assert all(history.finished for history in mix.histories.values()), name
        assert all(mix.started[each] <= mix.ended[each] for each in mix.ended)
        assert all(0 <= held <= NODES for _, held in mix.held) and max(held for _, held in mix.held) > NODES / 2
    assert sum(history.resizes for history in mixes["rigid"].histories.values()) == 0
    sizes = [each.nodes for history in mixes["malleable"].histories.values() for each in history.generations]
    assert len(set(sizes)) > 1 and set(sizes) <= set(range(2, NODES + 1))
    found = jobmix.summary({**mixes, "half": mixes["malleable"]}, given)
    json.dumps(found)
    assert {"makespan_ratio", "turnaround_ratio", "rigid_turnaround_half_mix"} <= set(found)
    assert {"forecast_error", "utilisation_gain", "central"} <= set(found)
    for row in found["mixes"].values():
        assert 0 < row["useful"] <= row["computing"] <= 1


def test_jobs_are_drawn_as_they_run(jobmix: ModuleType) -> None:
    given = options(jobmix, "--jobs", "40", "--work", "300")
    jobs = jobmix.drawn(given).jobs
    assert len(jobs) == 40 and all(job.limit % 60 == 0 for job in jobs)
    for job in jobs:
        assert jobmix.LEAD_SHARE * job.limit >= job.runtime, "the time limit must not come into play"
        work = jobmix.work_of(job)
        assert work * (1 - job.parallel + job.parallel / job.nodes) == pytest.approx(job.runtime)


def test_start_and_end_are_the_same_at_each_size_in_the_forecast(jobmix: ModuleType, forecasts: ModuleType) -> None:
    given = options(jobmix, "--jobs", "10", "--work", "300")
    before = jobmix.drawn(given)
    after = forecasts.with_overhead(before, 4.0)
    for job, longer in zip(before.jobs, after.jobs, strict=True):
        for nodes in (1, job.nodes, NODES):
            assert longer.seconds(nodes) == pytest.approx(job.seconds(nodes) + 4.0)


def test_the_forecast_of_a_mix_is_a_schedule_of_all_its_jobs(jobmix: ModuleType, forecasts: ModuleType) -> None:
    given = options(jobmix, "--jobs", "10", "--work", "300")
    costs = forecasts.Costs(2.0, 0.3, 0.2, 2.0, 0.2)
    found = {
        share: metrics(jobmix.forecast(make_malleable(jobmix.drawn(given), share, NODES, 1), costs, given))
        for share in (0.0, 1.0)
    }
    assert found[0.0].all.jobs == found[1.0].all.jobs == 10
    assert found[0.0].resizes == 0


def test_what_a_mix_measured(jobmix: ModuleType, forecasts: ModuleType) -> None:
    """4 nodes from 12 on, first step at 13, twenty steps of 0.5 s; 8 nodes from 26 on; its result at 40."""
    steps = {"first_step": 0, "step": 20, "seconds_per_step": 0.5}
    first = GenerationRecord(1, "a", 4, 12.0, end=24.0, launch=1.0, save=0.5, **steps)
    steps = {"first_step": 20, "step": 40, "seconds_per_step": 0.25}
    second = GenerationRecord(2, "b", 8, 26.0, end=41.0, launch=2.0, load=0.25, **steps)
    histories = {1: History(generations=(first, second))}
    mix = jobmix.Mix(Workload((Job(1, 0.0, 8, 10.0, 60.0),)), {1: 9.0}, {1: 10.0}, {1: 40.0}, histories=histories)
    assert mix.overhead() == {1: 4.0}
    assert forecasts.measured(histories, mix.started, mix.ended) == forecasts.Costs(3.0, 1.0, 0.5, 4.0, 0.25)
    assert mix.computing(8) == pytest.approx((4 * 10 + 8 * 5) / (8 * 31))
    assert mix.useful(8) == pytest.approx(10 / (8 * 31)), "work of no parallel part takes as long on one node"


def test_steady_is_while_jobs_keep_coming(jobmix: ModuleType) -> None:
    submitted = {job: 10.0 * job for job in range(6)}
    mix = jobmix.Mix(Workload(()), submitted, ended={5: 90.0})
    mix.held = [(10.0 * n, 4 if 1 <= n <= 4 else 0) for n in range(10)]
    assert mix.steady(4) == 1.0
    assert mix.utilisation(4) == pytest.approx(40 / 90)


def test_utilisation_is_over_the_time_of_the_mix(jobmix: ModuleType) -> None:
    mix = jobmix.Mix(Workload(()), submitted={1: 10.0}, ended={1: 30.0})
    mix.held = [(0.0, 16), (10.0, 8), (20.0, 16), (30.0, 0), (40.0, 16)]
    assert mix.utilisation(16) == pytest.approx(0.75)
    assert mix.makespan == 20.0 and mix.turnaround() == 20.0


def test_its_help_tells_what_comes_out() -> None:
    argv = [sys.executable, str(SCRIPT), "--help"]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "makespan_ratio" in said and "forecast_error" in said


def test_where_the_idle_nodes_of_a_simulated_mix_go(jobmix: ModuleType, forecasts: ModuleType) -> None:
    simulated = importlib.import_module("jobmix_simulated")
    given = options(jobmix, "--jobs", "20", "--work", "300", "--seed", "2")
    told, shares = simulated.simulated(given)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["held"] == pytest.approx(told.utilisation, abs=0.02) and shares["ends"] > 0
    found = simulated.row(argparse.Namespace(**vars(given), seeds=2), 20)
    assert found["central_utilisation"] > found["rigid_utilisation"] and sum(found["shares"].values()) > 0.99
