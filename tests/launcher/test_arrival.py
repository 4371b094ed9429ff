"""When a successor may take over: the rules, on a real run directory, with a scheduler that answers as told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dmr.launcher.engines.engine import JobInfo
from dmr.launcher.run.identity import identity
from dmr.launcher.run.rundir import LauncherState, RunDir
from dmr.launcher.supervise import arrival as arrival_module
from dmr.launcher.supervise import owner as owner_module
from dmr.launcher.supervise.arrival import Arrival
from dmr.launcher.supervise.begin import own_claim
from dmr.launcher.supervise.console import QUIET, Console
from dmr.launcher.supervise.owner import Owner, OwnerWatch, lease_content, owner_of

ELSEWHERE = {"pid": 1, "born": 1, "host": "n7", "machine": "another machine"}


@dataclass
class Told:
    """A scheduler that says what the test wants of each job."""

    jobs: dict[str, JobInfo] = field(default_factory=dict)

    def job(self, job: str) -> JobInfo:
        return self.jobs.get(job, JobInfo(job, "unknown"))


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


class Scene:
    """A run in job 7 whose launcher's fate the test decides, and its successor in job 8."""

    def __init__(self, folder: Path) -> None:
        self.run = RunDir.create(folder / "run", {"run": "r"})
        self.clock, self.scheduler = Clock(), Told()
        self.arrival = self.arrive("new", 2, "8")

    def arrive(self, token: str, number: int, job: str, restarts: int = 0) -> Arrival:
        return Arrival(
            self.run, self.scheduler, Console(QUIET), token, number, job=job, restarts=restarts, clock=self.clock,  # type: ignore[arg-type]
        )  # fmt: skip

    def own(self, number: int, who: dict[str, Any], token: str = "old", job: str = "7", **more: Any) -> None:
        assert self.run.take_lease(number, {**lease_content(token, job, 0), **who, **more})
        self.run.append(number, "launched", token=token, job=job, nodes=1)

    def submitted(self, number: int = 1, token: str = "new") -> None:
        self.run.append(number, "submitted", token=token, successor=number + 1, job="8", name="x", nodes=[2, 2])

    def verdict(self, seconds: float = 0.0, every: float = 1.0) -> str | None:
        """Let time pass; returns the verdict, None when there is none yet."""
        end = self.clock.now + seconds
        while (turn := self.arrival.step()) is None and self.clock.now < end:
            self.clock.now += every
        return turn.verdict if turn else None


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture
def dead() -> Iterator[dict[str, Any]]:
    """The identity of a process of this machine that is gone."""
    process = subprocess.Popen([sys.executable, "-c", "pass"], stdin=subprocess.DEVNULL)
    gone = {**identity(), "pid": process.pid, "born": 12345}
    process.wait()
    yield gone


def test_it_waits_while_the_owner_lives_and_has_not_released(scene: Scene) -> None:
    scene.own(1, identity())
    scene.submitted()
    assert scene.verdict(seconds=3000, every=50) is None
    assert scene.verdict(seconds=4000, every=50) == "unwanted"  # and not for ever


def test_it_takes_over_what_was_released_to_it(scene: Scene) -> None:
    scene.own(1, identity())
    scene.submitted()
    scene.run.append(1, "released", token="somebody else")
    assert scene.verdict(20) is None
    scene.run.append(1, "released", token="new")
    assert scene.verdict() == "go"
    assert scene.run.leases() == [1, 2]


def test_it_is_one_lease_further_when_the_owner_started_again_meanwhile(scene: Scene) -> None:
    scene.own(1, identity())
    scene.submitted()
    scene.own(2, identity(), token="old again")
    scene.run.append(1, "released", token="new")  # of a generation that is no owner any more
    assert scene.verdict(20) is None
    scene.run.append(2, "released", token="new")
    turn = scene.arrival.step()
    assert turn is not None and (turn.verdict, turn.number) == ("go", 3)


def test_a_dead_owner_is_followed(scene: Scene, dead: dict[str, Any]) -> None:
    scene.own(1, dead)
    scene.submitted()
    scene.scheduler.jobs["7"] = JobInfo("7", "ended", outcome="node_fail")
    assert scene.verdict(5) is None  # the scheduler may end this job in the same breath
    assert scene.verdict(20) == "go"


@pytest.mark.parametrize(
    ("event", "fields", "verdict"),
    [
        ("stopping", {"by": "SIGTERM"}, "stopped"),
        ("cancelled", {"token": "new", "reason": "no more"}, "unwanted"),
        ("ended", {"why": "finished", "exit": 0}, "finished"),
        ("ended", {"why": "failed", "exit": 1}, "finished"),
        ("ended", {"why": "stopped", "exit": 0}, "stopped"),
    ],
)
def test_it_ends_when_the_ledger_says_so(scene: Scene, event: str, fields: dict[str, Any], verdict: str) -> None:
    scene.own(1, identity())
    scene.submitted()
    scene.run.append(1, event, **fields)
    assert scene.verdict() == verdict
    assert scene.run.leases() == [1]


def test_a_stop_of_an_earlier_generation_does_not_bind_a_resumed_run(scene: Scene) -> None:
    scene.own(1, identity())
    scene.run.append(1, "stopping", by="SIGTERM")
    scene.own(2, identity(), token="resumed")
    scene.submitted(2)
    scene.run.append(2, "released", token="new")
    assert scene.verdict() == "go"


@pytest.mark.parametrize(
    ("outcome", "note", "verdict"),
    [
        ("cancelled", None, "stopped"),
        ("preempted", {"left": 3000.0}, "go"),
        ("timeout", {"left": 3000.0}, "go"),
        ("", {"left": 3000.0}, "stopped"),
        ("", {"left": 20.0}, "go"),
        ("", {"left": None}, "stopped"),
        ("", None, "go"),
    ],
)
def test_a_user_who_cancelled_the_job_stopped_the_run(
    scene: Scene, dead: dict[str, Any], outcome: str, note: dict[str, Any] | None, verdict: str
) -> None:
    scene.own(1, dead)
    scene.submitted()
    if note is not None:
        scene.run.append(1, "signalled", signal="SIGTERM", **note)
    scene.scheduler.jobs["7"] = JobInfo("7", "ended", outcome=outcome)
    assert scene.verdict(30) == verdict


@pytest.mark.parametrize(("by", "verdict"), [("user ann", "stopped"), ("user", "stopped"), ("SIGTERM", "go")])
def test_a_requeue_does_not_undo_a_users_stop(scene: Scene, by: str, verdict: str) -> None:
    scene.own(1, ELSEWHERE, token="old", job="7")
    scene.run.append(1, "stopping", by=by)
    scene.arrival = scene.arrive("old", 1, "7", restarts=1)
    turn = scene.arrival.step()
    assert turn is not None and turn.verdict == verdict
    assert scene.run.leases() == ([1] if verdict == "stopped" else [1, 2])


def test_what_was_said_to_another_job_is_forgotten(scene: Scene) -> None:
    scene.own(1, identity())
    scene.submitted()
    said = {"DMR_RUN_DIR": str(scene.run.folder), "DMR_GENERATION": "2", "DMR_TOKEN": "new", "DMR_TIME_MIN": "30"}
    environ = dict(said)
    claim = own_claim(environ, "8")
    assert claim is not None and claim.token == "new" and environ == said
    assert own_claim(environ, "4711") is None and environ == {}
    assert own_claim(environ, "4711") is None


def test_a_requeued_job_goes_on_with_its_run(scene: Scene) -> None:
    scene.own(1, ELSEWHERE, token="old", job="7")
    scene.arrival = scene.arrive("old", 1, "7", restarts=1)
    turn = scene.arrival.step()
    assert turn is not None and (turn.verdict, turn.number, turn.reason) == ("go", 2, "requeued")


def test_a_requeued_job_whose_run_went_on_elsewhere_ends(scene: Scene) -> None:
    scene.own(1, ELSEWHERE, token="old", job="7")
    scene.own(2, identity(), token="new", job="8")
    scene.arrival = scene.arrive("old", 1, "7", restarts=1)
    assert scene.verdict() == "unwanted"


def test_of_two_that_are_quick_one_gets_the_lease(scene: Scene, dead: dict[str, Any]) -> None:
    scene.own(1, dead)
    scene.submitted()
    rival = scene.arrive("rival", 2, "9")
    scene.verdict(5)
    rival.step()
    scene.clock.now += 60
    first, second = scene.arrival.step(), rival.step()
    assert first is not None and first.verdict == "go"
    assert second is None
    assert owner_of(scene.run).token == "new"  # type: ignore[union-attr]


# -- whether an owner lives


def watch(scene: Scene, **lease: Any) -> OwnerWatch:
    owner = Owner(1, {**lease_content("old", "7", 0), **lease})
    return OwnerWatch(scene.run, owner, scene.scheduler, my_job="8", clock=scene.clock)


def lives_after(scene: Scene, watching: OwnerWatch, seconds: float, each: Callable[[], None] = lambda: None) -> str:
    end = scene.clock.now + seconds
    while scene.clock.now < end:
        watching.life()
        scene.clock.now += 1.0
        each()
    return watching.life()


def test_a_process_of_this_machine_is_looked_up(scene: Scene, dead: dict[str, Any]) -> None:
    assert watch(scene, **identity()).life() == "alive"
    assert watch(scene, **dead).life() == "dead"
    assert watch(scene, **{**identity(), "born": 1}).life() == "dead"  # the number was given to another process


@pytest.mark.parametrize("skew", [-86400.0, 0.0, 86400.0])
def test_signs_of_life_count_whatever_the_other_clock_says(scene: Scene, skew: float) -> None:
    watching, beats = watch(scene, **ELSEWHERE), [0]

    def beat() -> None:
        if int(scene.clock.now) % 5 == 0:
            beats[0] += 1
            scene.run.write_launcher(LauncherState(1, scene.clock.now + skew))

    assert lives_after(scene, watching, 20, beat) == "alive"
    assert lives_after(scene, watching, owner_module.SILENT - 20) == "unknown"
    assert lives_after(scene, watching, 60) == "dead"


def test_an_old_sign_is_no_sign(scene: Scene) -> None:
    scene.run.write_launcher(LauncherState(1, scene.clock.now + 5000))
    assert watch(scene, **ELSEWHERE).life() == "unknown"


def test_a_job_that_has_ended_is_dead_at_once(scene: Scene) -> None:
    scene.scheduler.jobs["7"] = JobInfo("7", "ended", outcome="node_fail")
    assert watch(scene, **ELSEWHERE).life() == "dead"


def test_the_scheduler_is_asked_rarely(scene: Scene) -> None:
    asked: list[str] = []

    class Counting(Told):
        def job(self, job: str) -> JobInfo:
            asked.append(job)
            return JobInfo(job, "running")

    scene.scheduler = Counting()
    lives_after(scene, watch(scene, **ELSEWHERE), 60)
    assert 1 <= len(asked) <= 60 / owner_module.ASK_EVERY + 1


def test_a_queued_owner_lives_as_long_as_its_job(scene: Scene, dead: dict[str, Any]) -> None:
    scene.run.take_lease(1, {**lease_content("q", None, 0, queued=True), **dead})
    owner = owner_of(scene.run)
    assert owner is not None and owner.job is None
    assert OwnerWatch(scene.run, owner, None, clock=scene.clock).life() == "dead"  # died before it submitted
    scene.run.append(1, "submitted", token="q", successor=1, job="9", nodes=[1, 1])
    owner = owner_of(scene.run)
    assert owner is not None and owner.job == "9"
    for state, life in (("pending", "alive"), ("running", "alive"), ("ended", "dead")):
        scene.scheduler.jobs["9"] = JobInfo("9", state)  # type: ignore[arg-type]
        assert OwnerWatch(scene.run, owner, scene.scheduler, clock=scene.clock).life() == life


def test_patience_is_bounded() -> None:
    assert arrival_module.AFTER_DEATH < owner_module.SILENT < arrival_module.LONGEST_WAIT
