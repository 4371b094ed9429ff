"""The largest job that accounting lets a user have: limits of QOS and association."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..engines.engine import EngineError
from .commands import Commands

_COLUMNS = "maxtres,maxtrespu,maxtrespa,grptres"
_ASSOCIATION_COLUMNS = "maxtres,grptres"


def most_nodes(commands: Commands, record: Mapping[str, str], user: str, cpus_per_node: int) -> int | None:
    """Return the most nodes that a job with this record's account and QOS may have, None where nothing limits it.

    Asks slurmdbd, at most twice; where there is no accounting, or it does not answer, sbatch will say no.
    """
    answers: list[str] = []
    if "QOS" in record:
        answers += _ask(commands, ["qos", "where", f"name={record['QOS']}", f"format={_COLUMNS}"])
    if "Account" in record:
        who = [f"user={user}", f"account={record['Account']}"]
        answers += _ask(commands, ["assoc", "where", *who, f"format={_ASSOCIATION_COLUMNS}"])
    limits = [limit for text in answers for limit in node_limits(text, cpus_per_node)]
    return max(1, min(limits)) if limits else None


def node_limits(text: str, cpus_per_node: int) -> list[int]:
    """Return how many nodes each limit in ``cpu=64,node=4|…`` comes to. Pure."""
    nodes = [int(number) for number in re.findall(r"(?:^|[|,\s])node=(\d+)", text)]
    cpus = [int(number) // max(1, cpus_per_node) for number in re.findall(r"(?:^|[|,\s])cpu=(\d+)", text)]
    return nodes + cpus


def _ask(commands: Commands, what: list[str]) -> list[str]:
    try:
        return [commands.query(["sacctmgr", "-nP", "show", *what]).out]
    except EngineError:
        return []
