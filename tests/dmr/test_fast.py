"""A program that saves to a folder of its node first: restarted there and elsewhere, killed, at its end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dmr.ckpt import Store
from dmr.launcher.run.rundir import Control


def digest(out: str) -> str:
    (found,) = re.findall(r"^digest .*$", out, re.M)
    return str(found)


@pytest.fixture(scope="module")
def fixed_size(run_app) -> str:
    """The result of a run that never changed size."""
    return digest(run_app("field.py").out)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    folder = tmp_path / "node"
    folder.mkdir(mode=0o700)
    return folder


def left(node: Path) -> list[str]:
    return sorted(each.name for each in node.rglob("step-*.h5"))


def names(hand) -> list[str]:
    return sorted(each.name for each in hand.run_dir.checkpoints.glob("step-*.h5"))


def fast(node: Path, every: int = 7) -> dict[str, str]:
    return {"DMR_FAST_DIR": str(node), "DMR_CHECKPOINT_EVERY": f"{every}steps", "DMR_KEEP": "3"}


@pytest.mark.parametrize("background", ["0", "1"])
def test_at_the_end_all_is_in_the_run_directory(hand, finish, fixed_size, node, background):
    env = {**fast(node), "DMR_CHECKPOINT_BACKGROUND": background}
    ended = finish(hand.start("field.py", ranks=3, env=env))
    assert digest(ended.out) == fixed_size, ended.err
    assert [each.step for each in Store(hand.run_dir.checkpoints).list()] == [56, 49, 42]
    assert list(node.iterdir()) == []
    events = hand.run_dir.events()
    saved = [each for each in events if each["event"] == "checkpoint"]
    assert [each["step"] for each in saved] == [7, 14, 21, 28, 35, 42, 49, 56] and all(each["fast"] for each in saved)
    assert [each["step"] for each in events if each["event"] == "drained"] == [each["step"] for each in saved]
    told = hand.progress()
    assert told.checkpoint.step == 56 and not told.checkpoint.fast and told.drain_seconds > 0


def test_who_leaves_for_another_node_leaves_its_state_in_the_run_directory(hand, finish, fixed_size, node, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for here in (node, other, node):
        started = hand.start("field.py", "--pace", 0.01, ranks=3, env=fast(here))
        at = hand.wait(lambda p: p.state == "running" and p.step >= (p.loaded.step if p.loaded else 0) + 9)
        hand.ask("resize")
        ended = finish(started)
        assert ended.status == 0, ended.err
        told = hand.progress().checkpoint
        assert told.step >= at.step and not told.fast and told.name in names(hand)
        assert list(here.iterdir()) == [], "nothing is left on a node that is not needed any more"
    ended = finish(hand.start("field.py", ranks=2))
    assert digest(ended.out) == fixed_size and hand.progress().loaded.step == told.step


def test_who_stays_on_the_node_goes_on_from_there(hand, finish, fixed_size, node):
    for ranks in (3, 1, 2):
        started = hand.start("field.py", "--pace", 0.01, ranks=ranks, env=fast(node, 1000))
        hand.wait(lambda p: p.state == "running" and p.step >= (p.loaded.step if p.loaded else 0) + 5)
        hand.requests += 1
        hand.run_dir.write_control(Control(hand.requests, hand.number, "resize", here=True))
        ended = finish(started)
        assert ended.status == 0, ended.err
        told = hand.progress().checkpoint
        assert told.fast and left(node) == [told.name] and told.name not in names(hand)
    ended = finish(hand.start("field.py", "--pace", 0.01, ranks=4, env=fast(node, 1000)))
    assert digest(ended.out) == fixed_size, ended.err
    loaded = hand.progress().loaded
    assert loaded.fast and loaded.name == told.name in names(hand), "the next generation has copied it"
    assert list(node.iterdir()) == []


@pytest.mark.parametrize("how", ["kill", "raise"])
def test_after_a_crash_the_newest_one_is_loaded(hand, finish, fixed_size, node, how):
    started = hand.start("field.py", "--fail-at", 30, "--how", how, ranks=3, env=fast(node, 10))
    assert finish(started).status != 0
    assert left(node) == ["step-000000000030-g0001.h5"]
    ended = finish(hand.start("field.py", ranks=2, env=fast(node, 10)))
    assert digest(ended.out) == fixed_size, ended.err
    loaded = hand.progress().loaded
    assert loaded.step == 30 and loaded.fast and list(node.iterdir()) == []


def test_a_shared_folder_that_takes_no_copy_is_told_and_survived(hand, finish, fixed_size, node):
    """The checkpoint folder is away for a while."""
    started = hand.start("field.py", "--pace", 0.02, ranks=2, env=fast(node, 5))
    hand.wait(lambda p: p.checkpoint is not None and not p.checkpoint.fast)
    folder = hand.run_dir.checkpoints
    moved = folder.rename(folder.with_name("away"))
    told = hand.wait(lambda p: p.error is not None)
    assert "is on this node alone" in told.error and "vanished" in told.error
    moved.rename(folder)
    hand.wait(lambda p: p.error is None and p.checkpoint.step > told.step and not p.checkpoint.fast)
    ended = finish(started)
    assert digest(ended.out) == fixed_size and ended.err.count("dmr: going on, although") >= 1
    assert list(node.iterdir()) == []


def test_a_folder_that_anybody_can_write_is_not_used(hand, finish, fixed_size, node):
    node.chmod(0o777)
    ended = finish(hand.start("field.py", ranks=2, env=fast(node)))
    assert digest(ended.out) == fixed_size and ended.err.count("is not sticky") == 1
    assert list(node.iterdir()) == [] and [each.step for each in Store(hand.run_dir.checkpoints).list()][0] == 56
