"""What must not happen whatever the surroundings do: second copies, endless repetitions, programs ended for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dmr.launcher.engines.engine import EngineError, JobInfo, Submission, SubmitRefused
from dmr.launcher.engines.local import LocalEngine
from dmr.launcher.engines.scheduler import Watcher
from dmr.launcher.run.history import read_history
from dmr.launcher.run.options import RunOptions
from dmr.launcher.run.requests import Requests, UserRequest
from dmr.launcher.run.rundir import Progress, RunDir, RunDirError
from dmr.launcher.supervise import account as account_module
from dmr.launcher.supervise import exits
from dmr.launcher.supervise import leave as leave_module
from dmr.launcher.supervise import owner as owner_module
from dmr.launcher.supervise.account import Account
from dmr.launcher.supervise.aftermath import Aftermath
from dmr.launcher.supervise.application import Application
from dmr.launcher.supervise.arrival import Arrival
from dmr.launcher.supervise.awake import LONGEST_GAP, AwakeClock
from dmr.launcher.supervise.begin import Claim, Refused, forget_claim, resume, resume_by_job
from dmr.launcher.supervise.changes import Changes
from dmr.launcher.supervise.console import QUIET, Console
from dmr.launcher.supervise.handover import Successors
from dmr.launcher.supervise.interrupts import Interrupts
from dmr.launcher.supervise.owner import lease_content
from dmr.launcher.supervise.patience import longest_start, start_patience
from dmr.launcher.supervise.place import Place
from dmr.launcher.supervise.plan import Plan
from dmr.launcher.supervise.release import Release
from dmr.launcher.supervise.supervisor import Supervisor
from dmr.resize.sizes import span_to_queue
from dmr.resize.view import ClusterView, JobView

ELSEWHERE = {"pid": 1, "born": 1, "host": "n7", "machine": "another machine"}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Scheduler(LocalEngine):
    """Takes jobs, and says of them what the test wants."""

    jobs: dict[str, JobInfo] = field(default_factory=dict)
    names: dict[str, JobInfo] = field(default_factory=dict)
    submitted: list[Submission] = field(default_factory=list)
    starts: dict[int, float] = field(default_factory=dict)
    asked: list[tuple[int, int]] = field(default_factory=list)
    updates: int = 0
    why: str = "none"
    can_submit = True
    no_shrink = None

    def __post_init__(self) -> None:
        super().__init__(4)

    def job(self, job: str) -> JobInfo:
        return self.jobs.get(job, JobInfo(job, "unknown", reason="no answer"))

    def find(self, name: str) -> JobInfo | None:
        return self.names.get(name)

    def foresee(self, submission: Submission) -> float | None:  # type: ignore[override]
        self.asked.append(submission.nodes)
        return self.starts.get(submission.nodes[1])

    def submit(self, submission: Submission) -> str:
        self.submitted.append(submission)
        return str(100 + len(self.submitted))

    def resize_pending(self, job: str, nodes: tuple[int, int]) -> None:
        self.updates += 1
        raise EngineError("BadConstraints")

    def ending(self) -> Any:
        return self.why


class Ranks:
    """Ranks that do nothing but run."""

    ended = ""

    def poll(self) -> int | None:
        return None

    def terminate(self) -> None:
        self.ended += "terminate "

    def kill(self) -> None:
        self.ended += "kill "


@dataclass
class Desk:
    """What a supervisor works with, without its loop."""

    folder: Path

    def __post_init__(self) -> None:
        self.run = RunDir.create(self.folder / "run", {"run": "r"})
        self.engine, self.clock, self.console, self.ranks = Scheduler(), Clock(), Console(QUIET), Ranks()
        sizes = (1, 2, 4, 8)
        options = RunOptions(run="r", command=("x",), folder=str(self.folder), sizes=sizes, after_handover="exit")
        account = Account(self.run, self.console, self.clock)
        assert self.run.take_lease(1, lease_content("t", "7", 0))
        account.open(1, "t")
        self.successors = Successors(self.run, "r", self.engine, self.console, account.record, self.clock)  # type: ignore[arg-type]
        place = Place(account, options, self.engine, self.console)  # type: ignore[arg-type]
        place.allocation = replace(place.allocation, job="7", end=self.clock.now + 10_000)
        watcher = Watcher(self.engine, 60.0, self.clock)  # type: ignore[arg-type]
        self.interrupts = Interrupts()
        self.changes = Changes(place, self.successors, watcher, Requests(self.run), self.interrupts)
        self.app = Application(
            self.run, 1, "t", 2, self.ranks, grace=60, next_id=account.next_control, clock=self.clock, awake=self.clock  # type: ignore[arg-type]
        )  # fmt: skip
        self.run.write_progress(Progress("r", 1, "t", "running", 0.0, step=5))
        assert self.app.look() and self.app.computing

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.clock.now += 0.2
            self.changes.turn(self.app)

    def wish(self, nodes: int) -> str:
        name = Requests(self.run).post("resize", nodes=nodes)
        self.changes.user_asks(self.app, UserRequest(name, "resize", nodes), "user")
        return name

    def answer(self, name: str) -> str:
        return str((Requests(self.run).answer_to(name) or {}).get("state"))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(Watcher, "poll", lambda self, wanted: False)
    yield Desk(tmp_path)


# -- second copies


def elsewhere(folder: Path, job: str = "7") -> RunDir:
    run = RunDir.create(folder / "run", {"run": "r"})
    assert run.take_lease(1, {**lease_content("old", job, 0), **ELSEWHERE})
    run.append(1, "launched", token="old", job=job, nodes=2)
    return run


def options_of(folder: Path) -> RunOptions:
    return RunOptions(run="r", command=("x",), folder=str(folder), sizes=(1, 2))


def test_an_engine_without_a_queue_does_not_declare_the_owners_job_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = elsewhere(tmp_path)
    told: list[object] = []

    class Watching:
        def __init__(self, run: RunDir, owner: object, engine: object, **more: object) -> None:
            told.append(engine)

        def decide(self) -> str:
            return "alive"

    monkeypatch.setattr("dmr.launcher.supervise.begin.OwnerWatch", Watching)
    with pytest.raises(Refused, match="is alive"):
        resume(run, options_of(tmp_path), LocalEngine(2), Console(QUIET))
    assert told == [None] and run.leases() == [1]


def test_a_job_that_the_scheduler_does_not_know_may_be_anothers(tmp_path: Path) -> None:
    run, clock, engine = elsewhere(tmp_path), Clock(), Scheduler(jobs={"7": JobInfo("7", "ended")})
    owner = owner_module.owner_of(run)
    assert owner is not None
    watch = owner_module.OwnerWatch(run, owner, engine, clock=clock)
    assert watch.life() == "unknown"
    clock.now += owner_module.FORGOTTEN + 1
    assert watch.life() == "dead"


def test_resume_finds_the_successor_whose_submission_was_not_answered(tmp_path: Path) -> None:
    run = elsewhere(tmp_path)
    run.append(1, "submitted", token="s", successor=2, job=None, name="dmr:r:2:s", nodes=[4, 4])
    engine = Scheduler(names={"dmr:r:2:s": JobInfo("8", "pending")})
    with pytest.raises(Refused, match="job 8 is pending"):
        resume_by_job(run, options_of(tmp_path), engine, Console(QUIET))
    assert engine.submitted == [] and run.leases() == [1]


def test_resume_submits_nothing_while_the_successors_fate_is_unknown(tmp_path: Path) -> None:
    run = elsewhere(tmp_path)
    run.append(1, "submitted", token="s", successor=2, job="8", name="dmr:r:2:s", nodes=[4, 4])
    engine = Scheduler()
    with pytest.raises(EngineError, match="does not answer"):
        resume_by_job(run, options_of(tmp_path), engine, Console(QUIET))
    assert engine.submitted == [] and run.leases() == [1]


def test_a_successor_that_a_resume_has_overtaken_knows_it(tmp_path: Path) -> None:
    run = elsewhere(tmp_path)
    run.append(1, "submitted", token="s", successor=2, job="8", name="dmr:r:2:s", nodes=[4, 4])
    run.append(1, "ended", why="stopped")
    engine = Scheduler(jobs={"8": JobInfo("8", "ended", outcome="cancelled")})
    resume_by_job(run, options_of(tmp_path), engine, Console(QUIET))
    turn = Arrival(run, engine, Console(QUIET), "s", 2, job="8").step()  # type: ignore[arg-type]
    assert turn is not None and turn.verdict == "unwanted"


def test_a_claim_that_a_job_inherited_is_not_its_own(tmp_path: Path) -> None:
    run = elsewhere(tmp_path)
    claim = Claim(run, 2, "s")
    assert claim.belongs_to("8"), "the answer to the submission may be missing"
    run.append(1, "submitted", token="s", successor=2, job="8", name="dmr:r:2:s", nodes=[4, 4])
    assert claim.belongs_to("8") and not claim.belongs_to("9")
    environ = {"DMR_RUN_DIR": "r", "DMR_GENERATION": "2", "DMR_TOKEN": "s", "DMR_TASKS_PER_NODE": "3", "DMR_KEEP": "4"}
    forget_claim(environ)
    assert environ == {"DMR_KEEP": "4"}


@pytest.mark.parametrize(("why", "verdict"), [("finished", "done"), ("crashed", "go")])
def test_a_run_that_has_finished_is_not_run_again_by_a_requeue(tmp_path: Path, why: str, verdict: str) -> None:
    run = elsewhere(tmp_path)
    run.append(1, "ended", why=why)
    turn = Arrival(run, Scheduler(), Console(QUIET), "old", 1, job="7", restarts=1).step()  # type: ignore[arg-type]
    assert turn is not None and turn.verdict == verdict


# -- repetitions


def test_a_successor_that_a_user_cancelled_is_not_submitted_again_at_once(desk: Desk) -> None:
    name = desk.wish(4)
    desk.turns(3)
    assert len(desk.engine.submitted) == 1
    desk.engine.jobs["101"] = JobInfo("101", "ended", outcome="cancelled")
    desk.successors.see(ClusterView(0.0, 8, 0))
    desk.turns(20)
    assert len(desk.engine.submitted) == 1 and desk.answer(name) == "refused"


def test_growth_that_the_scheduler_says_has_to_wait_is_not_asked_for(desk: Desk) -> None:
    """Six nodes are idle, but four can't be had for 500 s: a reservation, say. The table tells."""
    desk.changes.place.allocation = replace(desk.changes.place.allocation, nodes=("a", "b"), job="7")
    desk.engine.starts[4] = desk.clock.now + 500
    desk.changes.options = replace(desk.changes.options, sizes=(1, 2, 4))
    view = ClusterView(desk.clock.now, 8, 6, (JobView("7", "running", 2, end=11_000.0, run="r"),))
    desk.clock.now += 100
    desk.run.write_progress(Progress("r", 1, "t", "running", 0.0, step=500, steps=10_000, seconds_per_step=1.0))
    assert desk.app.look()
    found = desk.changes.decide(desk.app, view)
    assert found is not None and desk.engine.asked == [(4, 4)]
    assert found.action == "stay" and "can't be had for 400 s" in found.table[-1].reason


def test_a_change_that_is_refused_is_not_asked_for_in_every_turn(desk: Desk) -> None:
    desk.wish(4)
    desk.turns(1)
    name = desk.wish(8)
    desk.turns(20)
    assert desk.engine.updates == 1 and desk.answer(name) == "refused"


def test_a_save_that_fails_is_not_asked_for_in_every_turn(desk: Desk) -> None:
    desk.wish(4)
    desk.turns(1)
    token = desk.engine.submitted[0].token
    desk.run.append(2, "started", claimant=token, token=token, job="101", nodes=4)
    desk.turns(5)
    assert desk.changes.plan is not None and desk.changes.plan.kind == "handover"
    asked = desk.app.control
    desk.app.forget_request()
    desk.changes.failed("no space left")
    desk.turns(20)
    assert desk.app.control is asked
    desk.clock.now += 20
    desk.turns(1)
    assert desk.app.control is not asked and desk.changes.plan is not None


def test_nothing_is_saved_for_a_successor_that_has_gone_again(desk: Desk) -> None:
    desk.wish(4)
    desk.turns(1)
    token = desk.engine.submitted[0].token
    desk.run.append(2, "started", claimant=token, token=token, job="101", nodes=4)
    desk.run.append(2, "cancelled", claimant=token, token=token, job="101", reason="scancel", by="successor")
    desk.turns(5)
    assert desk.app.control is None and desk.changes.plan is None and desk.successors.current is None
    assert len(desk.engine.submitted) == 1


# -- a run directory that can't be written


def full(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: RunDir, control: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunDir, "write_control", refuse)


def test_a_request_that_cannot_be_written_leaves_the_program_in_peace(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    full(desk, monkeypatch)
    name = desk.wish(1)
    desk.turns(3)
    assert desk.changes.plan is None and desk.ranks.ended == "" and desk.answer(name) == "refused"


def test_a_program_that_has_to_leave_is_told_by_a_signal_then(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    full(desk, monkeypatch)
    desk.changes.leave(desk.app, Plan("stop", 2, "user", "stopped", "stopped"))
    assert desk.ranks.ended == "terminate " and desk.changes.plan is not None


def test_leases_that_cannot_be_listed_for_a_moment_end_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(self: RunDir) -> list[int]:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(RunDir, "leases", stale)
    desk.changes.account.refuse_fence()


def test_a_lease_is_tried_for_again_and_then_it_says_what_to_do(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []
    take = RunDir.take_lease

    def after_two(self: RunDir, number: int, content: Any) -> bool:
        tries.append(number)
        if len(tries) < 3:
            raise OSError(28, "No space left on device")
        return take(self, number, content)

    monkeypatch.setattr(account_module, "WRITE_PAUSE", 0.0)
    monkeypatch.setattr(RunDir, "take_lease", after_two)
    desk.changes.account.next_generation("7")
    assert tries == [2, 2, 2] and desk.changes.account.number == 2
    monkeypatch.setattr(account_module, "WRITE_TRIES", 2)
    tries.clear()
    with pytest.raises(RunDirError, match="dmr resume"):
        desk.changes.account.next_generation("7")


# -- signals and clocks


@pytest.mark.parametrize(("why", "released"), [("limit", True), ("preempted", True), ("cancelled", False)])
def test_a_signal_of_the_time_limit_during_a_handover_stops_no_run(desk: Desk, why: str, released: bool) -> None:
    desk.wish(4)
    desk.turns(1)
    assert desk.successors.current is not None
    desk.engine.why = why
    desk.interrupts.signal, desk.interrupts.count = 15, 1
    status = Release(desk.changes).hand_over()
    assert any(each["event"] == "released" for each in desk.run.events()) == released
    assert (status is not None) == released


def test_the_program_is_asked_before_the_scheduler(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(Scheduler, "submit", lambda self, submission: seen.append(desk.app.control) or "101")
    desk.changes.leave_for_limit(desk.app)
    assert seen == [desk.app.control] and desk.app.control is not None
    assert desk.successors.current is not None and desk.successors.current.after == desk.changes.place.job


MOLDABLE = SimpleNamespace(moldable=True)


class Odd:
    """A policy of a user's own whose attribute is none."""

    @property
    def moldable(self) -> bool:
        raise RuntimeError("not today")


@pytest.mark.parametrize(
    ("policy", "asked"),
    [
        (MOLDABLE, (1, 4)), (None, (1, 4)), (SimpleNamespace(), (2, 2)), (Odd(), (2, 2)),
        (SimpleNamespace(moldable=lambda: True), (2, 2)),
    ],
)  # fmt: skip
def test_at_the_time_limit_a_run_asks_for_a_range_of_sizes_where_its_policy_may_choose(
    desk: Desk, policy: Any, asked: tuple[int, int]
) -> None:
    desk.changes.policy = policy
    desk.changes.leave_for_limit(desk.app)
    (submitted,) = desk.engine.submitted
    assert (submitted.nodes, submitted.after) == (asked, "7")
    assert desk.app.control is not None and desk.app.control.nodes == 2


def test_a_size_that_the_user_waits_for_is_asked_for_at_the_time_limit(desk: Desk) -> None:
    desk.changes.policy = MOLDABLE  # type: ignore[assignment]
    name = desk.wish(8)
    desk.changes.leave_for_limit(desk.app)
    (submitted,) = desk.engine.submitted
    assert (submitted.nodes, submitted.after) == ((8, 8), "7")
    assert desk.answer(name) == "accepted"
    assert Release(desk.changes).hand_over() == 0
    assert desk.answer(name) == "done"


def test_a_wish_is_not_done_by_a_successor_of_another_size(desk: Desk) -> None:
    desk.changes.policy = MOLDABLE  # type: ignore[assignment]
    desk.changes.leave_for_limit(desk.app)
    name = desk.wish(8)
    assert Release(desk.changes).hand_over() == 0
    answer = Requests(desk.run).answer_to(name) or {}
    assert answer["state"] == "refused" and "job 101 goes on with 1 to 4 nodes instead" in str(answer)


@pytest.mark.parametrize("why", ["limit", "preempted", "requeued"])
def test_a_stop_stands_when_the_scheduler_takes_the_job_away_as_well(desk: Desk, why: str) -> None:
    supervisor = Supervisor(desk.run, desk.changes.options, desk.engine, desk.console)  # type: ignore[arg-type]
    supervisor.changes, supervisor.interrupts, supervisor.place = desk.changes, desk.interrupts, desk.changes.place
    supervisor.successors, supervisor.account = desk.successors, desk.changes.account
    supervisor._stop(desk.app, by="user", now=False, within=None)
    first = desk.app.control
    desk.engine.why = why
    desk.interrupts.signal, desk.interrupts.count = 15, 1
    supervisor._obey_signals(desk.app)
    assert desk.engine.submitted == [] and desk.changes.plan is not None and desk.changes.plan.kind == "stop"
    again = desk.app.control
    assert first is not None and again is not None and again.action == first.action == "stop"
    assert again.deadline < first.deadline, "there is less time for it"


def test_a_size_that_the_user_chose_is_kept_at_the_time_limit(desk: Desk) -> None:
    desk.changes.policy = MOLDABLE  # type: ignore[assignment]
    desk.run.append(1, "launched", token="a", job="7", nodes=4)
    desk.run.append(1, "requested", id=1, action="resize", nodes=2, by="user ann")
    desk.run.append(2, "launched", token="a", job="7", nodes=2)
    desk.changes.account.reread()
    desk.changes.leave_for_limit(desk.app)
    assert [each.nodes for each in desk.engine.submitted] == [(2, 2)]


def test_a_range_that_is_refused_at_the_time_limit_leaves_the_size(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = Scheduler.submit

    def no_range(self: Scheduler, submission: Submission) -> str:
        if submission.nodes[0] != submission.nodes[1]:
            raise SubmitRefused("more nodes than this account may have")
        return submit(self, submission)

    monkeypatch.setattr(Scheduler, "submit", no_range)
    desk.changes.policy = MOLDABLE  # type: ignore[assignment]
    desk.changes.leave_for_limit(desk.app)
    assert [each.nodes for each in desk.engine.submitted] == [(2, 2)]
    assert desk.successors.current is not None and desk.successors.current.job == "101"


def test_a_policy_that_is_gone_leaves_the_size(desk: Desk) -> None:
    desk.changes.options = desk.changes.queueing.options = replace(desk.changes.options, policy="gone:Policy")
    desk.changes.leave_for_limit(desk.app)
    assert [each.nodes for each in desk.engine.submitted] == [(2, 2)]


@pytest.mark.parametrize(("within", "patient"), [(None, True), (20.0, False)])
def test_before_the_limit_a_step_under_way_is_waited_for(desk: Desk, within: float | None, patient: bool) -> None:
    """The clock alone has time until the limit comes; the scheduler's signal has not."""
    desk.changes.leave_for_limit(desk.app, within)
    desk.clock.now += 1000.0
    desk.app.watch_deadlines(5.0)
    assert ("kill" in desk.ranks.ended) == (not patient)


@pytest.mark.parametrize(("steps", "whole"), [(5, False), (0, True)])
def test_a_limit_that_was_cut_too_short_for_a_step_is_not_cut_again(desk: Desk, steps: int, whole: bool) -> None:
    desk.run.write_progress(Progress("r", 1, "t", "running", 1.0, step=5 + steps))
    desk.app.first_step = 5
    assert desk.app.look()
    desk.changes.leave_for_limit(desk.app)
    assert [each.whole for each in desk.engine.submitted] == [whole]


@pytest.mark.parametrize(("nodes", "whole"), [(4, True), (1, False)])
def test_growth_asks_for_the_limit_that_was_counted_on(desk: Desk, nodes: int, whole: bool) -> None:
    desk.engine.no_shrink = "not here"  # type: ignore[assignment]
    assert desk.changes._change(desk.app, nodes, "policy queue", "nodes are idle", 300.0)
    (submitted,) = desk.engine.submitted
    assert (submitted.nodes, submitted.limit, submitted.whole) == ((nodes, nodes), 300.0, whole)


@pytest.mark.parametrize(("sizes", "held", "span"), [
    ((2, 4, 8, 16, 32), 2, (2, 8)), ((2, 4, 8, 16, 32), 32, (2, 32)), ((3,), 3, (3, 3)), ((4, 8), 2, (2, 8)),
    ((1, 2, 3, 5), 3, (1, 3)),
])
def test_a_run_queues_again_for_no_wide_range(sizes: tuple[int, ...], held: int, span: tuple[int, int]) -> None:
    assert span_to_queue(sizes, held) == span


def test_a_time_limit_that_was_changed_is_known_with_the_next_view(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, watcher = desk.changes.place, desk.changes.watcher
    desk.clock.now += 1000.0
    watcher.view = ClusterView(0.0, 8, 0, jobs=(JobView("7", "running", 2, end=desk.clock.now + 50.0),))
    monkeypatch.setattr(Watcher, "poll", lambda self, wanted: True)
    desk.turns(1)
    assert place.allocation.end == desk.clock.now - 0.2 + 50.0
    assert desk.changes.plan is not None and desk.changes.plan.why == "time limit"


def test_ranks_that_find_out_first_leave_nothing_for_a_launcher_to_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDir.create(tmp_path / "run", {"run": "r"})
    assert run.take_lease(1, lease_content("t", "7", 0))
    run.append(1, "submitted", token="s", successor=2, job="8", name="dmr:r:2:s", nodes=[4, 4])

    class Refusing(Ranks):
        def poll(self) -> int:
            if run.take_lease(2, lease_content("s", "8", 0)):
                run.claim_failure(1, {"kind": "user", "text": "generation 2 has taken over"})
            return 1

    def start(place: Place, nodes: int, cause: str, *, may_fail: bool) -> Application:
        return Application(run, 1, "t", nodes, Refusing(), grace=60, next_id=lambda: 1)  # type: ignore[arg-type]

    monkeypatch.setattr(Place, "start", start)
    status = Supervisor(run, options_of(tmp_path), Scheduler(), Console(QUIET)).run(1, "t", "fresh")  # type: ignore[arg-type]
    assert status == exits.FENCED
    assert not any(each["event"] in ("cancelled", "ended") for each in run.events())


@pytest.mark.parametrize(
    ("lease", "cancels"),
    [
        (lease_content("s", "8", 0), True),
        (lease_content("s", None, 0, queued=True), True),
        (lease_content("s", "7", 1), False),  # this very job, started again: to cancel it would end the run
        (lease_content("s", None, 0), False),  # by hand, maybe within this job
    ],
)
@pytest.mark.parametrize("after", ["cancel", "exit"])
def test_a_fenced_launcher_ends_its_job_only_where_the_run_is_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lease: dict[str, Any], cancels: bool, after: str
) -> None:
    run = RunDir.create(tmp_path / "run", {"run": "r"})
    assert run.take_lease(1, lease_content("t", "7", 0)) and run.take_lease(2, lease)
    options = replace(options_of(tmp_path), after_handover=after)
    engine = Scheduler(jobs={"7": JobInfo("7", "ended")})
    cancelled: list[str] = []
    monkeypatch.setattr(Scheduler, "cancel", lambda self, job: cancelled.append(job))
    monkeypatch.setattr("dmr.launcher.supervise.leave.SECONDS_TO_END", 0.0)
    supervisor = Supervisor(run, options, engine, Console(QUIET))  # type: ignore[arg-type]
    supervisor.place.allocation = replace(supervisor.place.allocation, job="7")
    monkeypatch.setattr(Supervisor, "_generations", lambda self, step: self.account.refuse_fence(now=True))
    assert supervisor.run(1, "t", "fresh") == exits.FENCED
    assert cancelled == (["7"] if cancels and after == "cancel" else [])


class Deaf(Scheduler):
    """Does not answer a cancellation, as often as told."""

    refuses = 9

    def cancel(self, job: str) -> None:
        self.updates += 1
        if self.updates <= self.refuses:
            raise EngineError("the scancel was ended by what it did")


@pytest.mark.parametrize(
    ("refuses", "info", "status", "tries"),
    [
        (9, JobInfo("7", "ended"), exits.UNFINISHED, 1),  # it outlives its job, and nobody is there to end it
        (9, JobInfo("7", "running"), exits.UNFINISHED, leave_module.TRIES),
        (9, JobInfo("7", "unknown"), exits.UNFINISHED, leave_module.TRIES),
        (2, JobInfo("7", "running"), exits.of_signal(15), 3),
    ],
)
def test_a_job_that_can_not_be_cancelled_yet_is_tried_again_while_it_lives(
    monkeypatch: pytest.MonkeyPatch, refuses: int, info: JobInfo, status: int, tries: int
) -> None:
    engine, interrupts = Deaf(jobs={"7": info}), Interrupts()
    engine.refuses = refuses
    clock = Clock()

    def sleep(seconds: float) -> None:
        clock.now += 1.0
        if engine.updates > refuses:  # Slurm's answer to the scancel that it took
            interrupts.signal, interrupts.count = 15, 1

    monkeypatch.setattr(leave_module, "time", SimpleNamespace(monotonic=clock, sleep=sleep))
    assert leave_module.leave_job(engine, "7", "cancel", Console(QUIET), interrupts) == status  # type: ignore[arg-type]
    assert engine.updates == tries


def test_a_launcher_that_is_to_exit_cancels_nothing() -> None:
    engine = Deaf()
    assert leave_module.leave_job(engine, "7", "exit", Console(QUIET), Interrupts()) == exits.FINISHED  # type: ignore[arg-type]
    assert leave_module.leave_job(engine, None, "cancel", Console(QUIET), Interrupts()) == exits.FINISHED  # type: ignore[arg-type]
    assert engine.updates == 0


def test_ranks_that_never_start_are_not_tried_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDir.create(tmp_path / "run", {"run": "r"})
    assert run.take_lease(1, lease_content("t", None, 0))

    class Falling(Ranks):
        def poll(self) -> int:
            return 139

    def start(place: Place, nodes: int, cause: str, *, may_fail: bool) -> Application:
        account = place.account
        account.launched = True
        account.record("launched", token=account.token, job=None, nodes=nodes, cause=cause)
        account.reread()
        (run.folder / "signs" / f"{account.number:04d}.{account.token}").touch()
        return Application(run, account.number, account.token, nodes, Falling(), grace=60, next_id=lambda: 1)  # type: ignore[arg-type]

    monkeypatch.setattr(Place, "start", start)
    pauses: list[float] = []
    monkeypatch.setattr(Aftermath, "_pause", lambda self, seconds: pauses.append(seconds))
    options = replace(options_of(tmp_path), learn=False)
    status = Supervisor(run, options, LocalEngine(2), Console(QUIET)).run(1, "t", "fresh")
    assert (status, pauses) == (139, [2.0, 4.0])
    ends = [each["why"] for each in run.events() if each["event"] == "ended"]
    assert ends == ["not started"] * 2 + ["failed"]


def test_time_in_which_nobody_was_awake_does_not_count() -> None:
    steady = Clock()
    clock = AwakeClock(steady)
    for _ in range(10):
        steady.now += 2.0
        clock()
    assert clock() == 20.0
    steady.now += 7200.0  # suspended
    assert clock() == 20.0 + LONGEST_GAP


def test_a_suspended_program_is_not_hung(desk: Desk) -> None:
    steady = Clock()
    app = Application(
        desk.run, 1, "t", 2, desk.ranks, grace=60, next_id=lambda: 1, clock=desk.clock, awake=AwakeClock(steady)  # type: ignore[arg-type]
    )  # fmt: skip
    assert app.look()
    desk.clock.now += 7200.0  # the time of day leaps, too
    steady.now += 7200.0
    assert app.hung_for(600.0) is None
    for _ in range(61):
        steady.now += 10.0
        app.watch_deadlines(30.0)
    assert app.hung_for(600.0) is not None


def test_patience_with_a_start_is_what_is_known_of_starts() -> None:
    assert start_patience(None, None, None) == 1800.0
    assert start_patience(None, None, 5.0) == 600.0
    assert start_patience(None, None, 60.0) == 1200.0
    assert start_patience(None, 10.0, 60.0) == 120.0
    assert start_patience(None, 0.0, 60.0) == 0.0
    assert (start_patience(7.0, 0.0, 60.0), start_patience(0.0, 10.0, 60.0)) == (7.0, 0.0)


def test_the_longest_start_is_that_of_all_generations(desk: Desk) -> None:
    assert longest_start(read_history(desk.run.events()).generations) is None
    for number, (launch, load) in enumerate([(2.0, None), (3.0, 4.0), (5.0, 1.0)], start=1):
        desk.run.append(number, "launched", token="t", nodes=1, cause="fresh")
        desk.run.append(number, "loaded", launch=launch, load=load, step=0)
    assert longest_start(read_history(desk.run.events()).generations) == 7.0


def test_silence_at_the_start_is_a_hang_only_of_a_program_that_is_known_to_speak(desk: Desk) -> None:
    app = Application(
        desk.run, 2, "u", 2, desk.ranks, grace=60, next_id=lambda: 1, clock=desk.clock, awake=desk.clock  # type: ignore[arg-type]
    )  # fmt: skip
    desk.clock.now += 1000.0
    assert app.silent_at_start(False, 900.0) is None
    assert app.silent_at_start(True, 900.0) == 1000.0
    assert app.silent_at_start(True, 1100.0) is None
    assert app.silent_at_start(True, 0.0) is None
    signs = desk.run.folder / "signs"
    signs.mkdir(exist_ok=True)
    (signs / "0002.u").touch()
    assert app.silent_at_start(False, 900.0) == 1000.0
    (signs / "0002.u.ended").touch()
    assert app.silent_at_start(False, 900.0) is None


def test_an_awake_clock_that_goes_back_stands_still() -> None:
    steady = Clock()
    clock = AwakeClock(steady)
    steady.now -= 100.0
    assert clock() == 0.0
