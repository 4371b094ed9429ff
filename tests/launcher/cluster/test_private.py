"""The private cluster itself."""

from __future__ import annotations

from dmr.launcher.cluster import PrivateCluster


def test_every_node_runs_a_task(cluster: PrivateCluster) -> None:
    names = cluster.run(["srun", "-N8", "printenv", "SLURMD_NODENAME"]).stdout.split()
    assert sorted(names) == [f"n{number}" for number in range(1, 9)]


def test_exit_status_comes_back(cluster: PrivateCluster) -> None:
    assert cluster.run(["srun", "sh", "-c", "exit 3"], check=False).returncode == 3
