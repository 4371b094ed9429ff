"""Programs that write restart files of their own, asked in each way, under real mpirun."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmr.launcher.foreign.catalogue import Catalogue
from dmr.launcher.telemetry.read import read_telemetry

PROGRAM = Path(__file__).parent / "program.py"
Start = Callable[..., subprocess.Popen[str]]
STEADY = ("--every", "30", "--sleep", "0.04")
NUMBERED = 'files = ["restart.{step}"]\n'

DESCRIPTION = """
name = "program"
[checkpoint]
{checkpoint}
settle = 0.3
[restart]
{restart}
[progress]
step = '^step (\\d+)'
steps = '(\\d+) steps in all'
finished = '^all done'
[sizes]
{sizes}
"""


def describe(checkpoint: str, restart: str = 'append = ["--start", "{checkpoint}"]', sizes: str = "") -> str:
    """Return the text of a description of ``program.py``."""
    return DESCRIPTION.replace("{checkpoint}", checkpoint, 1).replace("{restart}", restart).replace("{sizes}", sizes)


def expected(steps: int) -> str:
    """Return what ``program.py`` computes, however often it was interrupted."""
    value = 1
    for step in range(steps):
        value = (value * 6364136223846793005 + step + 1442695040888963407) % 2**64
    return str(value)


@pytest.fixture
def foreign(bench: Any) -> Start:
    """Return ``start(description, *arguments of the program, options=…)``."""

    def start(description: str, *args: object, options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        (bench.folder / "app.toml").write_text(description)
        process: subprocess.Popen[str] = bench.start(
            "dmr-launch", "--engine", "local", "--local-nodes", "4", "--query-interval", "1", "--dwell", "1h",
            "--run-dir", "run", "--no-telemetry", "--app", "app.toml", *options, "--",
            sys.executable, str(PROGRAM), *map(str, args),
        )  # fmt: skip
        return process

    return start

COMMAND = f'''["{sys.executable}", "-c", "open('please', 'w')", "{{step}}"]'''
KINDS = {
    "signal": (NUMBERED + 'request = "signal"\nsignal = "USR1"', ["--signal", "USR1"]),
    "file": (NUMBERED + 'request = "file"\nfile = "please"', ["--file", "please"]),
    "command": (NUMBERED + 'request = "command"\ncommand = ' + COMMAND, ["--file", "please"]),
    "interval": (NUMBERED + 'request = "interval"', ["--every", "20"]),
    "exits": (NUMBERED + 'request = "file"\nfile = "please"\nexits = true', ["--file", "please", "--exits"]),
    "one name": ('files = ["state"]\nrequest = "signal"\nsignal = "USR1"', ["--signal", "USR1", "--name", "state"]),
}


def records(bench: Any) -> Any:
    return Catalogue(bench.run.checkpoints, bench.folder).records()


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_change_and_nothing_is_lost(bench: Any, foreign: Start, kind: str) -> None:
    checkpoint, args = KINDS[kind]
    sizes = (1, 3, 2) if kind == "signal" else (1, 2)
    process = foreign(describe(checkpoint), 180, *args, options=("--nodes", "1:4", "--start", "1"))
    bench.at_step(3)
    for nodes in sizes[1:]:
        answer = bench.dmr("resize", "run", "--nodes", str(nodes), "--wait")
        assert answer.returncode == 0, answer.stderr + answer.stdout
    out = bench.end(process)
    assert process.returncode == 0, out
    assert (bench.folder / "final.txt").read_text() == expected(180), out
    generations = bench.history.generations
    assert tuple(each.nodes for each in generations) == sizes, out
    assert [each.why for each in generations][-1] == "finished" and bench.history.crashes == 0, out
    assert all(f"{size} ranks" in out for size in sizes)
    for before, after in zip(generations, generations[1:], strict=False):
        assert before.first_step < before.step == after.first_step < 180
        assert before.step in {each.step for each in records(bench)}
    assert all(each.bytes > 10_000 for each in records(bench))
    assert not (bench.folder / "please").exists()


def test_a_checkpoint_at_the_users_interval_and_on_demand(bench: Any, foreign: Start) -> None:
    process = foreign(
        describe(KINDS["signal"][0]), 240, "--signal", "USR1",
        options=("--nodes", "1", "--checkpoint-every", "60steps", "--telemetry"),
    )  # fmt: skip
    bench.at_step(5)
    assert bench.dmr("checkpoint", "run").returncode == 0
    bench.wait(lambda: bench.run.read_progress().acknowledged == 1, "an acknowledgement")
    newest = records(bench)[0]
    bench.wait(lambda: records(bench)[0].step > newest.step, "a checkpoint that nobody asked for")
    out = bench.end(process)
    assert process.returncode == 0, out
    assert records(bench)[0].step >= newest.step + 60
    (node,) = read_telemetry(bench.run.folder / "telemetry").nodes
    assert node.mean["ranks"].max() == 1 and np.nanmax(node.mean["memory"]) > 2**20
    assert np.nanmax(node.mean["step"]) > 0, "its progress is taken along"
    listed = bench.dmr("ckpt", "ls", "run").stdout
    assert newest.name in listed and "not known bad" in listed
    shown = bench.dmr("ckpt", "show", "run", "--step", str(newest.step)).stdout
    assert newest.name in shown and "the program's own files" in shown and newest.roots[0] in shown
    assert json.loads(bench.dmr("ckpt", "show", "run", "--json").stdout)["name"] == records(bench)[0].name
    for words in (
        "export run x/", "diff run run", "convert run --to x", "prune run --keep 1", "show run --stats",
        "show run --step 99999",
    ):  # fmt: skip
        refused = bench.dmr("ckpt", *words.split())
        assert refused.returncode == 1 and refused.stderr.count("\n") == 1, refused
        assert "own are not read" in refused.stderr or "recorded" in refused.stderr or "--app" in refused.stderr
    assert "dmr-launch --keep N" in bench.dmr("ckpt", "prune", "run", "--keep", "1").stderr
    assert all((bench.folder / part.path).exists() for each in records(bench) for part in each.parts)


def test_stop_and_resume(bench: Any, foreign: Start) -> None:
    process = foreign(describe(KINDS["signal"][0]), 120, "--signal", "USR1", options=("--nodes", "1:4", "--start", "2"))
    bench.at_step(5)
    assert bench.dmr("stop", "run").returncode == 0
    out = bench.end(process)
    assert bench.history.generations[-1].why == "stopped", out
    resumed = bench.dmr("resume", "run")
    assert resumed.returncode == 0, resumed.stderr
    assert (bench.folder / "final.txt").read_text() == expected(120)


def test_a_damaged_checkpoint_is_passed_over(bench: Any, foreign: Start) -> None:
    process = foreign(describe(NUMBERED + 'request = "interval"'), 120, *STEADY, options=("--nodes", "2"))
    bench.wait(lambda: len(records(bench)) >= 2, "two checkpoints")
    process.send_signal(signal.SIGKILL)
    process.wait()
    newest, before = records(bench)[:2]
    path = bench.folder / newest.roots[0]
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    resumed = bench.dmr("resume", "run")
    assert resumed.returncode == 0, resumed.stderr
    assert f"{newest.name} is passed over" in resumed.stderr
    assert bench.history.generations[-1].first_step == before.step
    assert (bench.folder / "final.txt").read_text() == expected(120)


def test_no_checkpoint_left_whole_ends_the_run_for_good(bench: Any, foreign: Start) -> None:
    process = foreign(describe(NUMBERED + 'request = "interval"'), 120, *STEADY, options=("--nodes", "1"))
    bench.wait(lambda: records(bench), "a checkpoint")
    process.send_signal(signal.SIGKILL)
    process.wait()
    for each in records(bench):
        (bench.folder / each.roots[0]).unlink()
    resumed = bench.dmr("resume", "run")
    assert resumed.returncode != 0
    assert "is whole any more" in resumed.stderr and "Traceback" not in resumed.stderr
    assert len(bench.history.generations) == 2  # and no restart of what can only fail again


@pytest.mark.parametrize("in_place", [False, True])
def test_a_partial_restart_file_is_never_used(bench: Any, foreign: Start, in_place: bool) -> None:
    restart = "in_place = true" if in_place else 'append = ["--start", "{checkpoint}"]'
    description = describe(NUMBERED + 'request = "interval"', restart)
    args = ["--every", "40", "--sleep", "0.05", "--die-in-write", "80", *(["--find"] if in_place else [])]
    process = foreign(description, 100, *args, options=("--nodes", "1"))
    out = bench.end(process)
    assert process.returncode == 0, out
    first, second = bench.history.generations
    assert (first.why, second.first_step) == ("crashed", 40), out
    assert "is damaged" not in out
    assert (bench.folder / "final.txt").read_text() == expected(100)
    if in_place:
        assert [path.name for path in bench.folder.glob(".set-aside-*")] == [".set-aside-0002-restart.80"]


def test_one_name_that_is_written_over_is_kept_as_copies(bench: Any, foreign: Start) -> None:
    description = describe('files = ["state"]\nrequest = "interval"', "in_place = true")
    args = ["--every", "40", "--sleep", "0.05", "--name", "state", "--find", "--die-in-write", "156"]
    process = foreign(description, 158, *args, options=("--nodes", "1", "--keep", "2"))
    out = bench.end(process)
    assert process.returncode == 0, out
    assert (bench.folder / "final.txt").read_text() == expected(158)
    first, second = bench.history.generations
    assert (first.why, second.why) == ("crashed", "finished"), out
    assert "steps in all, from 120" in out
    copies = [path for path in bench.run.checkpoints.iterdir() if path.is_dir()]
    assert len(copies) == 2 == len(records(bench))


def test_what_a_crash_left_before_the_first_checkpoint_is_set_aside(bench: Any, foreign: Start) -> None:
    description = describe('files = ["state"]\nrequest = "interval"', "in_place = true")
    args = ["--name", "state", "--find", "--die-in-write", "10"]
    process = foreign(description, 40, *args, options=("--nodes", "1"))
    out = bench.end(process)
    assert process.returncode == 0, out
    assert (bench.folder / "final.txt").read_text() == expected(40)
    assert "is damaged" not in out and (bench.folder / ".set-aside-0002-state").exists()


def test_without_an_answer_the_newest_checkpoint_has_to_do(bench: Any, foreign: Start) -> None:
    description = describe(KINDS["file"][0])  # the program does not look for that file
    options = ("--nodes", "1:2", "--start", "1", "--grace", "2")
    process = foreign(description, 400, "--every", "40", "--last", "40", options=options)
    bench.wait(lambda: records(bench), "a checkpoint")
    assert bench.dmr("resize", "run", "--nodes", "2", "--wait").returncode == 0
    out = bench.end(process)
    assert process.returncode == 0, out
    assert "no complete checkpoint in the time given" in out and "will be done again" in out
    assert (bench.folder / "final.txt").read_text() == expected(400)
    assert [each.nodes for each in bench.history.generations] == [1, 2]
    assert bench.history.crashes == 0


def test_without_any_checkpoint_it_goes_on_as_it_is(bench: Any, foreign: Start) -> None:
    options = ("--nodes", "1:2", "--start", "1", "--grace", "2")
    process = foreign(describe(KINDS["file"][0]), 200, options=options)
    bench.at_step(5)
    answer = bench.dmr("resize", "run", "--nodes", "2", "--wait")
    assert answer.returncode != 0 and "no complete checkpoint" in answer.stdout + answer.stderr
    out = bench.end(process)
    assert process.returncode == 0, out
    assert [each.nodes for each in bench.history.generations] == [1]
    assert (bench.folder / "final.txt").read_text() == expected(200)


def test_sizes_that_the_program_does_not_take_are_refused(bench: Any, foreign: Start) -> None:
    description = describe(KINDS["signal"][0], sizes='processes = "1:16:pow2"')
    process = foreign(description, 150, "--signal", "USR1", options=("--nodes", "1:4", "--start", "1"))
    bench.at_step(3)
    answer = bench.dmr("resize", "run", "--nodes", "3")
    text = answer.stdout + answer.stderr
    assert answer.returncode != 0 and "3 nodes are 3 processes, but program takes 1:16:pow2" in text
    assert bench.dmr("resize", "run", "--nodes", "2", "--wait").returncode == 0
    out = bench.end(process)
    assert process.returncode == 0, out
    assert "left out: 3 nodes" in out


def test_a_program_that_cannot_change_takes_one_size(bench: Any, foreign: Start) -> None:
    description = describe(KINDS["signal"][0], sizes="change = false")
    process = foreign(description, 10, "--signal", "USR1", options=("--nodes", "1:4"))
    out = bench.end(process)
    assert process.returncode == 2 and "sizes.change = false" in out
