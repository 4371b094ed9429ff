"""Folders that are read only, vanish, or are written by two jobs at once."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import common

from dmr.ckpt import CheckpointError, StorageError, Store


def read_only(folder: Path) -> dict[str, Any]:
    """Save into a folder that may not be written, as a user without privileges; load from it."""
    common.small_pieces()
    folder.chmod(0o755)
    target = folder / "checkpoints"
    with Store(target) as store:
        store.save(1, common.state(1))
    target.chmod(0o555)
    for path in target.iterdir():
        path.chmod(0o444)

    def body() -> None:
        if os.getuid() == 0:
            os.setuid(65534)
        with Store(target) as store:
            try:
                store.save(2, common.state(2))
            except StorageError as error:
                assert "Permission denied" in str(error), error
            else:
                raise AssertionError("it was written all the same")
        assert common.judge(target, 1) == 1

    for parent in folder.parents:
        if not parent.stat().st_mode & 0o005 and os.getuid() == 0:
            return {"cases": 0, "skipped": f"{parent} is closed to others"}
    _in_child(body)
    target.chmod(0o755)
    return {"cases": 1}


def vanished(folder: Path) -> dict[str, Any]:
    """The folder, or the staging folder, is removed between two saves and during one."""
    common.small_pieces()
    target = folder / "checkpoints"
    with Store(target) as store:
        store.save(1, common.state(1))
        shutil.rmtree(target)
        try:
            store.save(2, common.state(2))
        except StorageError as error:
            assert "vanished" in str(error), error
        else:
            raise AssertionError("a folder that vanished was made again")
        target.mkdir()
        store.save(3, common.state(3))
        assert common.judge(target, 3) == 3
        import dmr.ckpt.save

        original = dmr.ckpt.save.sync_file

        def remove_first(path: Path) -> None:
            shutil.rmtree(path.parent)
            original(path)

        dmr.ckpt.save.sync_file = remove_first
        try:
            store.save(4, common.state(4))
        except CheckpointError:
            pass
        else:
            raise AssertionError("a save without its staging folder")
        finally:
            dmr.ckpt.save.sync_file = original
        assert common.judge(target, 3) == 3
        store.save(5, common.state(5))
        assert common.judge(target, 5) == 5
    return {"cases": 4}


def size_limit(folder: Path) -> dict[str, Any]:
    """A limit on the size of files, as a quota gives: the write comes short."""
    common.small_pieces()
    target = folder / "checkpoints"
    with Store(target) as store:
        size = store.save(1, common.state(1)).bytes
    cases = 0
    for limit in range(0, size, size // 23):

        def body(limit: int = limit) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            try:
                Store(target).save(2, common.state(2))
            except CheckpointError:
                return
            raise AssertionError(f"saved under a limit of {limit} bytes")

        _in_child(body)
        assert common.judge(target, 1) == 1
        cases += 1
    return {"cases": cases}


def two_writers(folder: Path, seconds: float) -> dict[str, Any]:
    """Two jobs save into one folder at the same time, without a launcher that would keep them apart."""
    command = common.mpi_command(2) or [sys.executable]
    jobs = []
    for name in ("a", "b"):
        arguments = [str(folder / "checkpoints"), str(folder / f"log-{name}"), str(folder / f"ready-{name}")]
        jobs.append(
            subprocess.Popen(
                [*command, str(common.HERE / "saver.py"), *arguments],
                env=common.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    limit = time.monotonic() + 60
    while not all((folder / f"ready-{name}").exists() for name in ("a", "b")):
        assert time.monotonic() < limit and all(job.poll() is None for job in jobs), "the jobs did not start"
        time.sleep(0.01)
    judged, least = 0, 0
    until = time.monotonic() + seconds
    while time.monotonic() < until or (least == 0 and time.monotonic() < limit):
        steps = [common.reported(folder / f"log-{name}") for name in ("a", "b")]
        least, at_least = min(steps), max(steps)
        with Store(folder / "checkpoints") as store:
            newest = store.list()
        if newest and newest[0].step >= at_least:
            judged += 1
    for job in jobs:
        assert job.poll() is None, f"a writer ended: {job.communicate()[1][-2000:]}"
        job.terminate()
    for job in jobs:
        common.end_within(job, 30)
        assert job.stderr is not None
        job.stderr.close()
    steps = [common.reported(folder / f"log-{name}") for name in ("a", "b")]
    common.judge(folder / "checkpoints", max(steps))
    return {"saves": sum(steps), "looks": judged}


def _in_child(body: Any) -> None:
    child = os.fork()
    if child == 0:
        try:
            body()
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0, "see above"
