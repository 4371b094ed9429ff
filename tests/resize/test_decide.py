from __future__ import annotations

import dataclasses
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from dmr.resize.decide import decide
from dmr.resize.explain import decision_from_json, decision_to_json, explain
from dmr.resize.policy import PolicyError, Proposal, is_moldable, load_policy, policy_names
from dmr.resize.simulate.experiment import simulate_malleable
from dmr.resize.simulate.malleable import Launcher
from dmr.resize.simulate.workload import Job, Workload
from dmr.resize.situation import Rules, Situation
from dmr.resize.view import ClusterView, Costs, JobView, Rate, RunView

QUEUE = load_policy("queue", {"dwell": 10})
COSTS = Costs(save=1.0, launch=2.0, load=1.0)


def a_run(nodes: int = 4, **changes: Any) -> RunView:
    defaults: dict[str, Any] = {
        "time": 1000.0,
        "run": "r",
        "generation": 1,
        "nodes": nodes,
        "sizes": tuple(range(1, 7)),
        "since": 0.0,
        "step": 100,
        "steps": 10_000,
        "job": "1",
        "rates": (Rate(nodes, 0.5, 50),),
        "costs": COSTS,
        "end": 20_000.0,
    }
    return RunView(**{**defaults, **changes})


def own(run: RunView) -> JobView:
    return JobView("1", "running", run.nodes, start=0.0, end=run.end, run="r")


def a_cluster(run: RunView, *others: JobView, total: int = 8) -> ClusterView:
    jobs = (own(run), *others)
    held = sum(job.nodes for job in jobs if job.state == "running")
    return ClusterView(run.time, total, total - held, jobs)


def waits(job: str, nodes: int, priority: float = 1.0, **changes: Any) -> JobView:
    given = {"submitted": 900.0, "time_limit": 600.0, "reason": "Resources", **changes}
    return JobView(job, "pending", nodes, priority, **given)


def test_shrinks_by_the_least_that_lets_a_waiting_job_start() -> None:
    run = a_run(6)
    found = decide(run, a_cluster(run, waits("7", 5)), QUEUE)
    assert (found.action, found.nodes) == ("shrink", 3)
    assert "job 7" in found.reason
    assert [row.nodes for row in found.table if row.taken] == [3]
    assert all(row.reason for row in found.table)


def test_only_allowed_sizes_are_given() -> None:
    run = a_run(6, sizes=(2, 6))
    assert decide(run, a_cluster(run, waits("7", 3)), QUEUE).nodes == 2
    run = a_run(6, sizes=(4, 6))
    assert decide(run, a_cluster(run, waits("7", 5)), QUEUE).action == "stay"


@pytest.mark.parametrize(
    "reason",
    ["Dependency", "JobHeldUser", "JobHeldAdmin", "BeginTime", "(QOSMaxNodePerUserLimit)", "BadConstraints",
     "ReqNodeNotAvail, UnavailableNodes:n3", "AssocGrpCpuLimit"],
)  # fmt: skip
def test_jobs_that_wait_for_something_else_are_no_reason_to_shrink(reason: str) -> None:
    run = a_run(6)
    found = decide(run, a_cluster(run, waits("7", 4, reason=reason)), QUEUE)
    assert found.action == "stay"
    assert found.facts["cannot_start"] == 1


def test_own_and_others_growth_is_no_reason_to_shrink() -> None:
    run = a_run(4, pending=6)
    mine = waits("8", 6, run="r")
    assert decide(run, a_cluster(run, mine, total=6), QUEUE).action != "shrink"
    other = JobView("20", "running", 2, end=5000.0, run="s")
    assert decide(a_run(4), a_cluster(a_run(4), other, waits("21", 4, run="s"), total=6), QUEUE).action == "stay"
    restarting = waits("21", 4, run="s")
    assert decide(a_run(4), a_cluster(a_run(4), restarting, total=6), QUEUE).action == "shrink"


def test_first_by_priority_then_those_that_backfill() -> None:
    run = a_run(4, sizes=(2, 4))
    blocker = JobView("2", "running", 4, end=1100.0)
    big, small = waits("7", 8, 9.0), waits("8", 2, 1.0, time_limit=60.0)
    found = decide(run, a_cluster(run, blocker, big, small), QUEUE)
    assert (found.action, found.nodes) == ("shrink", 2), "job 7 can't start at all now, job 8 can without delaying it"
    late = dataclasses.replace(small, time_limit=19_500.0)
    assert decide(run, a_cluster(run, blocker, big, late), QUEUE).action == "stay", "it would delay job 7"


def test_does_not_shrink_for_a_job_that_starts_by_itself() -> None:
    run = a_run(4)
    assert decide(run, a_cluster(run, waits("7", 4)), QUEUE).action == "stay"
    blocker = JobView("2", "running", 4, end=1003.0)
    assert decide(run, a_cluster(run, blocker, waits("7", 4)), QUEUE).action == "stay"


def test_grows_beside_itself_into_idle_nodes() -> None:
    run = a_run(2)
    found = decide(run, a_cluster(run), QUEUE)
    assert (found.action, found.nodes) == ("expand", 6)
    assert found.table[-1].gain is not None and found.table[-1].gain > 0
    assert "assumed" in str(found.facts["speed_basis"])
    busy = JobView("2", "running", 2, end=9e9)
    assert decide(run, a_cluster(run, busy), QUEUE).nodes == 4, "old and new stand side by side"


def test_grows_in_place_where_that_can_be_had() -> None:
    run = a_run(4, in_place=True, job=None, sizes=tuple(range(1, 9)))
    assert decide(run, a_cluster(run), QUEUE).nodes == 8


def test_where_no_nodes_can_be_given_back_a_smaller_size_is_priced_as_a_successor() -> None:
    fits = a_run(3, no_shrink=True)
    found = Situation(fits, a_cluster(fits, waits("7", 6)), Rules())
    assert (found.beside(2), found.is_chain(2), found.wait(2)[0]) == (2, False, 0.0)
    assert decide(fits, a_cluster(fits, waits("7", 6)), QUEUE).nodes == 2
    busy = JobView("2", "running", 5, end=9000.0)
    found = Situation(fits, a_cluster(fits, busy), Rules())
    assert (found.beside(2), found.wait(2)[0]) == (2, 8000.0), "its successor waits for the other job"


def test_a_run_does_not_leave_all_its_nodes_to_become_smaller_while_others_wait() -> None:
    run = a_run(6, no_shrink=True)
    cluster = a_cluster(run, waits("7", 5))
    found = Situation(run, cluster, Rules())
    assert (found.beside(3), found.is_chain(3), found.wait(3)) == (0, True, (0.0, float("inf")))
    decision = decide(run, cluster, QUEUE)
    assert decision.action == "stay"
    assert "leave its nodes first" in decision.table[2].reason
    assert Situation(run, a_cluster(run), Rules()).wait(3) == (0.0, 0.0)


def test_does_not_take_nodes_that_the_next_job_will_need() -> None:
    run = a_run(2)
    blocker = JobView("2", "running", 2, end=1500.0)
    head = waits("7", 6, time_limit=5000.0)
    found = decide(run, a_cluster(run, blocker, head), QUEUE)
    assert found.action == "stay"
    assert "nobody waits for" in found.table[2].reason
    short = a_run(2, step=9_000)
    done_before = dataclasses.replace(blocker, end=3000.0)
    assert decide(short, a_cluster(short, done_before, head), QUEUE).nodes == 4


def test_grows_before_a_turn_only_if_it_is_surely_done_by_then() -> None:
    """1000 steps are left, 500 s on 2 nodes; the next job's turn is in 420 s: there is a limit of 360 s to be had."""
    head, blocker = waits("7", 6, time_limit=5000.0), JobView("2", "running", 2, end=1420.0)
    measured = a_run(2, step=9_000, sizes=(2, 4), rates=(Rate(2, 0.5, 50), Rate(4, 0.26, 50)))
    found = decide(measured, a_cluster(measured, blocker, head), QUEUE)
    assert (found.action, found.nodes, found.limit) == ("expand", 4, 360.0)
    close = a_run(2, step=9_000, sizes=(2, 4), rates=(Rate(2, 0.5, 50), Rate(4, 0.34, 50)))
    assert decide(close, a_cluster(close, blocker, head), QUEUE).action == "stay", "its launcher would have it leave"
    guessed = a_run(2, step=9_000, sizes=(2, 4))
    found = decide(guessed, a_cluster(guessed, blocker, head), QUEUE)
    row = found.table[1]
    assert row.finish is not None and row.gain_error is not None
    assert row.finish < 1360 < row.finish + row.gain_error
    assert found.action == "stay"


def test_no_growth_that_does_not_pay() -> None:
    run = a_run(2, step=9_995)
    assert decide(run, a_cluster(run), QUEUE).action == "stay"
    flat = a_run(2, rates=(Rate(2, 0.5, 50), Rate(4, 0.5, 50), Rate(6, 0.6, 50)), sizes=(2, 4, 6))
    found = decide(flat, a_cluster(flat), QUEUE)
    assert found.action == "stay"
    assert "too little" in found.table[1].reason


def test_unmeasured_runs_may_grow_and_say_so() -> None:
    run = a_run(2, rates=(), steps=None)
    found = decide(run, a_cluster(run), QUEUE)
    assert (found.action, found.nodes) == ("expand", 6)
    assert "not yet measured" in found.reason


def test_a_waiting_successor_is_kept_changed_or_given_up() -> None:
    run = a_run(2, pending=6, pending_job="8")
    mine = waits("8", 6, run="r")
    assert decide(run, a_cluster(run, mine), QUEUE).action == "stay"
    busy = JobView("2", "running", 2, end=9e9)
    assert (lambda d: (d.action, d.nodes))(decide(run, a_cluster(run, mine, busy), QUEUE)) == ("expand", 4)
    full = JobView("2", "running", 6, end=9e9)
    assert decide(run, a_cluster(run, mine, full), QUEUE).action == "cancel"


def test_handover_is_left_alone() -> None:
    run = a_run(2, pending=4)
    assert decide(run, a_cluster(run, JobView("8", "running", 4, run="r"), waits("9", 5)), QUEUE).action == "stay"


def test_what_binds_every_policy() -> None:
    busy = waits("7", 5)
    fresh = a_run(6, since=995.0)
    assert "to be kept" in decide(fresh, a_cluster(fresh, busy), QUEUE).reason
    quiet = a_run(6, inhibited_until=1100.0)
    assert "no change" in decide(quiet, a_cluster(quiet, busy), QUEUE).reason
    ending = a_run(6, end=1005.0)
    assert decide(ending, a_cluster(ending, busy), QUEUE).action == "stay"
    spent = a_run(6, resizes=3)
    limited = load_policy("queue", {"max_resizes": "3"})
    assert decide(spent, a_cluster(spent, busy), limited).action == "stay"
    poor = load_policy("queue", {"max_node_hours": "1"})
    assert "budget" in decide(a_run(2), a_cluster(a_run(2)), poor).reason


def test_suggestions_mean_what_they_mean_in_dmr() -> None:
    def at(suggestion: str, **changes: Any) -> tuple[str, int]:
        run = a_run(4, suggestion=suggestion, since=999.0, sizes=(2, 4, 6), **changes)
        found = decide(run, a_cluster(run), QUEUE)
        return found.action, found.nodes

    assert at("stay") == ("stay", 4)
    assert at("expand") == ("expand", 6)
    assert at("shrink") == ("shrink", 2)
    assert at("shrink", shrink_to=2) == ("shrink", 2)
    assert at("expand", expand_to=5) == ("stay", 4)
    assert at("expand", inhibited_until=1001.0) == ("stay", 4)


def test_a_run_can_be_left_at_a_size_no_longer_allowed() -> None:
    run = a_run(5, sizes=(2, 4))
    found = decide(run, a_cluster(run), QUEUE)
    assert 5 in [row.nodes for row in found.table]


def test_decisions_survive_json() -> None:
    blocker = JobView("2", "running", 4)
    run = a_run(2)
    found = decide(run, a_cluster(run, blocker, waits("7", 8)), QUEUE)
    text = json.dumps(decision_to_json(found), allow_nan=False)
    assert decision_from_json(text) == found
    assert decision_from_json(json.loads(text)) == found
    with pytest.raises(ValueError, match="not a decision"):
        decision_from_json({"action": "stay"})


def test_explained_in_plain_text() -> None:
    run = a_run(6)
    text = explain(decide(run, a_cluster(run, waits("7", 5)), QUEUE))
    assert "shrink (3 nodes)" in text
    assert any(line.startswith("*") and " 3 " in line for line in text.splitlines())
    assert text.isascii() or "±" in text


def test_long_tables_are_shown_in_short() -> None:
    run = a_run(6, sizes=tuple(range(1, 65)))
    found = decide(run, a_cluster(run, total=64), load_policy("schedule", {"at": "0=6", "dwell": 0}))
    shown = explain(found).splitlines()
    assert len(found.table) == 64
    rows = [line.strip("* ").split()[0] for line in shown if line[:1] in "* " and "ends in" not in line]
    assert rows == ["1", "…", "5", "6", "7", "…", "64"]


class Greedy:
    """A user's own policy: no rules, no name."""

    def __init__(self, want: int = 6) -> None:
        self.want = want

    def propose(self, situation: Situation) -> Proposal:
        return Proposal(self.want, "more")


class Wrong:
    def propose(self, situation: Situation) -> int:
        return 3


class WrongWithRules(Wrong):
    name, rules = "wrong", Rules()


class Failing:
    name, rules, moldable = "failing", None, True

    def propose(self, situation: Situation) -> Proposal:
        return Proposal(situation.row("three").nodes, "deep in somebody else's code")  # type: ignore[arg-type]


class Odd:
    name, rules = "odd", Rules()

    @property
    def moldable(self) -> bool:
        raise RuntimeError("not today")

    def may_change(self, *args: object) -> bool:
        raise RuntimeError("nor this")

    def propose(self, situation: Situation) -> Proposal:
        return Proposal(situation.run.nodes, "as it is")


def test_a_users_own_class() -> None:
    policy = load_policy(f"{__name__}:Greedy", {"dwell": 5, "want": 3})
    assert policy.rules == Rules(dwell=5)
    assert decide(a_run(2), a_cluster(a_run(2)), policy).nodes == 3
    beyond = load_policy(f"{__name__}:Greedy", {"want": 17})
    assert "not an allowed size" in decide(a_run(2), a_cluster(a_run(2)), beyond).reason
    with pytest.raises(PolicyError, match="returned 3"):
        decide(a_run(2), a_cluster(a_run(2)), load_policy(f"{__name__}:Wrong"))
    with pytest.raises(PolicyError, match="returned 3"):
        decide(a_run(2), a_cluster(a_run(2)), WrongWithRules())  # type: ignore[arg-type]
    failing = load_policy(f"{__name__}:Failing")
    assert failing.rules == Rules() and getattr(failing, "moldable", False), "of its own only what is none"
    with pytest.raises(PolicyError, match=r"failing failed \(.*test_decide\.py, line \d+\): .*TypeError: "):
        decide(a_run(2), a_cluster(a_run(2)), failing)


def test_odd_policies() -> None:
    assert is_moldable(load_policy("queue")) and not is_moldable(load_policy("static"))
    assert not is_moldable(Odd()) and not is_moldable(Wrong())
    jobs = Workload((Job(1, 0.0, 2, 100.0, 200.0, (1, 2), 2, 1.0),))
    with pytest.raises(PolicyError, match=r"the policy odd failed \(.*test_decide\.py, line \d+\): RuntimeError: nor"):
        simulate_malleable(jobs, 2, Launcher(Odd()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "options", "word"),
    [
        ("quue", {}, "there is no policy 'quue'; there are .*queue"),
        ("queue", {"dwel": 3}, "no option 'dwel'.*dwell"),
        ("queue", {"dwell": "soon"}, "not a number"),
        ("no.such.module:X", {}, "can't load"),
        ("json:JSONDecoder", {}, "no method propose"),
        ("json:nothing", {}, r"can't load.*json \(.*json/__init__.py\) has no nothing"),
        ("static", {"name": "x"}, "no option 'name'; options are"),
        ("queue", {"rules": "x"}, "no option 'rules'"),
    ],
)
def test_policies_that_cannot_be_had(spec: str, options: dict[str, Any], word: str) -> None:
    with pytest.raises(PolicyError, match=word):
        load_policy(spec, options)


def test_a_module_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"mine_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text("class Mine:\n    def propose(self, situation):\n        return None\n")
    (tmp_path / "broken_policy.py").write_text("1 / 0\n")
    before = list(sys.path)
    monkeypatch.setattr(sys, "path", list(before))
    assert load_policy(f"{name}:Mine").name == f"{name}:Mine"
    with pytest.raises(PolicyError, match="division by zero"):
        load_policy("broken_policy:Mine")
    assert sys.path[: len(before)] == before, "it hides nothing of others afterwards"
    lines = ("class Mine:", "    def propose(self, situation):", "        import late", "        return late.answer")
    (tmp_path / "wave.py").write_text("\n".join(lines))  # the name of a module of Python's own
    (tmp_path / "late.py").write_text("answer = 7\n")
    monkeypatch.chdir("/")
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    made: Any = load_policy("wave:Mine", folder=str(tmp_path))
    assert made.inner.propose(None) == 7
    monkeypatch.setattr(sys, "path", before)
    monkeypatch.delitem(sys.modules, "wave")


def test_a_package_may_offer_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = metadata.EntryPoint("greedy", f"{__name__}:Greedy", "dmr.policies")
    broken = metadata.EntryPoint("broken", "no.such.module:X", "dmr.policies")
    monkeypatch.setattr(metadata, "entry_points", lambda group: [entry, broken] if group == "dmr.policies" else [])
    assert {"greedy", "queue"} <= set(policy_names())
    assert decide(a_run(2), a_cluster(a_run(2)), load_policy("greedy", {"want": 4})).nodes == 4
    with pytest.raises(PolicyError, match=r"broken.*no\.such\.module:X"):
        load_policy("broken")


def test_static_stays() -> None:
    run = a_run(6)
    assert decide(run, a_cluster(run, waits("7", 5)), load_policy("static")).action == "stay"
