from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dmr.resize.decide import decide
from dmr.resize.phases.plan import Part, plan
from dmr.resize.policies.phases import Known, Phases
from dmr.resize.policy import PolicyError, load_policy
from dmr.resize.record import run_from_json, run_to_json
from dmr.resize.situation import Rules, Situation
from dmr.resize.view import Ahead, ClusterView, Costs, JobView, Rate, RunView

SERIAL = {"mesh": 0.2, "solve": 0.002, "write": 0.9}
AHEAD = (Ahead("mesh", 0, 200), Ahead("solve", 200, 1200), Ahead("write", 1200, 1300))


def seconds(phase: str, nodes: int) -> float:
    return SERIAL[phase] + (1 - SERIAL[phase]) / nodes


def rates(*sizes: int, phases: tuple[str, ...] = ("mesh", "solve", "write")) -> tuple[Rate, ...]:
    return tuple(Rate(size, seconds(phase, size), 50, phase) for phase in phases for size in sizes)


def view(**changes: Any) -> RunView:
    made = {
        "time": 1000.0, "run": "r", "generation": 1, "nodes": 8, "sizes": (1, 2, 4, 8, 16), "since": 0.0, "step": 10,
        "steps": 1300, "job": "1", "phase": "mesh", "earlier": rates(2, 4, 8), "ahead": AHEAD, "first_nodes": 8,
        "costs": Costs(1.0, 2.0, 1.0), **changes,
    }  # fmt: skip
    return RunView(**made)


def cluster(idle: int = 24, jobs: tuple[JobView, ...] = ()) -> ClusterView:
    return ClusterView(1000.0, 32, idle, (JobView("1", "running", 8, end=1e5), *jobs))


POLICY = Phases(slower=1.0, rules=Rules(dwell=0.0))


def test_the_present_phase_gets_what_the_plan_says() -> None:
    found = decide(view(), cluster(), POLICY)
    assert found.action == "shrink" and found.nodes < 8
    assert found.facts["for_phase"] == "mesh" and "solve on 16" in str(found.facts["plan"])


def test_the_coming_phase_is_asked_for_ahead_by_the_time_it_takes() -> None:
    # solve wants 16, and a job of that size waits for 30 s as a rule: with the change 34 s.
    waits = ((16, 30.0),)
    run = view(phase="mesh", nodes=4, waits=waits, step=20, sizes=(4, 8, 16))
    per_step = seconds("mesh", 4)
    early = decide(replace(run, step=200 - round(50 / per_step)), cluster(), POLICY)
    assert early.action == "stay" and early.facts["next_phase"] == "solve"
    assert early.facts["lead"] == pytest.approx(34) and early.facts["next_in"] == pytest.approx(50, abs=1)
    assert early.again == pytest.approx(16, abs=1), "asked again when it is time"
    late = decide(replace(run, step=200 - round(33 / per_step)), cluster(), POLICY)
    assert late.action == "expand" and late.nodes == 16 and late.facts["for_phase"] == "solve"
    waiting = decide(replace(run, step=190, pending=16, pending_job="2"), cluster(), POLICY)
    assert waiting.action == "stay" and "waits already" in waiting.reason


def test_a_shrink_and_growth_in_place_wait_for_the_phase_itself() -> None:
    run = view(nodes=16, phase="solve", step=1190, rates=rates(16, phases=("solve",)) * 15, started=940.0)
    found = decide(run, cluster(), POLICY)
    assert found.action == "stay" and found.facts["next_phase"] == "write"
    found = decide(replace(run, phase="write", step=1201), cluster(), POLICY)
    assert found.action == "shrink" and found.nodes <= 2
    found = decide(view(nodes=4, phase="mesh", step=195, in_place=True), cluster(), POLICY)
    assert found.action == "stay" and found.again is not None


def test_a_phase_that_is_nearly_over_is_not_served_any_more() -> None:
    found = decide(view(nodes=8, phase="write", step=1297), cluster(), POLICY)
    assert found.action == "stay"


def test_a_successor_that_the_plan_does_not_want_is_given_up() -> None:
    found = decide(view(nodes=16, phase="solve", step=400, pending=4, pending_job="2"), cluster(), POLICY)
    assert found.action == "cancel"


def test_what_was_gained_so_far_may_be_spent_and_what_was_lost_is_lost() -> None:
    run = view(step=210, phase="solve", nodes=8, rates=rates(8, phases=("mesh",)), started=990.0, node_hours=0.01)
    seconds_, hours = Known(run).spare(8, 1.0, 1.0)
    assert seconds_ == pytest.approx(50 * seconds("mesh", 8) - (10 - 2))
    assert hours == pytest.approx(8 * 50 * seconds("mesh", 8) - 36)
    assert Known(replace(run, started=900.0)).spare(8, 1.0, 1.0)[0] == 0.0
    assert Known(replace(run, rates=(Rate(8, 1.0, 5, None),))).spare(8, 1.0, 1.0) == (0.0, 0.0)


def test_a_phase_of_which_one_size_is_known_is_tried_at_another() -> None:
    unknown = view(earlier=rates(8))
    smaller = decide(unknown, cluster(), POLICY)
    assert smaller.action == "shrink" and smaller.nodes == 4 and "to see how mesh scales" in smaller.reason
    larger = decide(unknown, cluster(), Phases(aim="time", rules=Rules(dwell=0.0)))
    assert larger.action == "expand" and larger.nodes == 16
    measuring = decide(replace(unknown, nodes=4), cluster(), POLICY)
    assert measuring.action == "stay" and "measuring mesh on 4" in measuring.reason and measuring.again == 2.0
    short = decide(replace(unknown, step=190), cluster(), POLICY)
    assert short.action == "stay" and "too short for a trial" in short.reason


def test_a_size_that_was_had_early_is_not_given_back_before_its_phase() -> None:
    # The successor for solve came at once, and mesh has some steps left.
    run = view(phase="mesh", nodes=16, step=192)
    found = decide(run, cluster(), POLICY)
    assert found.action == "stay" and "solve on 16" in str(found.facts["plan"])


def test_a_phase_that_the_program_has_not_ended_yet_changes_nothing() -> None:
    found = decide(view(phase="mesh", step=201), cluster(), POLICY)
    assert found.action == "stay" and "about to end" in found.reason


def test_nothing_known_is_the_queue_policy() -> None:
    for run in (view(ahead=()), view(phase="other"), view(ahead=AHEAD[1:])):
        found = decide(run, cluster(), POLICY)
        assert "the phases to come are not known" in found.reason


def test_forecasts_that_are_not_trusted_are_not_used() -> None:
    doubtful = tuple(replace(each, confidence=0.1) for each in AHEAD)
    found = decide(view(ahead=doubtful, nodes=16), cluster(), POLICY)
    assert "solve" not in str(found.facts.get("plan"))


def test_sizes_far_beyond_what_was_measured_are_not_planned_with() -> None:
    known = Known(view(earlier=rates(8, 16), sizes=(1, 2, 4, 8, 16, 64, 128)))
    assert known.reach("solve", (1, 2, 4, 8, 16, 64, 128)) == (2, 4, 8, 16, 64)
    assert known.seconds("solve", 64) > seconds("solve", 64), "and with caution where they are"  # type: ignore[operator]


def test_caveats_are_said() -> None:
    found = decide(view(caveats=("from another input (small)",)), cluster(), POLICY)
    assert found.facts["caveats"] == "from another input (small)"


def test_the_aim_may_be_time() -> None:
    found = decide(view(nodes=8, phase="solve", step=300), cluster(), Phases(aim="time", rules=Rules(dwell=0.0)))
    assert "solve on 16" in str(found.facts["plan"])
    assert load_policy("phases", {"aim": "time", "slower": "1.05", "dwell": "5"}).rules.dwell == 5.0
    with pytest.raises(PolicyError, match="neither"):
        load_policy("phases", {"aim": "money"})


def test_time_is_not_bought_with_more_node_hours() -> None:
    parts = [Part("solve", 1000), Part("write", 400)]
    found = plan(parts, (2, 4, 8, 16), seconds, 8, change=lambda size: 2.0, aim="time")
    assert found is not None
    assert found.node_hours <= found.base_node_hours and found.seconds < found.base_seconds
    spent = plan(parts, (2, 4, 8, 16), seconds, 8, change=lambda size: 2.0, aim="time", spare_node_seconds=-1e9)
    assert spent is not None and spent.node_hours == pytest.approx(min(spent.node_hours, found.node_hours))


def test_the_view_survives_json() -> None:
    run = view(caveats=("a",))
    assert run_from_json(run_to_json(run)) == run


def test_lead_counts_the_wait_for_room() -> None:
    busy = cluster(idle=0, jobs=(JobView("2", "running", 24, end=1500.0),))
    assert POLICY.lead(Situation(view(), busy, POLICY.rules), 16) == pytest.approx(500 + 4)
    assert POLICY.lead(Situation(view(), busy, POLICY.rules), 4) == pytest.approx(4)
