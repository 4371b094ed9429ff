"""A program that ends while something is saved in the background: it is saved to its end, or the error is told."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dmr import ckpt
from dmr.ckpt.comm.threads import Pool, Task

SCRIPT = Path(__file__).parent / "ranks" / "ends.py"


def run(tmp_path: Path, kind: str, ranks: int, on_ranks: Any) -> str:
    if ranks > 1:
        found = on_ranks(ranks, "ends.py", tmp_path, ranks, kind)
    else:
        command = [sys.executable, str(SCRIPT), str(tmp_path), "1", kind]
        found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert found.returncode == 0, found.stderr
    return str(found.stdout + found.stderr)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("kind", ["plain", "packed", "fast"])
def test_what_was_begun_is_saved(tmp_path: Path, kind: str, ranks: int, on_ranks: Any) -> None:
    said = run(tmp_path, kind, ranks, on_ranks)
    assert "in the background" not in said and "Traceback" not in said and "Error" not in said
    (path,) = (tmp_path / "shared").glob("step-*.h5")
    with ckpt.open(path) as file:
        assert file.verify() == [] and file["t"][39, 2999] == file["t"][39][2999] > 0


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_error_that_nobody_asked_for_is_told_once(tmp_path: Path, ranks: int, on_ranks: Any) -> None:
    said = run(tmp_path, "fails", ranks, on_ranks)
    assert not list((tmp_path / "shared").glob("step-*.h5"))
    assert said.count("save in the background: ") == 1 and "No space left on device" in said, said
    assert "Traceback" not in said


def test_a_pool_that_takes_no_work_leaves_it_to_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(2, "test")
    inside = pool.submit(threading.current_thread)
    assert inside.result() is not threading.current_thread()
    submit = ThreadPoolExecutor.submit

    def late(self: Any, *args: Any) -> None:
        submit(self, *args)
        raise RuntimeError("can't start new thread")

    def refused(self: Any, *args: Any) -> None:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    for way in (late, refused):
        monkeypatch.setattr(ThreadPoolExecutor, "submit", way)
        done: list[int] = []
        assert pool.submit(done.append, 1).result() is None and done == [1]
        with pytest.raises(ZeroDivisionError):
            pool.submit(lambda: 1 // 0).result()
    pool.close()


def test_a_task_is_done_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert Task(lambda: 7, "seven", tell=True).result() == 7
    failed = Task(lambda: 1 // 0, "nothing", tell=True)
    assert not failed.busy
    with pytest.raises(ZeroDivisionError):
        failed.result()
