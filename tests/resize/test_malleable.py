from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmr.resize.policy import load_policy, policy_names
from dmr.resize.simulate.central import simulate_central
from dmr.resize.simulate.engine import Outcome, Schedule, Simulation, simulate_rigid
from dmr.resize.simulate.experiment import Regime, compare, interval, simulate_malleable
from dmr.resize.simulate.generate import amdahl
from dmr.resize.simulate.malleable import Launcher
from dmr.resize.simulate.metrics import metrics
from dmr.resize.simulate.queue import Machine
from dmr.resize.simulate.schedulers import SCHEDULERS
from dmr.resize.simulate.workload import Job, Workload, make_malleable

QUEUE = load_policy("queue", {"dwell": 0})
OPTIONS = {"schedule": {"at": "0=1,60=3"}, "deadline": {"within": "500"}}


def perfect(number: int, submit: float, nodes: int, work: float, sizes: tuple[int, ...], limit: float = 9e5) -> Job:
    """A job that scales perfectly: so many node-seconds."""
    return Job(number, submit, nodes, work / nodes, limit, sizes, nodes, 1.0)


def rigid(number: int, submit: float, nodes: int, runtime: float) -> Job:
    return Job(number, submit, nodes, runtime, runtime)


def by_number(schedule: Schedule) -> dict[int, Outcome]:
    return {each.job.id: each for each in schedule.outcomes}


def test_growth_by_hand() -> None:
    """Least size 2 of 8 nodes, 8000 node-seconds; it looks at the queue 60·0.618 s after the start, then a minute on.

    At 37.1 s it asks for 6 nodes (those that stand beside its 2), gets them at once, ends its step (10 s), saves
    for 3 s and is back after 7 s more: 2·40 node-seconds done, 7920 to do on 6 nodes.
    """
    launcher = Launcher(QUEUE, start="least")
    found = by_number(simulate_malleable(Workload((perfect(1, 0, 2, 8000, (2, 4, 6)),)), 8, launcher))[1]
    assert found.start == 0
    assert found.resizes == 1
    assert found.end == pytest.approx(40 + 3 + 7 + 7920 / 6)
    look = 60 * 0.6180339887
    assert found.node_seconds == pytest.approx(2 * 43 + 6 * (found.end - look))
    assert found.computing == pytest.approx(8000)


def test_shrink_by_hand() -> None:
    """8 of 8 nodes; a rigid job for 4 comes at 50. The run looks at 97.1, ends its step at 100, saves until 103.

    Then the other job starts, and the run goes on at 110 on 4 nodes, until it grows back after the other's end.
    """
    jobs = Workload((perfect(1, 0, 8, 80_000, (4, 8)), rigid(2, 50, 4, 200)))
    found = by_number(simulate_malleable(jobs, 8, Launcher(QUEUE)))
    assert found[2].start == pytest.approx(103)
    assert found[2].end == pytest.approx(303)
    # Back to 8 with the look at 337.1: it can't stand beside itself, so it saves at the end of its step, which takes
    # 20 s now, at 350, and queues for 8.
    done = 800 + 4 * (350 - 110)
    assert found[1].end == pytest.approx(353 + 7 + (80_000 - done) / 8)
    assert found[1].resizes == 2


def test_a_successor_waits_its_turn_and_its_size_follows() -> None:
    """DMR's rule asks for growth; the successor is in the queue like any other job."""
    launcher = Launcher(load_policy("schedule", {"at": "0=4", "dwell": 0}), start="least")
    jobs = Workload((perfect(1, 0, 2, 4000, (2, 4)), rigid(2, 0, 6, 500)))
    found = by_number(simulate_malleable(jobs, 8, launcher))
    # It waits until 500, ends its step, saves: 2·500 node-seconds are done; 3000 more on 4.
    assert found[1].end == pytest.approx(500 + 10 + 3 + 7 + (4000 - 1020) / 4, abs=11)


def test_the_time_limit_is_outlived() -> None:
    """Limits of 1000 s for a run of 4000: it saves before each, queues again and loses nothing."""
    job = Job(1, 0, 2, 4000.0, 1000.0, (2, 4), 2, 1.0)
    found = by_number(simulate_malleable(Workload((job,)), 2, Launcher(load_policy("static"), start="least")))[1]
    assert found.start == 0
    # Steps of 10 s, saves of 3: each life ends at the step after 1000 - 60 - 10 - 2·3 s, at 930, then 10 s of change.
    lives = math.ceil(4000 / 930) - 1
    assert found.end == pytest.approx(4000 + 10 * lives)
    assert found.resizes == 0


def test_of_a_short_limit_three_quarters_are_used() -> None:
    """800 s in steps of 10 s, limits of 80 s: a step and a save may take 21 s, so it leaves after the step that ends at
    60 s, and queues again; from the second life on, 7 s of which go into the start, at 67 s."""
    job = Job(1, 0, 2, 800.0, 80.0, (2, 4), 2, 1.0)
    schedule = simulate_malleable(Workload((job,)), 2, Launcher(load_policy("static"), start="least"))
    lives = math.ceil(800 / 60) - 1
    assert schedule.outcomes[0].end == pytest.approx(800 + 10 * lives)
    assert schedule.outcomes[0].node_seconds <= 2 * 80 * (lives + 1)


def test_a_limit_that_was_cut_is_outlived_at_the_size_that_is_free_then() -> None:
    """Of 8 nodes 6 are held until 650, when all are the head's for 100 s. A run of 2 to 4 nodes and a limit of 1000 s
    that may be cut to 250, in whole minutes 300, starts on the two others for 600 s, leaves them a minute, a step of
    10 s and two saves before the end, and goes on behind the head: on 4 under a policy that takes what is free, on 2
    under one that keeps its size.
    """
    jobs = Workload((rigid(1, 0, 6, 650), rigid(2, 10, 8, 100), perfect(3, 20, 2, 4000, (2, 4), limit=1000.0)))
    for policy, nodes in ((QUEUE, 4), (load_policy("static"), 2)):
        launcher = Launcher(policy, time_min=0.25)
        for scheduler in ("easy", "conservative"):
            found = by_number(simulate_malleable(jobs, 8, launcher, scheduler))
            assert (found[2].start, found[3].start) == (650, 20)
            done = 2 * (600 - 60 - 10 - 2 * 3)
            assert found[3].end == pytest.approx(750 + 7 + (4000 - done) / nodes, abs=20)
            assert found[3].resizes == (nodes != 2)
            assert by_number(simulate_malleable(jobs, 8, Launcher(policy), scheduler))[3].start > 650


def test_a_range_may_be_narrower_than_what_a_run_can_have() -> None:
    job = perfect(1, 0, 8, 80_000, (2, 4, 8))
    for most, nodes in ((1, 2), (3, 4), (4, 8), (math.inf, 8)):
        assert Launcher(QUEUE, start_most=most).span(job) == (2, nodes)
    with pytest.raises(ValueError, match="0.5 times the least"):
        Launcher(QUEUE, start_most=0.5)


def test_a_run_that_ends_before_its_successor_starts_takes_it_back() -> None:
    launcher = Launcher(load_policy("schedule", {"at": "0=4", "dwell": 0}), start="least")
    jobs = Workload((perfect(1, 0, 2, 400, (2, 4)), rigid(2, 0, 6, 5000), rigid(3, 10, 2, 10)))
    found = by_number(simulate_malleable(jobs, 8, launcher))
    assert found[1].end == pytest.approx(200)
    assert found[1].resizes == 0
    assert found[3].start == pytest.approx(200)


class Checked(Machine):
    """A machine that looks after each change whether what is held adds up."""

    def check(self) -> None:
        assert 0 <= self.free <= self.total
        assert self.free + sum(each.nodes for each in self.held.values()) == self.total
        assert sorted(self._ends) == self._ends
        assert {each.job for *_, each in self._ends} == set(self.held)


workloads = st.lists(
    st.tuples(
        st.integers(0, 300), st.integers(1, 8), st.integers(20, 400), st.sampled_from([1.0, 1.5, 3.0]), st.booleans()
    ),
    min_size=1,
    max_size=12,
)  # fmt: skip


def drawn(found: list[tuple[int, int, int, float, bool]]) -> Workload:
    jobs = []
    for number, (submit, nodes, runtime, factor, malleable) in enumerate(sorted(found), 1):
        sizes = tuple(range(max(1, nodes // 2), 9)) if malleable else ()
        jobs.append(Job(number, float(submit), nodes, float(runtime), runtime * factor, sizes, nodes, 0.95))
    return Workload(tuple(jobs))


@pytest.mark.parametrize("name", policy_names())
@settings(max_examples=25, deadline=None)
@given(workloads, st.sampled_from(sorted(SCHEDULERS)), st.sampled_from(["least", "asked", "range"]))
def test_every_job_is_done_once_whatever_the_policy(
    name: str, found: list[tuple[int, int, int, float, bool]], scheduler: str, start: str
) -> None:
    """No node twice, nothing lost: at the end all is free, nobody waits, and every job has done its work."""
    jobs = drawn(found)
    simulation = Simulation(jobs, 8, scheduler)
    machine = Checked(8)
    simulation.machine = machine
    simulation.after_pass.append(machine.check)
    from dmr.resize.simulate.malleable import Fleet

    Fleet(simulation)
    policy = load_policy(name, {"dwell": 30, **OPTIONS.get(name, {})})
    if name == "round":
        policy = load_policy(name, {"dwell": 30, "max_resizes": 6})
    schedule = simulation.run(Launcher(policy, start=start).submit)
    machine.check()
    assert machine.free == 8
    assert len(simulation.queue) == 0
    assert sorted(each.job.id for each in schedule.outcomes) == [job.id for job in jobs.jobs]
    for each in schedule.outcomes:
        assert each.computing <= each.node_seconds + 1e-6
        assert each.job.submit <= each.start < each.end
        job = each.job
        fastest = min(job.seconds(size) for size in job.sizes) if job.malleable else job.runtime
        assert each.end - each.start >= fastest - 1e-6
        assert each.node_seconds >= job.seconds(1) * 0.999 if job.malleable else True


@settings(max_examples=40, deadline=None)
@given(workloads)
def test_central_malleability_does_every_job_once(found: list[tuple[int, int, int, float, bool]]) -> None:
    jobs = drawn(found)
    schedule = simulate_central(jobs, 8)
    assert sorted(each.job.id for each in schedule.outcomes) == [job.id for job in jobs.jobs]
    span = max(each.end for each in schedule.outcomes) - jobs.jobs[0].submit
    assert sum(each.node_seconds for each in schedule.outcomes) <= 8 * span + 1e-6
    for each in schedule.outcomes:
        work = sum((each.job.runtime, 0.0)) if not each.job.malleable else min(map(each.job.seconds, each.job.sizes))
        assert each.end - each.start >= work - 1e-6


def test_central_by_hand() -> None:
    """Alone a job has all 8 nodes; when the second comes, at 10, the first is to have its least 4, at no cost."""
    jobs = Workload((perfect(1, 0, 8, 800, (4, 8)), perfect(2, 10, 4, 400, (4, 8))))
    found = by_number(simulate_central(jobs, 8))
    assert found[2].start == 10
    assert found[2].end == pytest.approx(110)
    assert found[1].end == pytest.approx(110 + (800 - 80 - 400) / 8)


def test_nothing_malleable_is_the_rigid_schedule() -> None:
    jobs = amdahl(80, 64, 2)
    none = make_malleable(jobs, 0.0, 64, 1)
    plain = {each.job.id: each.start for each in simulate_rigid(jobs, 64).outcomes}
    for schedule in (simulate_malleable(none, 64, Launcher(QUEUE)), simulate_central(none, 64)):
        assert {each.job.id: each.start for each in schedule.outcomes} == plain


def test_metrics_by_hand() -> None:
    """4 nodes: 1 on 4 for 10 s, then 2 on 2 for 5 s: makespan 15, 50 of 60 node-seconds; 2 waits 8 and takes 13."""
    found = metrics(simulate_rigid(Workload((rigid(1, 0, 4, 10), rigid(2, 2, 2, 5))), 4))
    assert found.makespan == 15
    assert found.utilisation == found.computing == pytest.approx(50 / 60)
    assert found.node_hours == pytest.approx(50 / 3600)
    assert (found.all.turnaround, found.all.wait) == (11.5, 4.0)
    assert found.all.slowdown == pytest.approx((1 + 1.3) / 2), "run times below 10 s count as 10 s"
    assert found.malleable.jobs == 0 and math.isnan(found.malleable.wait)


def test_intervals() -> None:
    """Mean 2, standard deviation 1, three values: 4.303/√3."""
    found = interval([1.0, 2.0, 3.0])
    assert (found.mean, found.count) == (2.0, 3)
    assert found.half == pytest.approx(4.303 / math.sqrt(3))
    assert math.isnan(interval([1.0]).half)
    assert interval([math.nan]).count == 0


def test_malleability_pays_on_a_crowded_mix() -> None:
    """Four seeds of the Amdahl recipe: most of what a central scheduler gains in turnaround, without its help."""
    launcher = Launcher(load_policy("queue"))
    regimes = [Regime("rigid", "rigid"), Regime("central", "central"), Regime("user", "user", launcher=launcher)]
    rigid_, central, user = compare(lambda seed: amdahl(150, 128, seed, load=1.5), 128, regimes, range(4))
    assert rigid_.ratios["turnaround"].mean == 1.0
    assert user.ratios["turnaround"].mean < 0.6
    assert user.ratios["makespan"].mean < 0.85
    assert user.share_of_central.mean > 0.8
    assert central.share_of_central.mean == pytest.approx(1.0)


def test_rigid_jobs_do_not_suffer_in_a_half_malleable_mix() -> None:
    launcher = Launcher(load_policy("queue"))
    regimes = [Regime("rigid", "rigid"), Regime("user", "user", 0.5, launcher=launcher)]
    _, user = compare(lambda seed: amdahl(150, 128, seed, load=1.5), 128, regimes, range(4))
    assert user.rigid_effect.mean < 1.05


def test_an_unknown_start_is_refused() -> None:
    with pytest.raises(ValueError, match="least, preferred"):
        Launcher(QUEUE, start="biggest")
