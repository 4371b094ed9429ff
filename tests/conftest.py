"""What all tests share: their order, and a real Slurm: private clusters of virtual nodes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from dmr.launcher.cluster import PrivateCluster
from dmr.launcher.cluster.tools import missing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first, then those on a real Slurm, the slow ones last.

    These are tried once more when they fail, which the summary tells: they wait for schedulers and processes within
    deadlines, and other tests run beside them.
    """
    items.sort(key=lambda item: (item.get_closest_marker("slow") is not None, _needs_cluster(item)))
    for item in items:
        if _needs_cluster(item) or item.get_closest_marker("slow") is not None:
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=2))


def _needs_cluster(item: pytest.Item) -> bool:
    return bool({"cluster", "session_cluster", "cluster_factory"} & set(getattr(item, "fixturenames", ())))


@pytest.fixture(scope="session", autouse=True)
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests leave nothing in the home (neither what runs taught nor where runs are), and ranks write whole lines.

    Ctrl-C reaches what they start, in the background of a script too, where shells have it ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.pop("PYTHONUNBUFFERED", None)
    folder = tmp_path_factory.mktemp("user")
    os.environ["XDG_DATA_HOME"], os.environ["XDG_STATE_HOME"] = str(folder / "data"), str(folder / "state")


@pytest.fixture(scope="session")
def session_cluster() -> Iterator[PrivateCluster]:
    """The cluster that all tests share; use ``cluster``, which hands it over empty."""
    _skip_without_slurm()
    with PrivateCluster(nodes=8) as made:
        yield made


@pytest.fixture
def cluster(session_cluster: PrivateCluster) -> Iterator[PrivateCluster]:
    """A private Slurm with 8 nodes of 2 processors; after the test all its jobs are cancelled."""
    yield session_cluster
    empty(session_cluster)


@pytest.fixture
def cluster_factory() -> Iterator[Callable[..., PrivateCluster]]:
    """Return ``make(nodes, partitions=(…), config=(…), …)`` for clusters of a test's own, that end with it.

    The arguments are those of `PrivateCluster`, for instance
    ``make(4, config=["SchedulerParameters=disable_job_shrink", "SlurmdTimeout=10"])``.
    """
    _skip_without_slurm()
    made: list[PrivateCluster] = []

    def make(nodes: int = 4, **options: object) -> PrivateCluster:
        one = PrivateCluster(nodes, **options)  # type: ignore[arg-type]
        made.append(one)
        return one.up(owned=True)

    yield make
    for one in made:
        one.down(grace=0.5)


def empty(cluster: PrivateCluster, deadline: float = 40.0) -> None:
    """Cancel all jobs, and wait until all nodes are idle."""
    limit = time.monotonic() + deadline
    jobs = cluster.run(["squeue", "--noheader", "--format=%A"]).stdout.split()
    if jobs:
        cluster.run(["scancel", *sorted(set(jobs))], check=False)
    while set(cluster.node_states().values()) != {"idle"}:
        assert time.monotonic() < limit, f"nodes don't get idle: {cluster.node_states()}"
        time.sleep(0.1)


def _skip_without_slurm() -> None:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
