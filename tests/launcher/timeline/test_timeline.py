from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from made_run import SERIAL, T0, MadeRun, labels, seconds_per_step, three_phases

from dmr.launcher.telemetry.layout import TelemetryError
from dmr.launcher.timeline.analysis import Analysis, analyse, total_net
from dmr.launcher.timeline.fuse import clock_words
from dmr.launcher.timeline.sources import read_sources


def analysed(made: MadeRun, **options: object) -> Analysis:
    return analyse(read_sources(made.write(), **options), now=made.clock + 1000.0)  # type: ignore[arg-type]


def test_every_node_second_is_accounted_for(tmp_path: Path) -> None:
    made = three_phases(tmp_path / "run")
    timeline = analysed(made).timeline
    assert timeline.start == T0 and timeline.end == pytest.approx(made.clock)
    assert sum(timeline.node_hours.values()) == pytest.approx(sum(each.node_hours for each in timeline.spans))
    # What the levels say and what the spans say is the same.
    ends = [*(each.time for each in timeline.held[1:]), timeline.end]
    by_levels = sum(each.nodes * (end - each.time) for each, end in zip(timeline.held, ends, strict=True)) / 3600
    assert by_levels == pytest.approx(sum(timeline.node_hours.values()))
    hours = timeline.node_hours
    assert analysed(made).history.node_hours(timeline.end) == pytest.approx(sum(hours.values())), "as dmr history"
    assert hours["launch"] == pytest.approx((4 * 4 + 8 * 4) / 3600)
    assert hours["load"] == pytest.approx(8 / 3600)
    assert hours["save"] == pytest.approx((4 + 4 + 8) / 3600)


def test_declared_phases_and_their_arithmetic(tmp_path: Path) -> None:
    found = analysed(three_phases(tmp_path / "run"))
    assert labels(found.timeline.phases) == [
        ("mesh", 4), ("solve", 4), ("write", 4), ("mesh", 4), ("solve", 4), ("solve", 8), ("write", 8)
    ]  # fmt: skip
    uses = {(each.phase, use.nodes): use for each in found.summaries for use in each.uses}
    assert uses["mesh", 4].steps == pytest.approx(120)
    for (phase, nodes), use in uses.items():
        if phase != "solve":  # a save lies in it
            assert use.seconds_per_step == pytest.approx(seconds_per_step(phase, nodes), rel=0.03)
    assert uses["solve", 4].cpu == pytest.approx(0.97, abs=0.06)
    assert uses["solve", 8].memory_headroom == pytest.approx(1 - 12.3 / 64, abs=0.02)
    efficiency = seconds_per_step("solve", 4) / 2 / seconds_per_step("solve", 8)
    assert uses["solve", 8].efficiency == pytest.approx(efficiency, abs=0.1)


def test_phases_are_found_that_nobody_declared(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "run")
    made.launch(4)
    for _ in range(3):
        for phase, steps in (("mesh", 150), ("solve", 200), ("write", 50)):
            made.compute(phase, steps, declare=False)
    made.end()
    found = analysed(made)
    assert labels(found.timeline.phases) == [("phase 1", 4), ("phase 2", 4), ("phase 3", 4)] * 3
    bounds = [round(each.start - found.timeline.start) for each in found.timeline.phases]
    length = [steps * seconds_per_step(phase, 4) for phase, steps in (("mesh", 150), ("solve", 200), ("write", 50))]
    true = 4 + np.concatenate([[0], np.cumsum(length * 3)[:-1]])
    np.testing.assert_allclose(bounds, true, atol=2.01)


def test_growth_in_place_is_judged(tmp_path: Path) -> None:
    found = analysed(three_phases(tmp_path / "run"))
    (verdict,) = found.verdicts
    assert (verdict.request.before, verdict.request.after, verdict.request.phase) == (4, 8, "solve")
    assert verdict.request.by == "policy queue" and verdict.word == "effective"
    assert verdict.acquisition == 0 and verdict.synchronisation == pytest.approx(0)
    assert verdict.redistribution == pytest.approx(1 + 0.5 + 4 + 1)
    gained = 160 * (seconds_per_step("solve", 4) - seconds_per_step("solve", 8)) + 40 * (
        seconds_per_step("write", 4) - seconds_per_step("write", 8)
    )
    assert verdict.gained == pytest.approx(gained, abs=6)
    assert total_net(found.verdicts)[0] == pytest.approx(verdict.net)


def test_a_successor_s_wait_is_acquisition_and_its_idle_nodes_are_counted(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "run")
    made.launch(4)
    made.compute("solve", 100)
    made.successor(8, 60.0, "solve")
    made.compute("solve", 400)
    made.end()
    found = analysed(made)
    (verdict,) = found.verdicts
    assert verdict.acquisition == pytest.approx(60, abs=1)
    assert verdict.synchronisation == pytest.approx(2 * seconds_per_step("solve", 4), abs=0.01)
    assert verdict.word == "effective"
    hours = found.timeline.node_hours
    assert hours["handover"] == pytest.approx(8 * (2 * seconds_per_step("solve", 4) + 1) / 3600, rel=0.05)
    assert [each.nodes for each in found.timeline.requested] == [4, 8, 0]
    assert max(each.nodes for each in found.timeline.held) == 12, "old and new side by side"


def test_a_request_for_a_phase_that_was_over_is_late(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "run")
    made.launch(4)
    made.compute("mesh", 60)
    made.resize(8, by="policy phases", facts={"for_phase": "mesh"})
    made.compute("write", 60)
    made.end()
    (verdict,) = analysed(made).verdicts
    assert verdict.word == "late" and verdict.request.targeted


def test_a_request_for_the_phase_that_goes_on_at_the_new_size_is_in_time(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "run")
    made.launch(4)
    made.compute("solve", 60)
    made.resize(8, by="policy phases", facts={"for_phase": "solve"})
    made.event("phase", app=True, phase="solve", step=made.step)
    made.compute("solve", 300)
    made.compute("write", 10)
    made.end()
    (verdict,) = analysed(made).verdicts
    assert verdict.word == "effective" and verdict.request.targeted and verdict.request.phase == "solve"
    assert verdict.request.phase_end is not None and verdict.request.computing is not None
    assert verdict.request.phase_end > verdict.request.computing + 30


def test_a_uniform_program_resized_by_its_user_has_one_phase_and_no_purpose_is_invented(tmp_path: Path) -> None:
    """The same all the time: the share of its processors that it uses falls with the size, nothing else happens."""
    made = MadeRun(tmp_path / "run")
    made.launch(1)
    for nodes in (4, 1, 4, None):
        per_step = 0.2 + 0.8 / made.nodes
        made._sample(100 * per_step, 0.95 / (1 + 0.25 * made.nodes), per_step)
        made.step += 100
        if nodes is not None:
            made.resize(nodes, by="user ada", reason="asked for by user ada")
    made.end()
    found = analysed(made)
    assert {each.label for each in found.timeline.phases} == {"whole run"}
    assert [(each.request.phase, each.request.phase_end) for each in found.verdicts] == [(None, None)] * 3
    assert "late" not in {each.word for each in found.verdicts} and found.verdicts[0].word == "effective"
    assert list(found.record.phases) == ["whole run"] and len(found.record.phases["whole run"]) == 2
    assert found.plan is None, "there is nothing to plan by phases"


def test_a_successor_that_never_came_is_useless(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "run")
    made.launch(4)
    about = {"token": "x", "successor": 2, "name": "dmr:made:2", "nodes": [8, 8], "after": None}
    made.event("submitted", job=None, by="user", reason="asked for by user", **about)
    made.compute("solve", 100)
    made.event("cancelled", token="x", job="5", reason="the run has finished")
    made.end()
    (verdict,) = analysed(made).verdicts
    assert verdict.word == "useless" and verdict.request.by == "user"


def test_work_done_again_after_a_crash_is_lost(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "run")
    made.launch(4)
    made.compute("solve", 100)
    made.save()
    made.compute("solve", 100)
    made.end("crashed")
    made.step = 100
    made.launch(4, load=1.0, cause="restart")
    made.compute("solve", 100)
    made.end()
    found = analysed(made)
    lost = 4 * 100 * seconds_per_step("solve", 4) / 3600
    assert found.timeline.node_hours["lost"] == pytest.approx(lost, rel=0.1)
    assert found.verdicts == ()


def test_a_launcher_killed_and_resumed_much_later_is_no_slow_step(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "run")
    made.launch(4)
    made.compute("solve", 100)
    made.save()
    made.clock += 86400.0
    made.launch(4, cause="resume")
    made.compute("solve", 100)
    made.end()
    found = analysed(made)
    (use,) = found.summaries[0].uses
    assert use.seconds_per_step == pytest.approx(seconds_per_step("solve", 4), rel=0.1)
    assert found.timeline.node_hours["compute"] == pytest.approx(4 * 200 * seconds_per_step("solve", 4) / 3600, rel=0.1)


def test_clocks_that_differ_are_found_said_and_put_right(tmp_path: Path) -> None:
    straight = analysed(three_phases(tmp_path / "straight"))
    made = three_phases(tmp_path / "crooked", ahead={"n0": 7.0, "0001.app.jsonl": -3.0, "0002.app.jsonl": -3.0})
    crooked = analysed(made)
    words = clock_words(crooked.timeline.clocks)
    assert any("node n0" in each and "7.00 s ahead" in each for each in words)
    assert any("rank 0" in each and "3.00 s behind" in each for each in words)
    assert clock_words(straight.timeline.clocks) == ()
    starts = [each.start for each in straight.timeline.phases]
    assert [each.start for each in crooked.timeline.phases] == pytest.approx(starts, abs=0.01)


def test_a_copied_ledger_says_nothing_of_clocks(tmp_path: Path) -> None:
    made = three_phases(tmp_path / "run")
    made.write()
    for path in (made.folder / "ledger").iterdir():
        os.utime(path, (T0 + 1e6, T0 + 1e6))
    found = analyse(read_sources(made.folder), now=made.clock)
    assert found.timeline.start == T0
    assert any("could not be compared" in each for each in clock_words(found.timeline.clocks))


def test_gaps_are_named(tmp_path: Path) -> None:
    made = three_phases(tmp_path / "run")
    folder = made.write() / "telemetry"
    for path in folder.glob("0001.n2.*"):
        path.unlink()
    for path in folder.glob("0002.*"):
        path.unlink()
    words = [each.what for each in analyse(read_sources(made.folder), now=made.clock).timeline.gaps]
    assert "no telemetry of n2 in generation 1" in words and "no telemetry of generation 2" in words


def test_accounting_is_fused_and_its_clock_checked(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "run")
    made.clock += 10.0
    made.launch(4)
    made.compute("solve", 100)
    made.end()
    text = f"JobID|Start|End|NNodes|State\n100|{T0 + 5:.0f}|{made.clock + 20:.0f}|4|COMPLETED\n"
    (made.folder / "telemetry" / "sacct.txt").write_text(text)
    found = analysed(made)
    hours = found.timeline.node_hours
    assert hours["between"] == pytest.approx(4 * 5 / 3600), "held before the launcher started"
    assert hours["leave"] == pytest.approx(4 * 20 / 3600, rel=0.06), "and after it ended"
    other = tmp_path / "other.txt"
    other.write_text(text.replace(f"{T0 + 5:.0f}", f"{T0 + 40:.0f}"))
    found = analysed(made, sacct=other)
    assert any("scheduler was 30.00 s ahead" in each for each in clock_words(found.timeline.clocks))


def test_accounting_is_asked_for_and_kept_when_all_jobs_have_ended(tmp_path: Path) -> None:
    made = three_phases(tmp_path / "run")
    asked: list[tuple[str, ...]] = []

    def ask(jobs: Sequence[str]) -> str:
        asked.append(tuple(jobs))
        end = "Unknown" if len(asked) == 1 else f"{made.clock + 20:.0f}"
        rows = [f"{job}|{T0:.0f}|{end}|4|COMPLETED" for job in jobs]
        return "\n".join(["JobIDRaw|Start|End|NNodes|State", *rows]) + "\n"

    jobs = {str(each["job"]) for each in read_sources(made.write()).events if each.get("job")}
    for _ in range(3):
        found = read_sources(made.folder, ask=ask)
        assert {each.job for each in found.accounting} == jobs
    assert len(asked) == 2, "while a job runs, and once more when it has ended"
    assert {each.end is not None for each in found.accounting} == {True}
    assert read_sources(made.folder, ask=lambda jobs: None).accounting == found.accounting
    (made.folder / "telemetry" / "sacct.txt").unlink()
    assert read_sources(made.folder, ask=lambda jobs: None).accounting == ()


def test_a_jobcomp_file_tells_of_the_jobs_of_this_run_alone(tmp_path: Path) -> None:
    made = three_phases(tmp_path / "run")
    (job, *_) = dict.fromkeys(str(each["job"]) for each in read_sources(made.write()).events if each.get("job"))
    local = [datetime.fromtimestamp(each).isoformat(timespec="seconds") for each in (T0, T0 + 300)]
    line = "JobId={} UserId=u(1) GroupId=g(1) Name=x NodeCnt=9 JobState={} Partition=main TimeLimit=10 "
    line += "StartTime={} EndTime={} NodeList=n[1-4] NodeCnt=4 ProcCnt=8 WorkDir=/tmp ExitCode=0:0 \n"
    path = tmp_path / "jobcomp.log"
    path.write_text(line.format(job, "COMPLETED", *local) + line.format("9" + job, "FAILED", *local) + "torn JobId")
    (row,) = read_sources(made.folder, jobcomp=path).accounting
    assert (row.job, row.state, row.nodes, row.start, row.end) == (job, "COMPLETED", 4, int(T0), int(T0 + 300))
    path.write_text("JobID|Start\n")
    with pytest.raises(TelemetryError, match=r"jobcomp\.log: this is no file of Slurm's jobcomp"):
        read_sources(made.folder, jobcomp=path)


def test_columns_of_the_user_s_own(tmp_path: Path) -> None:
    made = three_phases(tmp_path / "run")
    folder = made.folder / "telemetry" / "user"
    folder.mkdir()
    (folder / "power.csv").write_text("time,watts\n" + "".join(f"{T0 + s},{100 + s}\n" for s in range(50)))
    (folder / "bad.csv").write_text("a,b\n1,2\n")
    found = analysed(made)
    assert np.nanmin(found.timeline.columns["watts"]) == pytest.approx(100, abs=1)
    assert any("bad.csv" in each for each in found.notes)
    with pytest.raises(TelemetryError):
        read_sources(made.folder, columns=[folder / "bad.csv"])


def test_what_the_run_taught(tmp_path: Path) -> None:
    found = analysed(three_phases(tmp_path / "run"))
    assert found.key.program == "app.py" and found.key.input == "--size 9" and found.key.machine == "cluster"
    record = found.record
    assert record.steps == 560 and set(record.phases) == set(SERIAL)
    assert [(each.phase, each.start, each.end) for each in record.order] == [
        ("mesh", 0, 60), ("solve", 60, 220), ("write", 220, 260),
        ("mesh", 260, 320), ("solve", 320, 520), ("write", 520, 560),
    ]  # fmt: skip
    (cost,) = record.costs
    assert (cost.nodes, cost.launch, cost.load) == (8, 4.0, 1.0)


def test_a_run_that_has_just_begun(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "run")
    found = analysed(made)
    assert found.verdicts == () and found.summaries == () and found.steps is None
    made.launch(2)
    found = analysed(made)
    assert found.timeline.generations[0].nodes == 2


def test_where_no_sampler_was_slurm_s_own_records_of_the_steps_tell(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "run")
    made.launch(4)
    made.compute("solve", 200)
    made.end()
    folder = made.write()
    for path in (folder / "telemetry").glob("*.tele"):
        path.unlink()
    end = made.clock
    rows = "JobIDRaw|Start|End|NNodes|State|TotalCPU|MaxRSS|NTasks|AllocCPUS\n"
    rows += f"100|{T0:.0f}|{end:.0f}|4|COMPLETED|05:00||| 4\n100.batch|{T0:.0f}|{end:.0f}|1|COMPLETED|05:00|9G|1|1\n"
    rows += f"100.0|{T0:.0f}|{end:.0f}|4|COMPLETED|01:40|1G|8|8\n"
    (folder / "telemetry" / "sacct.txt").write_text(rows)
    found = analysed(made)
    (summary,) = found.summaries
    (use,) = summary.uses
    assert use.cpu == pytest.approx(100 / (end - T0) / 8, rel=0.05)
    assert use.memory_peak == pytest.approx(2 * 2**30), "two tasks a node, none of which had more than 1 GiB"
    assert any("no samples of generation 1: its processors are a mean" in each for each in found.notes)


def test_a_run_that_no_sampler_sees_is_asked_of_sstat(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "run")
    made.launch(2)
    made.compute("solve", 100)
    folder = made.write()
    for path in (folder / "telemetry").glob("*.tele"):
        path.unlink()
    asked: list[str] = []

    def ask(job: str) -> str:
        asked.append(job)
        return "JobID|NTasks|AveCPU|MaxRSS\n100.batch|1|00:00:01|1M\n100.0|4|00:00:30|10M\n"

    (series,) = read_sources(folder, ask_running=ask).telemetry.nodes
    assert asked == ["100"] and series.node == "step 100.0" and series.facts["source"] == "slurm"
    assert series.mean["memory"][0] == 2 * 10 * 2**20
    assert read_sources(folder, ask_running=lambda job: None).telemetry.nodes == ()
    made.end()
    made.write()
    asked.clear()
    assert read_sources(folder, ask_running=ask).accounting == () and asked == []
