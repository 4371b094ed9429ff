"""Requests that come while no ranks are there, or while they start: heeded as early as is safe, and nothing is lost."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

APPS = Path(__file__).parent / "apps"
Expected = Callable[[int], np.ndarray]


def slow(bench: Any, seconds: float, *args: object) -> Any:
    """Start a run whose second generation takes so long until its ranks report."""
    return bench.start(
        "dmr-launch", "--engine", "local", "--local-nodes", "4", "--nodes", "1:4", "--start", "2", "--dwell", "1h",
        "--run-dir", "run", "--", sys.executable, str(APPS / "slow.py"), str(seconds), *map(str, args),
    )  # fmt: skip


def to_second_generation(bench: Any, *, reported: bool) -> None:
    bench.at_step(5)
    assert bench.dmr("resize", "run", "--nodes", "1").returncode == 0

    def there() -> bool:
        progress = bench.run.read_progress()
        own = progress.generation == 2 and progress.state == "starting" and progress.loaded
        return bool(own) if reported else len(bench.events("launched")) == 2

    bench.wait(there, "the second generation")
    if not reported:
        time.sleep(1.0)  # for it to import dmr


@pytest.mark.parametrize("reported", [False, True])
def test_a_stop_while_ranks_start_ends_them_at_once(bench: Any, reported: bool) -> None:
    process = slow(bench, 0 if reported else 30, 5000, *(("--get-ready", 12) if reported else ()))
    to_second_generation(bench, reported=reported)
    began = time.monotonic()
    assert bench.dmr("stop", "run", "--wait").stdout.endswith("done: stopped\n")
    out = bench.end(process)
    assert time.monotonic() - began < 8 and process.returncode == 0, out
    first, second = bench.history.generations
    assert (first.why, second.why) == ("shrink", "stopped")
    assert bench.run.read_progress().checkpoint.step == first.step
    again = bench.start("dmr", "resume", "run")
    bench.at_step(first.step + 1, 3)
    assert bench.dmr("stop", "run", "--now").returncode == 0
    assert f"continues at step {first.step} from" in bench.end(again)


def test_ranks_that_have_not_come_up_are_started_at_the_size_that_is_wanted(
    bench: Any, expected_after: Expected
) -> None:
    process = slow(bench, 60, 100)
    to_second_generation(bench, reported=False)
    answer = bench.dmr("resize", "run", "--nodes", "4", "--wait")
    assert answer.returncode == 0 and answer.stdout == "done: runs on 4 nodes\n", answer
    out = bench.end(process, within=40)
    assert process.returncode == 0, out
    assert np.array_equal(bench.final(), expected_after(100))
    history = bench.history
    assert [(each.nodes, each.why) for each in history.generations] == [(2, "shrink"), (1, "expand"), (4, "finished")]
    assert history.generations[1].first_step is None and history.crashes == 0


def test_what_is_asked_while_ranks_load_is_served_when_they_compute(bench: Any, expected_after: Expected) -> None:
    process = slow(bench, 0, 100, "--get-ready", 4)
    to_second_generation(bench, reported=True)
    answer = bench.dmr("checkpoint", "run", "--wait")
    assert answer.returncode == 0 and answer.stdout.splitlines()[1].startswith("step-"), answer
    assert bench.history.generations[-1].first_step is not None
    out = bench.end(process)
    assert process.returncode == 0, out
    assert np.array_equal(bench.final(), expected_after(100))


def test_a_size_that_is_asked_for_while_ranks_load_comes(bench: Any, expected_after: Expected) -> None:
    process = slow(bench, 0, 100, "--get-ready", 3)
    to_second_generation(bench, reported=True)
    assert "going to 3 nodes, as soon as" in bench.dmr("resize", "run", "--nodes", "3").stdout
    out = bench.end(process)
    assert process.returncode == 0, out
    assert [each.nodes for each in bench.history.generations] == [2, 1, 3]
    assert np.array_equal(bench.final(), expected_after(100))


def test_a_stop_between_generations_starts_no_ranks(bench: Any) -> None:
    process = bench.launch(40, "--fail-at", 0, "--always", options=("--nodes", "1", "--max-restarts", "9"))
    bench.wait(lambda: len(bench.events("ended")) == 2, "two failures")
    began = time.monotonic()
    assert bench.dmr("stop", "run").returncode == 0
    out = bench.end(process)
    assert time.monotonic() - began < 5 and process.returncode == 0, out
    assert "ending the run before the next start" in out
    assert [each.why for each in bench.history.generations] == ["crashed", "stopped"]


def test_another_size_between_generations_is_the_one_that_is_started(bench: Any) -> None:
    process = bench.launch(40, "--fail-at", 0, "--always", options=("--nodes", "1:4", "--start", "2"))
    bench.wait(lambda: len(bench.events("ended")) == 2, "two failures")
    assert bench.dmr("resize", "run", "--nodes", "4").stdout.startswith("accepted: going to 4 nodes, as soon as")
    out = bench.end(process)
    assert process.returncode == 1, out
    assert [(each.nodes, each.cause) for each in bench.history.generations] == [
        (2, "fresh"), (2, "restart"), (4, "restart"),
    ]  # fmt: skip


def test_a_program_that_has_not_imported_dmr_is_asked_nothing(bench: Any) -> None:
    process = bench.start(
        "dmr-launch", "--engine", "local", "--local-nodes", "2", "--nodes", "1:2", "--run-dir", "run", "--",
        "sleep", "4",
    )  # fmt: skip
    bench.wait(lambda: bench.events("launched"), "the start")
    for request in (("resize", "run", "--nodes", "1"), ("checkpoint", "run")):
        answer = bench.dmr(*request)
        assert answer.returncode != 0 and "has not imported dmr yet" in answer.stderr
    bench.end(process)
    assert process.returncode == 0 and len(bench.history.generations) == 1
