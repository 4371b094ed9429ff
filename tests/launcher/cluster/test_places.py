"""Folders, ports, processes and programs, without a Slurm."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dmr.launcher.cluster import ClusterError, PrivateCluster, SlurmMissing, places, ports, processes, tools
from dmr.launcher.cluster import state as states
from dmr.launcher.cluster.conf import Spec
from dmr.launcher.cluster.ending import sweep


@pytest.fixture
def own_base(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = Path(f"/tmp/dmr-test-{os.getpid()}")
    monkeypatch.setenv(places.VARIABLE, str(path))
    return path


@pytest.mark.parametrize("name", ["", "-x", "a/b", "..", "a b", "x" * 25, "ä"])
def test_a_name_that_can_not_be_a_folder_is_refused(name: str) -> None:
    with pytest.raises(ClusterError, match="can't name a cluster"):
        places.new_folder(name)


def test_a_path_too_long_for_sockets_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(places.VARIABLE, "/tmp/" + "long" * 20)
    with pytest.raises(ClusterError, match=r"too long a path for sockets.*DMR_CLUSTER_DIR"):
        PrivateCluster(name="x")


def test_a_folder_open_to_others_is_refused(own_base: Path) -> None:
    own_base.mkdir()
    own_base.chmod(0o777)
    try:
        with pytest.raises(ClusterError, match="only this user"), places.locked():
            pass
        with pytest.raises(ClusterError, match="only this user"):
            places.folders()
    finally:
        own_base.rmdir()


def test_a_link_in_the_folders_place_is_refused(own_base: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    own_base.symlink_to(tmp_path)
    try:
        with pytest.raises(ClusterError, match="only this user"), places.locked():
            pass
    finally:
        own_base.unlink()


def test_a_missing_parent_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(places.VARIABLE, "/tmp/none/such")
    with pytest.raises(ClusterError, match="/tmp/none is no folder"), places.locked():
        pass


def test_the_lock_excludes_and_leaves_nothing(own_base: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with places.locked():
            order.append("second")

    with places.locked():
        assert own_base.stat().st_mode & 0o777 == 0o700
        other = threading.Thread(target=second)
        other.start()
        time.sleep(0.1)
        order.append("first")
    other.join(5)
    assert order == ["first", "second"]
    assert not own_base.exists()


def test_many_come_and_go_at_once(own_base: Path) -> None:
    """Each of them may be the one that takes the folder away while another makes it."""
    code = "from dmr.launcher.cluster import places\nfor _ in range(300):\n    with places.locked(): pass"
    started = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) for _ in range(4)]
    ended = [(each.communicate(timeout=60)[1], each.returncode) for each in started]
    assert ended == [("", 0)] * 4
    assert not own_base.exists()


def test_free_ports_are_free_and_not_promised() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        first = ports.free_block(50)
        again = ports.free_block(50, taken=range(first, first + 50))
        assert set(range(first, first + 50)).isdisjoint(range(again, again + 50))
        assert not ports._is_free(taken.getsockname()[1])
    with pytest.raises(ClusterError, match="free ports"):
        ports.free_block(10, taken=range(1, 40000))


def test_a_process_is_known_by_its_start_too() -> None:
    child = subprocess.Popen(["sleep", "60"])
    found = processes.identify(child.pid)
    assert found is not None and processes.alive(found)
    other = processes.Process(found.pid, found.started - 1)
    assert not processes.alive(other)
    processes.send(other, 9)
    assert child.poll() is None
    processes.send(found, 9)
    assert processes.wait_gone([found], 5) == []
    child.wait()


def test_a_process_elsewhere_with_the_environment_of_a_cluster_is_not_ours(tmp_path: Path) -> None:
    """A shell turned towards the cluster, and what is started from it, outlives the cluster."""
    environment = {**os.environ, "SLURM_CONF": str(tmp_path / "slurm.conf")}
    bystander = subprocess.Popen(["sleep", "60"], env=environment)
    task = subprocess.Popen(["sleep", "60"], env={**environment, "SLURMD_NODENAME": "n1"})
    try:
        deadline = time.monotonic() + 5
        while task.pid not in {each.pid for each in processes.belonging(tmp_path)} and time.monotonic() < deadline:
            time.sleep(0.02)
        assert {each.pid for each in processes.belonging(tmp_path)} == {task.pid}
        assert {each.pid for each in processes.belonging(tmp_path, "n1")} == {task.pid}
        assert processes.belonging(tmp_path, "n2") == {}
        assert processes.end(tmp_path) == []
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
        task.kill()


def test_what_nobody_owns_any_more_is_swept(own_base: Path) -> None:
    child = subprocess.Popen([sys.executable, "-P", "-c", "import time; time.sleep(60)"])
    owner = processes.identify(child.pid)
    me = processes.identify(os.getpid())
    assert owner is not None and me is not None
    for name, owned_by in (("mine", me), ("theirs", owner)):
        folder = own_base / name
        folder.mkdir(parents=True)
        own_base.chmod(0o700)
        states.State(name, Spec(), 11000, 11002, None, starter=owner, owner=owned_by, ready=True).save(folder)
    assert sweep() == []
    child.kill()
    child.wait()
    assert sweep() == ["theirs"]
    assert [each.name for each in PrivateCluster.every()] == ["mine"]
    found = PrivateCluster.find("mine")
    assert found is not None
    found.down()
    assert not own_base.exists()


def test_an_unreadable_state_counts_as_none(tmp_path: Path) -> None:
    for text in ("", "{}", '{"format": 99}', '{"format": 1}', "[]"):
        (tmp_path / "state.json").write_text(text)
        assert states.load(tmp_path) is None


def test_missing_programs_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tools, "_SBIN", ())
    with pytest.raises(SlurmMissing, match=r"slurmctld.*apt-get install slurmctld slurmd slurm-client"):
        PrivateCluster(nodes=1).up()
    reason = tools.missing()
    assert reason is not None and "munge" in reason
