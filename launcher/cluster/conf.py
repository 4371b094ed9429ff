"""The text of Slurm's configuration files, and all in which Slurm's releases differ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...resize import words
from .errors import ClusterError
from .ports import LOOPBACK

_REPEATED = frozenset({"nodename", "partitionname", "nodeset", "downnodes", "frontendname", "include"})
"""Keywords of which every line counts; of all others the last one replaces those before."""

_MERGED = frozenset(
    {"schedulerparameters", "slurmctldparameters", "slurmdparameters", "priorityflags", "communicationparameters"}
)
"""Keywords whose value is a list: what is given is added to what is there, entry by entry."""


_BOUND = "NoCtldInAddrAny,NoInAddrAny"


@dataclass(frozen=True)
class Spec:
    """What a private cluster is to be.

    Parameters
    ----------
    nodes : int
        Virtual nodes; they are named n1, n2, …
    cpus_per_node : int
        Processors that a node says it has, whatever the machine's are.
    partitions : sequence of str
        One partition each, ``NAME [KEY=VALUE …]`` in slurm.conf's words. Without ``Nodes=`` a partition has
        all nodes, without ``OverSubscribe=`` it gives whole nodes to one job, as large machines do; the first
        one is the default unless one says ``Default=YES``.
    config : sequence of str
        Lines of slurm.conf, which replace the private cluster's own by their keyword.
    accounting : bool
        Whether to run slurmdbd with a database.
    """

    nodes: int = 8
    cpus_per_node: int = 2
    partitions: Sequence[str] = ("main",)
    config: Sequence[str] = ()
    accounting: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= 4096:
            raise ClusterError(f"a cluster of {words.nodes(self.nodes)} can't be made: take 1 to 4096")
        if not 1 <= self.cpus_per_node <= 1024:
            raise ClusterError(f"{self.cpus_per_node} processors a node can't be had: take 1 to 1024")
        if not self.partitions:
            raise ClusterError("a cluster needs a partition")
        for line in (*self.config, *self.partitions):
            if "\n" in line or "\r" in line:
                raise ClusterError(f"a line of configuration holds a line break: {line!r}")
        for line in self.config:
            if "=" not in line:
                raise ClusterError(f"{line!r} is no line of slurm.conf: it has no KEY=VALUE")

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of all nodes."""
        return tuple(f"n{number}" for number in range(1, self.nodes + 1))


@dataclass(frozen=True)
class Site:
    """Where the cluster runs: its folder, ports, and facts of the machine. ``memory`` is in MB.

    ``loopback`` is the loopback address that the machine's name stands for: Slurm binds to what the name stands for or
    to all interfaces, and to nothing else. None where it stands for another address.
    """

    name: str
    folder: Path
    hostname: str
    user: str
    controller_port: int
    first_node_port: int
    accounting_port: int | None
    memory: int
    version: tuple[int, int]
    loopback: str | None = None

    @property
    def address(self) -> str:
        """Where all daemons are reached."""
        return self.loopback or LOOPBACK


def slurm_conf(spec: Spec, site: Site) -> str:
    """Return slurm.conf."""
    folder = site.folder
    settings = {
        "ClusterName": site.name.lower(),
        "SlurmctldHost": f"{site.hostname}({site.address})",
        "SlurmctldPort": str(site.controller_port),
        "SlurmUser": site.user,
        "SlurmdUser": site.user,
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/munge/socket",
        "CredType": "cred/munge",
        "StateSaveLocation": f"{folder}/state",
        "SlurmctldPidFile": f"{folder}/state/slurmctld.pid",
        "SlurmctldLogFile": f"{folder}/log/slurmctld.log",
        # Every virtual node needs its own: pmix names its folders under TmpFS by the job alone.
        "SlurmdSpoolDir": f"{folder}/spool/%n",
        "SlurmdPidFile": f"{folder}/spool/%n/slurmd.pid",
        "SlurmdLogFile": f"{folder}/log/%n.log",
        "TmpFS": f"{folder}/tmp/%n",
        "SlurmctldSyslogDebug": "quiet",
        "SlurmdSyslogDebug": "quiet",
        "MailProg": "/bin/true",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "MpiDefault": "none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU",
        "PriorityType": "priority/basic",
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": "bf_interval=1,sched_interval=1,batch_sched_delay=1",
        "SlurmdParameters": "config_overrides",
        "ReturnToService": "2",
        "MessageTimeout": "20",
        "TCPTimeout": "5",
        "SlurmdTimeout": "60",
        "KillWait": "10",
    }
    if site.loopback is not None:
        settings["CommunicationParameters"] = _BOUND
    if site.accounting_port is not None:
        settings |= {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": site.address,
            "AccountingStoragePort": str(site.accounting_port),
            # Not a password: for slurmdbd this names the munge socket to authenticate by.
            "AccountingStoragePass": f"{folder}/munge/socket",
            "JobAcctGatherType": "jobacct_gather/linux",
            "JobAcctGatherFrequency": "task=2",
        }
    lines = _override(settings, spec.config)
    last = site.first_node_port + spec.nodes - 1
    lines.append(
        f"NodeName={_range('n', 1, spec.nodes)} NodeHostname={site.hostname} NodeAddr={site.address} "
        f"Port={_range('', site.first_node_port, last)} CPUs={spec.cpus_per_node} RealMemory={site.memory} "
        "State=UNKNOWN"
    )
    return "\n".join(lines + _partitions(spec.partitions)) + "\n"


def cgroup_conf(version: tuple[int, int]) -> str | None:
    """Return cgroup.conf, None where this release of Slurm needs none.

    From 23.02 on slurmd looks for control groups even when no plugin asks for them, and an ordinary
    user has none; earlier releases don't know the word that says so.
    """
    return "CgroupPlugin=disabled\n" if version >= (23, 2) else None


def slurmdbd_conf(site: Site) -> str:
    """Return slurmdbd.conf; slurmdbd wants it to be of mode 0600."""
    folder = site.folder
    return "\n".join(
        [
            "AuthType=auth/munge",
            f"AuthInfo=socket={folder}/munge/socket",
            f"DbdHost={site.hostname}",
            f"DbdAddr={site.address}",
            f"DbdPort={site.accounting_port}",
            f"SlurmUser={site.user}",
            f"LogFile={folder}/log/slurmdbd.log",
            f"PidFile={folder}/db/slurmdbd.pid",
            "DebugLevelSyslog=quiet",
            "StorageType=accounting_storage/mysql",
            "StorageHost=localhost",
            f"StorageUser={site.user}",
            "StorageLoc=slurm_acct_db",
            *([f"CommunicationParameters={_BOUND}"] if site.loopback is not None else []),
            "",
        ]
    )


def _override(settings: dict[str, str], config: Iterable[str]) -> list[str]:
    spelled = {key.lower(): (key, value) for key, value in settings.items()}
    repeated = []
    for line in config:
        key, value = (part.strip() for part in line.split("=", 1))
        lower = key.lower()
        if lower in _REPEATED:
            repeated.append(line.strip())
        elif lower in _MERGED and lower in spelled:
            spelled[lower] = (key, _merge(spelled[lower][1], value))
        else:
            spelled[lower] = (key, value)
    return [f"{key}={value}" for key, value in spelled.values()] + repeated


def _merge(there: str, given: str) -> str:
    entries = {entry.split("=", 1)[0]: entry for text in (there, given) for entry in text.split(",") if entry}
    return ",".join(entries.values())


def _partitions(partitions: Sequence[str]) -> list[str]:
    chosen = any(re.search(r"\bdefault\s*=\s*yes\b", each, re.IGNORECASE) for each in partitions)
    lines = []
    for place, text in enumerate(partitions):
        name, _, options = text.strip().removeprefix("PartitionName=").partition(" ")
        defaults = {"Nodes": "ALL", "OverSubscribe": "EXCLUSIVE", "MaxTime": "INFINITE", "State": "UP"}
        if place == 0 and not chosen:
            defaults["Default"] = "YES"
        given = {word.split("=", 1)[0].lower() for word in options.split()}
        added = [f"{key}={value}" for key, value in defaults.items() if key.lower() not in given]
        lines.append(" ".join([f"PartitionName={name}", *options.split(), *added]))
    return lines


def _range(prefix: str, first: int, last: int) -> str:
    return f"{prefix}{first}" if first == last else f"{prefix}[{first}-{last}]"
