"""Requests of users: none is overlooked, and a launcher that is busy is not said to be gone."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from dmr.launcher.cli import UserError, steer
from dmr.launcher.run.requests import Requests
from dmr.launcher.run.rundir import RunDir


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir.create(tmp_path / "run", {"run": "r"})


def test_a_request_is_found_though_the_file_server_keeps_another_time(run: RunDir) -> None:
    """The folder's time is an hour behind, and so coarse that the request does not change it."""
    taker, poster = Requests(run), Requests(run)
    behind = time.time_ns() - 3600 * 10**9
    os.utime(taker.folder, ns=(behind, behind))
    assert taker.take() == []
    poster.post("resize", nodes=2)
    os.utime(taker.folder, ns=(behind, behind))
    assert [each.nodes for each in taker.take()] == [2]
    assert taker.take() == []


def test_a_folder_at_rest_is_listed_rarely(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    taker, now = Requests(run), [1000.0]
    monkeypatch.setattr("dmr.launcher.run.requests.time.monotonic", lambda: now[0])
    listed: list[float] = []
    real = os.listdir
    monkeypatch.setattr("dmr.launcher.run.requests.os.listdir", lambda path: listed.append(now[0]) or real(path))
    for _ in range(150):
        taker.take()
        now[0] += 0.2
    assert len(listed) < 20


def test_a_busy_launcher_is_waited_for(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steer, "_why_not_alive", lambda run_dir: "")
    taker, requests = Requests(run), Requests(run)
    name = requests.post("resize", nodes=2)

    def late() -> None:
        time.sleep(0.3)
        (request,) = taker.take()
        taker.answer(request, "accepted", "going to 2 nodes")

    thread = threading.Thread(target=late)
    thread.start()
    assert steer._answer(run, requests, name, 10.0)["state"] == "accepted"
    thread.join()


@pytest.mark.parametrize(("problem", "words"), [("", "lives, but has not taken this up"), ("it is gone", "it is gone")])
def test_a_request_that_nobody_takes_up_is_taken_back(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, problem: str, words: str
) -> None:
    monkeypatch.setattr(steer, "_why_not_alive", lambda run_dir: problem)
    monkeypatch.setattr(steer, "LOOK", 0.05)
    requests = Requests(run)
    name = requests.post("resize", nodes=2)
    with pytest.raises(UserError, match=words):
        steer._answer(run, requests, name, 0.3)
    assert Requests(run).take() == []


@pytest.mark.parametrize(("keep", "words"), [("n[3-1]", "names no node"), ("n[1-3]", "more than --nodes 2")])
def test_nodes_to_keep_are_a_list_that_fits(keep: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        steer._names(keep, 2)
    assert steer._names("n[2,4]", 2) == ("n2", "n4")
    assert steer._names(None, 2) == ()
