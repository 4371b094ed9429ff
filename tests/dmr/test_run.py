"""A program under a hand that plays the launcher: restarted at other sizes, failing, told to end."""

from __future__ import annotations

import os
import re
import signal

import pytest

from dmr.ckpt import Store


def digest(out: str) -> str:
    found = re.findall(r"^digest .*$", out, re.M)
    assert len(found) == 1, out
    return found[0]


@pytest.fixture(scope="module")
def fixed_size(run_app) -> str:
    """The result of a run that never changed size."""
    return digest(run_app("field.py").out)


def test_result_does_not_depend_on_the_process_count(run_app, fixed_size):
    assert digest(run_app("field.py", ranks=4).out) == fixed_size


@pytest.mark.parametrize("sizes", [(1, 3, 2), (4, 1, 6)])
def test_restarted_at_other_sizes_it_ends_with_the_same_bits(hand, finish, fixed_size, sizes):
    for ranks in sizes[:-1]:
        started = hand.start("field.py", "--pace", 0.02, ranks=ranks)
        at = hand.wait(lambda p: p.state == "running" and p.step >= (p.loaded.step if p.loaded else 0) + 5)
        request = hand.ask("resize")
        ended = finish(started)
        assert ended.status == 0, ended.err
        assert "digest" not in ended.out and "after main" not in ended.out
        left = hand.progress()
        assert (left.state, left.acknowledged) == ("leaving", request)
        assert left.checkpoint is not None and left.checkpoint.step >= at.step
    ended = finish(hand.start("field.py", ranks=sizes[-1]))
    assert ended.status == 0, ended.err
    assert digest(ended.out) == fixed_size
    last = hand.progress()
    assert (last.state, last.step, last.steps, last.ranks) == ("finished", 60, 60, sizes[-1])
    assert last.loaded is not None and last.loaded.step == left.checkpoint.step


def test_a_checkpoint_on_request_goes_on(hand, finish, fixed_size):
    started = hand.start("field.py", "--pace", 0.01, ranks=2)
    hand.wait(lambda p: p.step > 3)
    request = hand.ask("checkpoint")
    done = hand.wait(lambda p: p.acknowledged == request)
    assert done.checkpoint is not None and done.state in ("running", "saving")
    assert digest(finish(started).out) == fixed_size
    assert [each.step for each in Store(hand.run_dir.checkpoints).list()] == [done.checkpoint.step]


def test_checkpoints_by_steps_are_made_at_those_steps_and_the_last_ones_kept(hand, finish):
    ended = finish(hand.start("field.py", ranks=2, env={"DMR_CHECKPOINT_EVERY": "7steps", "DMR_KEEP": "3"}))
    assert ended.status == 0, ended.err
    steps = [event["step"] for event in hand.run_dir.events() if event["event"] == "checkpoint"]
    assert steps == [7, 14, 21, 28, 35, 42, 49, 56]
    assert sorted(each.step for each in Store(hand.run_dir.checkpoints).list()) == [42, 49, 56]


def test_checkpoints_in_the_background_are_those_of_the_foreground(hand, finish, fixed_size):
    env = {"DMR_CHECKPOINT_EVERY": "7steps", "DMR_KEEP": "9", "DMR_CHECKPOINT_BACKGROUND": "1"}
    started = hand.start("field.py", "--pace", 0.02, ranks=3, env=env)
    told = hand.wait(lambda p: p.checkpoint is not None)
    assert told.checkpoint.step % 7 == 0
    hand.wait(lambda p: p.step > 30)
    hand.ask("resize")
    assert finish(started).status == 0
    left = hand.progress().checkpoint
    steps = [event["step"] for event in hand.run_dir.events() if event["event"] == "checkpoint"]
    assert steps[:4] == [7, 14, 21, 28] and steps[-1] == left.step
    (hand.run_dir.checkpoints / left.name).unlink()
    assert digest(finish(hand.start("field.py", ranks=2)).out) == fixed_size
    assert hand.progress().loaded.step == steps[-2]


@pytest.mark.parametrize(("how", "status"), [("raise", None), ("exit", 3), ("kill", None), ("all", None)])
def test_a_rank_that_fails_ends_all_and_speaks_once(hand, finish, fixed_size, how, status):
    started = hand.start("field.py", "--fail-at", 30, "--how", how, ranks=3, env={"DMR_CHECKPOINT_EVERY": "10steps"})
    ended = finish(started, within=30)
    assert ended.status != 0
    assert status in (None, ended.status)
    if how in ("raise", "all"):
        assert ended.err.count("Traceback (most recent call last)") == 1, ended.err
        failure = hand.run_dir.read_failure(1)
        assert failure is not None and failure["kind"] == "crash"
        assert how == "all" or (failure["rank"] == 1 and "dmr: rank 1 failed" in ended.err)
    ended = finish(hand.start("field.py", ranks=2))
    assert digest(ended.out) == fixed_size
    assert hand.progress().loaded.step == 30


MISMATCHES = {
    "shape": (("--shape", 37, 24), "array 'u'", "float64 (37, 23)", "float64 (37, 24)"),
    "dtype": (("--dtype", "f4"), "array 'u'", "float64 (37, 23)", "float32 (37, 23)"),
    "more": (("--extra",), "array 'a/b extra'", "does not hold it", "noise, total, u"),
    "fewer": (("--without-value",), "holds 'total'", "has not declared", "would be lost"),
}


@pytest.mark.parametrize("what", MISMATCHES)
def test_a_checkpoint_of_another_program_is_refused_by_name(hand, finish, what):
    args, *words = MISMATCHES[what]
    started = hand.start("field.py", "--pace", 0.02, ranks=2)
    hand.wait(lambda p: p.step > 3)
    hand.ask("resize")
    finish(started)
    ended = finish(hand.start("field.py", *args, ranks=3), within=30)
    assert ended.status != 0
    assert ended.err.count("dmr: error:") == 1 and "Traceback" not in ended.err
    assert all(word in ended.err for word in words), ended.err
    assert hand.run_dir.read_failure(2)["kind"] == "user"


def test_told_to_end_it_saves_first(hand, finish, fixed_size):
    started = hand.start("field.py", "--pace", 0.02)
    hand.wait(lambda p: p.step > 3)
    os.kill(hand.progress().pid, signal.SIGTERM)
    ended = finish(started)
    assert ended.status == 0, ended.err
    assert hand.progress().state == "leaving"
    assert digest(finish(hand.start("field.py", ranks=2)).out) == fixed_size


def test_a_save_that_fails_loses_nothing_and_says_so(hand, finish, fixed_size):
    started = hand.start("field.py", "--pace", 0.02, ranks=2)
    hand.wait(lambda p: p.step > 3)
    hand.run_dir.checkpoints.rename(hand.folder / "moved")
    (hand.folder / "checkpoints").write_text("in the way")
    request = hand.ask("resize")
    told = hand.wait(lambda p: p.acknowledged == request)
    assert told.state == "running" and told.error
    ended = finish(started)
    assert ended.status == 0 and digest(ended.out) == fixed_size
    assert ended.err.count("going on without it") == 1, ended.err


def test_a_generation_that_was_overtaken_may_not_save(hand, finish):
    started = hand.start("field.py", "--pace", 0.02, ranks=2)
    hand.wait(lambda p: p.step > 3)
    assert hand.run_dir.take_lease(2, {"token": "the next one"})
    hand.ask("checkpoint")
    ended = finish(started, within=30)
    assert ended.status != 0
    assert ended.err.count("has taken over") == 1, ended.err
    assert Store(hand.run_dir.checkpoints).list() == []


@pytest.mark.parametrize(("wish", "rank"), [("expand", 2), ("shrink", 0), ("stay", 1)])
def test_a_wish_of_any_one_rank_is_heard(hand, finish, wish, rank):
    started = hand.start("field.py", "--wish", wish, "--wish-rank", rank, "--pace", 0.02, ranks=3)
    if wish != "stay":
        told = hand.wait(lambda p: p.suggestion == wish)
        assert (told.expand_by, told.cancelled_expands) == (2, 1)
    assert finish(started).status == 0
    notes = [event for event in hand.run_dir.events() if event["event"] == "note"]
    assert [(note["note"], note["data"]["what"], note["step"]) for note in notes] == [("wished", wish, 3)]
    assert [event["phase"] for event in hand.run_dir.events() if event["event"] == "phase"] == ["main", None]


def test_two_loops_and_what_lies_between_them_once(hand, finish):
    for _ in range(2):
        started = hand.start("two_loops.py", 0.02, ranks=2)
        hand.wait(lambda p: p.step >= (p.loaded.step if p.loaded else 0) + 9)
        hand.ask("resize")
        assert finish(started).status == 0
    ended = finish(hand.start("two_loops.py", 0))
    assert "trace right step 35" in ended.out, ended.out + ended.err


@pytest.mark.parametrize(
    ("app", "ranks", "word"), [("nested.py", 1, "only one of the two"), ("uneven.py", 3, "different steps")]
)
def test_misuse_is_refused_in_a_line(hand, finish, app, ranks, word):
    ended = finish(hand.start(app, ranks=ranks), within=30)
    assert ended.status != 0
    assert word in ended.err and ended.err.count("dmr: error:") == 1 and "Traceback" not in ended.err


def test_the_four_calls(hand, finish, run_app, tmp_path):
    own = tmp_path / "own.txt"
    fixed = run_app("four_calls.py", 40, 0, own)
    assert fixed.status == 0, fixed.err
    started = hand.start("four_calls.py", 40, 0.02, own, ranks=3)
    told = hand.wait(lambda p: p.suggestion == "expand" and p.step > 3)
    assert told.state == "running"
    hand.ask("resize")
    ended = finish(started)
    assert ended.status == 0 and hand.progress().state == "leaving", ended.err
    saved = own.read_text()
    ended = finish(hand.start("four_calls.py", 40, 0, own, ranks=2))
    assert ended.status == 0, ended.err
    assert digest(ended.out) == f"{digest(fixed.out)} {saved}"
    assert saved.startswith("saved at ")
    assert hand.progress().state == "finished"


def test_without_mpi4py_one_process_runs_and_several_are_refused(run_app, tmp_path):
    (tmp_path / "mpi4py.py").write_text("raise ImportError('not here')")
    env = {"PYTHONPATH": str(tmp_path)}
    assert run_app("field.py", env=env).status == 0
    refused = run_app("field.py", env={**env, "OMPI_COMM_WORLD_SIZE": "2"})
    assert refused.status == 1 and "mpi4py can't be imported" in refused.err


def test_every_kind_of_state_is_right_at_other_sizes(hand, finish):
    for ranks in (3, 2, 5):
        started = hand.start("kinds.py", 0.02, ranks=ranks)
        hand.wait(lambda p: p.state == "running" and p.step >= (p.loaded.step if p.loaded else 0) + 5)
        hand.ask("resize")
        ended = finish(started)
        assert ended.status == 0, ended.err
    ended = finish(hand.start("kinds.py", 0))
    assert "all right" in ended.out, ended.err
