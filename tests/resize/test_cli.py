from __future__ import annotations

import gzip
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dmr.launcher.cli.decisions import explain, replay
from dmr.launcher.cli.simulate import simulate
from dmr.launcher.run.rundir import RunDir
from dmr.resize.decide import decide
from dmr.resize.explain import decision_to_json
from dmr.resize.policy import load_policy
from dmr.resize.record import cluster_to_json, run_to_json
from dmr.resize.simulate import swf
from dmr.resize.simulate.generate import lublin
from dmr.resize.situation import Situation
from dmr.resize.view import ClusterView, JobView, Rate, RunView

QUICK = ["--seeds", "2", "--jobs", "40"]


def call(command: Any, *words: str) -> Result:
    return CliRunner().invoke(command, list(words))


def trace(folder: Path, *extra: str) -> Path:
    records = [
        swf.Record(job.id, job.submit, -1, job.runtime, job.nodes, requested_time=job.limit, status=1)
        for job in lublin(60, 32, 1).jobs
    ]
    path = folder / "test.swf"
    path.write_text(swf.write(records, {"MaxProcs": "32"}) + "".join(f"{line}\n" for line in extra))
    return path


def test_table() -> None:
    found = call(simulate, "amdahl", "--malleable", "50%", "--policy", "queue", "--policy", "dmr", *QUICK)
    assert found.exit_code == 0, found.output
    assert "40 jobs (Amdahl recipe, seed 0), 128 nodes" in found.output
    assert [line.split("  ")[0] for line in found.output.splitlines()[2:6]] == [
        "rigid", "policy queue", "policy dmr", "central",
    ]  # fmt: skip


def test_json_is_json() -> None:
    found = call(simulate, "lublin", "--nodes", "64", "--no-central", "--load", "0.9", "--json", *QUICK)
    data = json.loads(found.output)
    assert [each["name"] for each in data["regimes"]] == ["rigid", "policy queue"]
    assert data["load"] == pytest.approx(0.9)
    assert data["regimes"][0]["ratios"]["turnaround"] == {"mean": 1.0, "half": 0.0, "count": 2}
    assert data["regimes"][0]["share_of_central"]["mean"] is None


def test_a_trace_plain_and_packed_gives_the_same(tmp_path: Path) -> None:
    plain = trace(tmp_path)
    packed = tmp_path / "test.swf.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    outputs = [json.loads(call(simulate, str(path), "--seeds", "1", "--json").output) for path in (plain, packed)]
    assert outputs[0]["nodes"] == 32
    assert outputs[0]["regimes"] == outputs[1]["regimes"]


def test_problems_are_shown_and_refused(tmp_path: Path) -> None:
    path = trace(tmp_path, "1 2 3", "rubbish", "61 999999 -1 -1 4 " + "-1 " * 5 + "5" + " -1" * 7)
    found = call(simulate, str(path), "--seeds", "1")
    assert "3 lines passed over, 0 corrected" in found.output
    assert "1 × 3 fields instead of 18 (line 62: 1 2 3)" in found.output
    assert "never ran" in found.output
    strict = call(simulate, str(path), "--seeds", "1", "--strict")
    assert strict.exit_code == 1
    assert "line 62: 3 fields instead of 18" in str(strict.output)


def test_too_large_jobs_are_counted(tmp_path: Path) -> None:
    found = call(simulate, str(trace(tmp_path)), "--nodes", "8", "--seeds", "1")
    assert "3 lines passed over" in found.output and "asks for 19 nodes of 8" in found.output
    assert call(simulate, str(trace(tmp_path)), "--nodes", "8", "--strict").exit_code == 1


def test_sacct_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "jobs"
    path.write_text(
        "JobIDRaw|Submit|Start|End|NNodes|Timelimit|State\n"
        "1|2026-03-01T10:00:00|2026-03-01T10:00:00|2026-03-01T10:30:00|2|01:00:00|COMPLETED\n"
        "2|2026-03-01T10:05:00|2026-03-01T10:30:00|2026-03-01T10:40:00|4|01:00:00|COMPLETED\n"
    )
    found = call(simulate, str(path), "--nodes", "4", "--seeds", "1", "--malleable", "0")
    assert found.exit_code == 0, found.output
    assert "2 jobs (jobs), 4 nodes" in found.output


def test_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "x.svg"
    assert call(simulate, "amdahl", "--plot", str(path), *QUICK).exit_code == 0
    assert "policy queue" in path.read_text() or path.stat().st_size > 10_000
    bad = call(simulate, "amdahl", "--plot", str(tmp_path / "x.nothing"), *QUICK)
    assert bad.exit_code == 1 and "can't draw" in bad.output


class Failing:
    name = "failing"

    def propose(self, situation: Situation) -> None:
        raise RuntimeError(f"not at {situation.run.nodes}")


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["nothing.swf"], 2, "there is no file nothing.swf; the generators are amdahl, lublin"),
        (["amdahl", "--malleable", "150%"], 2, "no share"),
        (["amdahl", "--policy", "quee"], 2, "there is no policy 'quee'"),
        (["amdahl", "--policy-option", "dwell"], 2, "not KEY=VALUE"),
        (["amdahl", "--policy", "deadline"], 2, "--policy-option within=2:00:00"),
        (["amdahl", "--policy", "static", "--policy-option", "name=x"], 2, "no option 'name'"),
        (["amdahl", "--start", "huge"], 2, "least, preferred"),
        (["amdahl", "--interval", "0"], 2, "interval is 0 s"),
        (["amdahl", "--start-most", "0.5"], 2, "x>=1"),
        (["amdahl", "--time-min", "0"], 2, "the share of a time limit is 0"),
        (["amdahl", "--policy", f"{__name__}:Failing"], 1, "the policy failing failed"),
        (["amdahl", "--policy", "schedule"], 2, "not TIME=NODES"),
        (["amdahl", "--nodes", "0"], 2, "x>=1"),
    ],
)
def test_mistakes_are_one_line(words: list[str], status: int, says: str) -> None:
    found = call(simulate, *words, *QUICK)
    assert found.exit_code in (status, 1)
    assert says in found.output
    assert "Traceback" not in found.output


def test_an_empty_trace(tmp_path: Path) -> None:
    path = tmp_path / "empty.swf"
    path.write_text("; MaxProcs: 4\n")
    found = call(simulate, str(path))
    assert found.exit_code == 1 and "no job that ran" in found.output


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir.create(tmp_path / "heat", {"run": "heat"})
    for turn in range(3):
        view = RunView(
            time=1000.0 + 100 * turn, run="heat", generation=1, nodes=2, sizes=(2, 4), since=900.0, step=100 * turn,
            steps=2000, job="5", rates=(Rate(2, 1.0, 100),),
        )  # fmt: skip
        cluster = ClusterView(view.time, 8, 6, (JobView("5", "running", 2, run="heat"),))
        found = decide(view, cluster, load_policy("static"))
        made.append(
            1, "decided", step=view.step, decision=decision_to_json(found), run=run_to_json(view),
            cluster=cluster_to_json(cluster),
        )  # fmt: skip
    return made


def test_explain_prints_the_newest_table(run: RunDir) -> None:
    found = call(explain, str(run.folder))
    assert found.exit_code == 0, found.output
    assert "step 200" in found.output
    assert "policy static: stay (2 nodes)" in found.output
    assert json.loads(call(explain, str(run.folder), "--json").output)["action"] == "stay"
    assert len(call(explain, str(run.folder), "--all").output.splitlines()) == 4
    assert call(explain, str(run.folder), "--at", "1:00:00").exit_code == 0


def test_replay_says_what_another_policy_would_have_done(run: RunDir) -> None:
    found = call(replay, str(run.folder), "--policy", "queue")
    assert found.exit_code == 0, found.output
    assert "expand 4" in found.output
    assert "queue: done after" in found.output
    data = json.loads(call(replay, str(run.folder), "--policy", "queue", "--json").output)
    assert data["resizes"] == 1
    assert data["finish"] < data["real_finish"]


def test_replay_of_a_run_that_was_stopped_says_what_it_really_did(tmp_path: Path) -> None:
    """It had done 46 s of a run of hours: that it would have gone on is a projection."""
    made, began = RunDir.create(tmp_path / "heat", {"run": "heat"}), time.time() - 46.0
    made.append(1, "launched", token="t", nodes=2, job="5")
    view = RunView(
        time=began + 40, run="heat", generation=1, nodes=2, sizes=(2, 4), since=began, step=38, steps=5700, job="5",
        rates=(Rate(2, 1.0, 38),),
    )  # fmt: skip
    cluster = ClusterView(view.time, 8, 6, (JobView("5", "running", 2, run="heat"),))
    found = decision_to_json(decide(view, cluster, load_policy("static")))
    made.append(1, "decided", step=38, decision=found, run=run_to_json(view), cluster=cluster_to_json(cluster))
    made.append(1, "ended", why="stopped", exit=0, step=44, first_step=0, rates=[[None, 1.0, 44]])
    ledger = made.folder / "ledger" / "0001.jsonl"
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    for line, seconds in zip(lines, (0.0, 40.0, 46.0), strict=True):
        line["time"] = began + seconds
    ledger.write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = call(replay, str(made.folder), "--policy", "queue").output
    (really,) = [line for line in text.splitlines() if line.startswith("really:")]
    assert re.match(r"really: stopped after 46( s)?, 0\.0256 node-hours, 0 changes of size, step 44", really), really
    assert text.index("projected to the last step") < text.index("as it was: done after 1:35:02")
    data = json.loads(call(replay, str(made.folder), "--policy", "queue", "--json").output)
    assert data["real_is_projection"] and data["really"]["state"] == "stopped" and data["really"]["step"] == 44
    for line in lines:
        line["why"] = "finished" if "why" in line else None
    ledger.write_text("".join(json.dumps({k: v for k, v in line.items() if v is not None}) + "\n" for line in lines))
    data = json.loads(call(replay, str(made.folder), "--json").output)
    assert not data["real_is_projection"] and data["real_finish"] == pytest.approx(began + 46.0)
    assert "really: done after 46" in call(replay, str(made.folder)).output


def test_runs_without_decisions(tmp_path: Path) -> None:
    made = RunDir.create(tmp_path / "quiet", {"run": "quiet"})
    made.append(1, "launched", nodes=2)
    for command in (explain, replay):
        found = call(command, str(made.folder))
        assert found.exit_code == 1
        assert "no decision" in found.output
    made.append(1, "decided", decision={"action": "stay", "nodes": 2, "reason": "x"})
    old = call(replay, str(made.folder))
    assert old.exit_code == 1 and "can't be replayed" in old.output
