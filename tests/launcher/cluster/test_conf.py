"""The configuration's text, without a Slurm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dmr.launcher.cluster import ClusterError
from dmr.launcher.cluster.conf import Site, Spec, cgroup_conf, slurm_conf, slurmdbd_conf

SITE = Site(
    name="Own",
    folder=Path("/tmp/c/Own"),
    hostname="host",
    user="me",
    controller_port=11000,
    first_node_port=11002,
    accounting_port=None,
    memory=4000,
    version=(22, 5),
)


def lines(spec: Spec) -> list[str]:
    return slurm_conf(spec, SITE).splitlines()


def values(spec: Spec, key: str) -> list[str]:
    return [line.partition("=")[2] for line in lines(spec) if line.partition("=")[0].lower() == key.lower()]


def test_nodes_and_their_ports() -> None:
    assert values(Spec(nodes=8), "NodeName")[0].startswith(
        "n[1-8] NodeHostname=host NodeAddr=127.0.0.1 Port=[11002-11009]"
    )
    assert values(Spec(nodes=1), "NodeName")[0].startswith("n1 NodeHostname=host NodeAddr=127.0.0.1 Port=11002 ")


def test_all_daemons_are_bound_to_the_loopback_address_that_the_name_stands_for() -> None:
    bound = slurm_conf(Spec(), replace(SITE, loopback="127.0.1.1")).splitlines()
    assert "SlurmctldHost=host(127.0.1.1)" in bound
    assert "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny" in bound
    assert any("NodeAddr=127.0.1.1 " in line for line in bound)
    database = slurmdbd_conf(replace(SITE, loopback="127.0.1.1", accounting_port=11001))
    assert "DbdAddr=127.0.1.1\n" in database and "NoInAddrAny" in database
    assert values(Spec(), "CommunicationParameters") == []


def test_a_given_line_replaces_the_own_one_whatever_its_case() -> None:
    assert values(Spec(config=("slurmdTIMEOUT = 7",)), "SlurmdTimeout") == ["7"]
    assert values(Spec(config=("DebugFlags=Backfill",)), "DebugFlags") == ["Backfill"]


def test_parameters_are_merged_entry_by_entry() -> None:
    (found,) = values(Spec(config=("SchedulerParameters=disable_job_shrink,bf_interval=9",)), "SchedulerParameters")
    assert set(found.split(",")) == {"bf_interval=9", "sched_interval=1", "batch_sched_delay=1", "disable_job_shrink"}


def test_repeated_keywords_are_added() -> None:
    assert len(values(Spec(config=("NodeSet=a Nodes=n1", "NodeSet=b Nodes=n2")), "NodeSet")) == 2


def test_the_first_partition_is_the_default_unless_one_says_so() -> None:
    first, second = values(Spec(partitions=("a", "b Nodes=n[1-2] MaxTime=60")), "PartitionName")
    assert "Default=YES" in first and "Nodes=ALL" in first and "Default" not in second
    assert second == "b Nodes=n[1-2] MaxTime=60 OverSubscribe=EXCLUSIVE State=UP"
    first, second = values(Spec(partitions=("a", "b default=yes")), "PartitionName")
    assert "Default" not in first and second.startswith("b default=yes")


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"nodes": 0}, "0 nodes"),
        ({"nodes": 5000}, "5000 nodes"),
        ({"cpus_per_node": 0}, "0 processors"),
        ({"partitions": ()}, "needs a partition"),
        ({"config": ("KillWait",)}, "no KEY=VALUE"),
        ({"config": ("A=1\nB=2",)}, "line break"),
        ({"partitions": ("a\nProlog=/bin/x",)}, "line break"),
    ],
)
def test_a_wrong_wish_is_told(spec: dict[str, object], word: str) -> None:
    with pytest.raises(ClusterError, match=word):
        Spec(**spec)  # type: ignore[arg-type]


def test_releases_differ_in_control_groups() -> None:
    assert cgroup_conf((22, 5)) is None
    assert cgroup_conf((24, 11)) == "CgroupPlugin=disabled\n"
