"""The private cluster itself, real."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dmr.launcher.cluster import ClusterError, PrivateCluster, places, ports, processes
from dmr.launcher.cluster import state as states
from dmr.launcher.cluster.tools import missing

Factory = Callable[..., PrivateCluster]


def until(what: Callable[[], bool], seconds: float = 20.0) -> None:
    limit = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < limit, "it didn't come about in time"
        time.sleep(0.05)


def jobs(cluster: PrivateCluster, state: str) -> list[str]:
    return cluster.run(["squeue", "--noheader", f"--states={state}", "--format=%A"]).stdout.split()


def marked(marker: str) -> list[int]:
    """Return living processes with this word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if marker.encode() in path.read_bytes() and processes.identify(int(path.parent.name)):
                found.append(int(path.parent.name))
    return found


def test_every_node_runs_a_task(cluster: PrivateCluster) -> None:
    names = cluster.run(["srun", "-N8", "printenv", "SLURMD_NODENAME"]).stdout.split()
    assert sorted(names) == [f"n{number}" for number in range(1, 9)]


def test_all_daemons_listen_on_the_loopback_alone_where_slurm_can(cluster: PrivateCluster) -> None:
    loopback = ports.loopback_of_this_machine()
    if loopback is None:
        pytest.skip("this machine's name stands for an address of the network")
    state = states.load(cluster.folder)
    assert state is not None
    own = [state.controller_port, *range(state.first_node_port, state.first_node_port + cluster.spec.nodes)]
    assert all(ports.listens(port, loopback) for port in own)
    assert not any(ports.listens(port, "127.9.9.9") for port in own), "bound to all interfaces"


def test_exit_status_comes_back(cluster: PrivateCluster) -> None:
    assert cluster.run(["srun", "sh", "-c", "exit 3"], check=False).returncode == 3
    with pytest.raises(ClusterError, match="status 1.*[Ii]nvalid"):
        cluster.run(["scontrol", "show", "job", "99999"])


def test_an_outer_job_does_not_leak_in(cluster: PrivateCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("SBATCH_PARTITION", "elsewhere")
    said = cluster.run(["sh", "-c", "echo ${SLURM_JOB_ID-none} ${SBATCH_PARTITION-none}"]).stdout
    assert said.split() == ["none", "none"]


def test_two_side_by_side_share_nothing(cluster: PrivateCluster, cluster_factory: Factory) -> None:
    other = cluster_factory(2)
    ports = [states.load(each.folder).ports for each in (cluster, other)]  # type: ignore[union-attr]
    assert ports[0].isdisjoint(ports[1])
    cluster.run(["sbatch", "--output=/dev/null", "--wrap", "sleep 60"])
    assert jobs(other, "all") == []
    assert len(other.run(["srun", "-N2", "hostname"]).stdout.split()) == 2
    # Another cluster's credentials are refused: each has its own munge key.
    foreign = {"SLURM_CONF": str(other.folder / "slurm.conf")}
    text = (other.folder / "slurm.conf").read_text()
    mixed = other.folder / "mixed.conf"
    mixed.write_text(text.replace(str(other.folder / "munge"), str(cluster.folder / "munge")))
    foreign["SLURM_CONF"] = str(mixed)
    done = other.run(["scontrol", "show", "partition"], env=foreign, check=False, timeout=60)
    assert done.returncode != 0


def test_down_ends_what_jobs_left_running(cluster_factory: Factory) -> None:
    one = cluster_factory(2)
    marker = f"{os.getpid()}.25"
    script = f"env -i setsid sleep 300{marker} & sleep 301{marker} & srun --export=NONE /bin/sleep 302{marker}"
    one.run(["sbatch", "--nodes=2", "--output=/dev/null", "--wrap", script])
    until(lambda: len(marked(marker)) >= 4)
    one.down(grace=0.5)
    assert marked(marker) == []
    assert processes.belonging(one.folder) == {}
    assert not one.folder.exists()


def test_everything_killed_then_down_leaves_nothing(cluster_factory: Factory) -> None:
    one = cluster_factory(3)
    marker = f"{os.getpid()}.26"
    one.run(["sbatch", "--nodes=3", "--output=/dev/null", "--wrap", f"srun sleep 300{marker}"])
    until(lambda: sum("sleep" in Path(f"/proc/{pid}/comm").read_text() for pid in marked(marker)) == 3)
    for each, name in processes.belonging(one.folder).items():
        if processes.is_daemon(name):
            processes.send(each, signal.SIGKILL)
    until(lambda: one.status().condition == "dead")
    assert marked(marker) != [], "tasks outlive their daemons, or this test shows nothing"
    one.down()
    assert marked(marker) == []
    assert not one.folder.exists()


def test_a_dead_cluster_gives_way_to_a_new_one(cluster_factory: Factory) -> None:
    one = cluster_factory(2)
    with pytest.raises(ClusterError, match=f"'{one.name}' is up already"):
        PrivateCluster(1, one.name).up()
    for each in processes.belonging(one.folder):
        processes.send(each, signal.SIGKILL)
    processes.wait_gone(list(processes.belonging(one.folder)), 5)
    assert cluster_factory(1, name=one.name).status().condition == "up"


def test_old_process_ids_are_not_trusted(cluster_factory: Factory) -> None:
    """A pid that another program has by now is not taken for the daemon, nor ended."""
    one = cluster_factory(1)
    state = states.load(one.folder)
    assert state is not None
    bystander = subprocess.Popen(["sleep", "60"])
    state.daemons["n1"] = processes.Process(bystander.pid, state.daemons["n1"].started)
    state.save(one.folder)
    assert one.status().missing == ("n1",)
    one.down()
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"config": ["NoSuchKeyword=1"]}, "NoSuchKeyword"),
        ({"partitions": ["main Nodes=n[1-99]"]}, "n[1-99]|n99"),
        ({"config": ["SlurmdTimeout=soon"]}, "soon"),
    ],
)
def test_what_can_not_start_is_told_and_leaves_nothing(options: dict[str, list[str]], word: str) -> None:
    if reason := missing():
        pytest.skip(reason)
    one = PrivateCluster(2, **options)  # type: ignore[arg-type]
    with pytest.raises(ClusterError, match=rf"(?s)last words.*({word.replace('[', chr(92) + '[')})"):
        one.up(deadline=20)
    assert processes.belonging(one.folder) == {}
    assert not one.folder.exists()


def test_a_deadline_is_kept_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := missing():
        pytest.skip(reason)
    one = PrivateCluster(1)
    monkeypatch.setattr(PrivateCluster, "node_states", lambda self: {"n1": "down"})
    with pytest.raises(ClusterError, match=r"not all nodes came up within the deadline \(1 node; n1 is down\)"):
        one.up(deadline=1)
    assert not one.folder.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_it_ends_with_its_owner_however_that_goes(number: int) -> None:
    if reason := missing():
        pytest.skip(reason)
    program = (
        "import time; from dmr.launcher.cluster import PrivateCluster\n"
        "with PrivateCluster(1) as one: print(one.folder, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().decode().strip())
        assert folder.is_dir()
        owner.send_signal(number)
        until(lambda: not folder.exists())
    assert processes.belonging(folder) == {}


def test_the_controller_goes_and_comes_back_with_its_jobs(cluster_factory: Factory) -> None:
    one = cluster_factory(1, config=["MessageTimeout=5"])
    job = one.run(["sbatch", "--parsable", "--output=/dev/null", "--wrap", "sleep 60"]).stdout.strip()
    until(lambda: jobs(one, "running") == [job])
    for kill in (False, True):
        one.stop_controller(kill=kill)
        assert one.status().condition == "degraded"
        one.start_controller()
        assert jobs(one, "running") == [job]
    with one.paused_controller(), pytest.raises(subprocess.TimeoutExpired):
        one.run(["squeue"], timeout=1)
    assert jobs(one, "running") == [job]


def test_a_lost_node_takes_its_tasks_along_and_comes_back(cluster_factory: Factory) -> None:
    one = cluster_factory(2)
    marker = f"{os.getpid()}.27"
    argv = ["sbatch", "--nodes=2", "--no-kill", "--output=/dev/null", "--wrap", f"srun --no-kill sleep 300{marker}"]
    one.run(argv)
    until(lambda: sum("sleep" in Path(f"/proc/{pid}/comm").read_text() for pid in marked(marker)) == 2)
    assert len(processes.belonging(one.folder, "n2")) >= 3  # slurmd, slurmstepd, the task
    one.kill_node("n2")
    assert processes.belonging(one.folder, "n2") == {}
    assert len(processes.belonging(one.folder, "n1")) >= 3
    one.start_node("n2")
    until(
        lambda: (
            one.run(["scancel", "--user", str(os.getuid())], check=False).returncode == 0
            and not jobs(one, "pending,running,completing")
        )
    )
    assert len(one.run(["srun", "-N2", "hostname"]).stdout.split()) == 2
    with pytest.raises(ClusterError, match="no node 'n3'"):
        one.kill_node("n3")


def test_preemption_and_limits_can_be_had(cluster_factory: Factory) -> None:
    one = cluster_factory(
        2,
        partitions=["low PriorityTier=1 PreemptMode=CANCEL GraceTime=0", "high PriorityTier=9 PreemptMode=OFF"],
        config=["PreemptType=preempt/partition_prio", "PreemptMode=CANCEL", "KillWait=1"],
    )
    low = one.run(["sbatch", "--parsable", "-plow", "-N2", "--output=/dev/null", "--wrap", "sleep 60"]).stdout.strip()
    until(lambda: jobs(one, "running") == [low])
    high = one.run(["sbatch", "--parsable", "-phigh", "-N2", "--output=/dev/null", "--wrap", "sleep 60"]).stdout.strip()
    until(lambda: jobs(one, "running") == [high])


def test_a_hundred_nodes(cluster_factory: Factory) -> None:
    one = cluster_factory(100)
    assert len(one.run(["srun", "-N100", "printenv", "SLURMD_NODENAME"]).stdout.split()) == 100


def test_accounting(cluster_factory: Factory) -> None:
    if reason := missing(accounting=True):
        pytest.skip(reason)
    one = cluster_factory(1, accounting=True)
    one.run(["sbatch", "--wait", "--job-name=counted", "--output=/dev/null", "--wrap", "true"])
    query = ["sacct", "--allusers", "--parsable2", "--noheader", "--format=JobName,State"]
    until(lambda: "counted|COMPLETED" in one.run(query).stdout)


ELSEWHERE = """
import os
from dmr.launcher.cluster import PrivateCluster
with PrivateCluster(2) as one:
    print(*sorted(one.run(["srun", "-N2", "sh", "-c", "echo $SLURMD_NODENAME/$(id -u)"]).stdout.split()))
"""


@pytest.fixture
def as_root() -> Iterator[None]:
    if os.getuid() != 0:
        pytest.skip("only root can try it as somebody else")
    if reason := missing():
        pytest.skip(reason)
    yield


def test_an_ordinary_user_can(as_root: None) -> None:
    """User 'nobody', with a PATH that has no daemons in it and no runtime folder."""
    bare = ["PATH=/usr/bin:/bin", f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}"]
    argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", "-i", *bare]
    if subprocess.run(
        [*argv, sys.executable, "-P", "-c", "import dmr.launcher.cluster"], cwd="/", check=False
    ).returncode:
        pytest.skip("the package is not readable for an ordinary user here")
    done = subprocess.run(
        [*argv, sys.executable, "-P", "-c", ELSEWHERE], cwd="/", capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["n1/65534", "n2/65534"], done.stderr
    assert not Path("/tmp/dmr-cluster-65534").exists()


@pytest.mark.parametrize("hostname", ["no-such-host", "deep.example.org", "localhost"])
def test_any_hostname_will_do(as_root: None, hostname: str) -> None:
    script = 'hostname "$1" && shift && exec "$@"'
    argv = ["unshare", "--uts", "sh", "-c", script, "sh", hostname, sys.executable, "-P", "-c", ELSEWHERE]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    if "unshare" in done.stderr:
        pytest.skip(f"no host name of its own can be had here: {done.stderr.strip()}")
    assert done.stdout.split() == ["n1/0", "n2/0"], done.stderr


def test_nothing_is_left_in_the_common_folder(cluster_factory: Factory) -> None:
    one = cluster_factory(1)
    assert one.folder.parent == places.base()
    assert one.folder.stat().st_mode & 0o777 == 0o700
    one.down()
    assert one.name not in [each.name for each in places.folders()]
