"""The commands of ``dmr cluster``, as a shell sees them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmr.launcher.cluster import PrivateCluster, processes
from dmr.launcher.cluster.tools import missing

PROGRAM = [sys.executable, "-P", "-c", "from dmr.launcher.cli.cluster import cluster; cluster(prog_name='dmr cluster')"]


def dmr(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.fixture
def name() -> Iterator[str]:
    if reason := missing():
        pytest.skip(reason)
    chosen = f"test{os.getpid()}"
    yield chosen
    left = PrivateCluster.find(chosen)
    if left is not None:
        left.down()


def test_from_up_to_down(name: str) -> None:
    up = dmr("up", "--nodes", "2", "--name", name, "--partition", "day MaxTime=60", "--partition", "night")
    assert up.returncode == 0, up.stderr
    assert "2 nodes idle" in up.stdout

    again = dmr("up", "--name", name)
    assert again.returncode == 1 and f"dmr cluster down --name {name}" in again.stderr

    status = dmr("status", "--name", name, "--json")
    (found,) = json.loads(status.stdout)
    assert found["condition"] == "up" and found["nodes"] == {"n1": "idle", "n2": "idle"}
    assert "2 idle" in dmr("status").stdout

    turned = subprocess.run(
        ["sh", "-c", 'eval "$EXPORTS"; sinfo --noheader --format=%R; unset PATH'],
        env={"EXPORTS": dmr("env", "--name", name).stdout, "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert sorted(turned.stdout.split()) == ["day", "night"]

    inside = dmr("run", "--name", name, "--", "srun", "-N2", "printenv", "SLURMD_NODENAME")
    assert sorted(inside.stdout.split()) == ["n1", "n2"]

    folder = Path(found["folder"])
    down = dmr("down", "--name", name)
    assert down.returncode == 0 and not folder.exists() and processes.belonging(folder) == {}
    gone = dmr("down", "--name", name)
    assert gone.returncode == 1 and f"there is no cluster '{name}'" in gone.stderr


@pytest.mark.parametrize(("script", "status"), [("exit 7", 7), ("kill -TERM $$", 143), ("true", 0)])
def test_the_status_of_the_command_is_passed_on(name: str, script: str, status: int) -> None:
    done = dmr("run", "--nodes", "1", "--", "sh", "-c", f"echo $SLURM_CONF; {script}")
    assert done.returncode == status, done.stderr
    assert not Path(done.stdout.strip()).parent.exists()


def test_a_command_that_is_not_there(name: str) -> None:
    done = dmr("run", "--nodes", "1", "--", "no-such-program")
    assert done.returncode == 1 and "can't run 'no-such-program'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_ended_run_leaves_nothing(name: str, number: int) -> None:
    argv = [*PROGRAM, "run", "--nodes", "1", "--", "sh", "-c", "echo $SLURM_CONF; exec sleep 60"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        folder = Path(running.stdout.readline().strip()).parent
        running.send_signal(number)
        limit = time.monotonic() + 20
        while folder.exists():
            assert time.monotonic() < limit, "the cluster outlives the command"
            time.sleep(0.05)
        assert running.wait() == (143 if number == signal.SIGTERM else -9)


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (("up", "--name", "a/b"), "can't name a cluster"),
        (("up", "--nodes", "0"), "--nodes"),
        (("up", "--config", "KillWait"), "no KEY=VALUE"),
        (("env", "--name", "nobody-has-it"), "there is no cluster 'nobody-has-it'"),
        (("run",), "COMMAND"),
    ],
)
def test_a_users_mistake_is_told_without_a_traceback(words: tuple[str, ...], word: str) -> None:
    done = dmr(*words)
    assert done.returncode != 0 and word in done.stderr and "Traceback" not in done.stderr


def test_without_slurm_the_packages_are_named(tmp_path: Path) -> None:
    program = (
        "from dmr.launcher.cluster import tools; tools._SBIN = ();"
        "from dmr.launcher.cli.cluster import cluster; cluster(prog_name='dmr cluster')"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, "up"],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge" in done.stderr


def test_a_start_cut_short_is_cleared_away(name: str) -> None:
    argv = [*PROGRAM, "up", "--nodes", "40", "--name", name]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as starting:
        limit = time.monotonic() + 20
        while (begun := PrivateCluster.find(name)) is None or len(processes.belonging(begun.folder)) < 5:
            assert time.monotonic() < limit and starting.poll() is None, "it was not caught while it started"
            time.sleep(0.005)
        starting.kill()
    assert begun.status().condition == "dead"
    down = dmr("down", "--name", name)
    # Whoever starts a cluster meanwhile sweeps it away first, and then there is none.
    assert down.returncode == 0 or "there is no cluster" in down.stderr
    assert processes.belonging(begun.folder) == {} and not begun.folder.exists()
