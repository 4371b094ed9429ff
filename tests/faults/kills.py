"""SIGKILL at random instants: of the one process, of one rank, of rank 0, of all ranks."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import common

from dmr.ckpt import Store


def one_process(folder: Path, count: int, dice: random.Random, *, levels: bool = False) -> dict[str, Any]:
    """Kill a process that saves, again and again, at random instants of its saves; or of those in two levels."""
    common.small_pieces()
    log, node = folder / "log", _node(folder, levels)
    cost = seconds_of_a_save(folder / "warm")
    commits = during = alone = 0
    for _ in range(count):
        before = common.reported(log)
        child = os.fork()
        if child == 0:
            try:
                store = Store(folder / "checkpoints", fast_dir=node)
                for step in range(before + 1, before + 1000):
                    store.save(step, common.state(step))
                    common.report(log, step)
            finally:
                os._exit(1)
        time.sleep(dice.uniform(0, 4 * cost))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        during += any(path.is_file() for path in (folder / "checkpoints").glob(".staging-*/step-*"))
        at_least = common.reported(log)
        found, only_there = _judge(folder / "checkpoints", at_least, node)
        alone += only_there
        assert found <= at_least + 1
        if found > at_least:  # committed, and killed before it could tell
            common.report(log, found)
        commits += found - before
    assert commits > 0 and during > 0, f"{count} kills met {during} saves under way and let {commits} end"
    assert bool(alone) == levels
    return {"kills": count, "in_the_middle_of_a_save": during, "commits": commits, "on_the_node_alone": alone}


def _node(folder: Path, levels: bool) -> Path | None:
    node = folder / "node"
    node.mkdir(mode=0o700)
    return node if levels else None


def _judge(checkpoints: Path, at_least: int, node: Path | None) -> tuple[int, bool]:
    if node is None:
        return common.judge(checkpoints, at_least), False
    return common.judge_levels(checkpoints, at_least, node)


def seconds_of_a_save(folder: Path) -> float:
    """Return what a save takes here and now; the libraries are then loaded, in the processes to be killed too."""
    with Store(folder) as store:
        store.save(0, common.state(0))
        begin = time.perf_counter()
        for step in range(1, 6):
            store.save(step, common.state(step))
        return (time.perf_counter() - begin) / 5


def ranks(folder: Path, count: int, dice: random.Random, *, levels: bool = False) -> dict[str, Any]:
    """Kill ranks of an MPI job: in turn one of them, rank 0, all. Its saves are in two levels if that is asked for."""
    command = common.mpi_command(3)
    if not command:
        return {"kills": 0, "skipped": "no MPI"}
    log, ready, node = folder / "log", folder / "ready", _node(folder, levels)
    fast = [] if node is None else [str(node)]
    commits, alone, slowest = 0, 0, 0.0
    window = 0.3 if levels else 0.15
    for number in range(count):
        before = common.reported(log)
        ready.unlink(missing_ok=True)
        job = subprocess.Popen(
            [*command, str(common.HERE / "saver.py"), str(folder / "checkpoints"), str(log), str(ready), *fast],
            env=common.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        limit = time.monotonic() + 60
        while not ready.exists():
            assert job.poll() is None and time.monotonic() < limit, "the job did not start"
            time.sleep(0.005)
        pids = [int(each) for each in ready.read_text().split()]
        time.sleep(dice.uniform(0, window))
        victims = {0: pids, 1: pids[:1], 2: [dice.choice(pids[1:])]}[number % 3]
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        slowest = max(slowest, common.end_within(job, 30))
        at_least = common.reported(log)
        found, only_there = _judge(folder / "checkpoints", at_least, node)
        alone += only_there
        assert found <= at_least + 1
        if found > at_least:
            common.report(log, found)
        commits += found - before
        if not commits:  # a machine on which even the first save takes longer
            window = min(2 * window, 4.0)
    assert commits > 0
    slowest = round(slowest, 2)
    return {"kills": count, "commits": commits, "slowest_end_seconds": slowest, "on_the_node_alone": alone}


def every_point(folder: Path, *, levels: bool = False, compress: str | None = None) -> dict[str, Any]:
    """Kill a save at each of its calls to the system that open, write, sync, rename or remove, one after the other.

    In two levels, the calls are those of the copy to the shared folder, too.
    """
    common.small_pieces()
    names = ("open", "pwrite", "fsync", "rename", "replace", "unlink", "mkdir", "close")
    points = alone = 0
    target, node = folder / "checkpoints", _node(folder, levels)
    with Store(target) as store:
        store.save(1, common.state(1))
        store.save(2, common.state(2))
    outcomes = {"before": 0, "after": 0}
    while True:
        points += 1
        child = os.fork()
        if child == 0:
            try:
                _die_at(names, points)
                store = Store(target, fast_dir=node, compress=compress)
                store.save(3, common.state(3))
                store.wait()
            finally:
                os._exit(7)
        _, status = os.waitpid(child, 0)
        found, only_there = _judge(target, 2, node)
        alone += only_there
        if not os.WIFSIGNALED(status):
            assert os.WEXITSTATUS(status) == 7 and found == 3
            break
        outcomes["after" if found == 3 else "before"] += 1
        for path in target.glob("step-*3-g0000.h5"):
            path.unlink()
    assert points > 30 and all(outcomes.values()), (points, outcomes)
    assert bool(alone) == levels
    return {"points": points - 1, **outcomes, "on_the_node_alone": alone}


def _die_at(names: tuple[str, ...], point: int) -> None:
    left = point

    def wrap(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **kwargs)

        return call

    for name in names:
        setattr(os, name, wrap(getattr(os, name)))
