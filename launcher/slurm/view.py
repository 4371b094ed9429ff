"""From rows of the queue to the plain view that decisions are made from. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...resize.view import ClusterView, JobView
from .parse import JobRow, NodeRow
from .states import is_idle, is_up, job_state

NAME = re.compile(r"dmr:([^:\s]+):(\d+):(\w+)")
"""A generation's name: run id, number, token."""


@dataclass(frozen=True)
class Reach:
    """Nodes that a job may get: those of its partitions, with its features, without those it excludes.

    ``most`` is the largest number that accounting lets one job have.
    """

    partitions: frozenset[str]
    features: str = ""
    excluded: frozenset[str] = frozenset()
    most: int | None = None

    def holds(self, node: NodeRow) -> bool:
        return (
            node.partition in self.partitions
            and node.name not in self.excluded
            and satisfies(self.features, node.features)
        )


def cluster_view(now: float, queue: Sequence[JobRow], nodes: Sequence[NodeRow], reach: Reach) -> ClusterView:
    """Restrict queue and nodes to what a job may get.

    A job of another partition counts as far as it holds nodes within reach, or waits in a partition that has some.
    Its nodes beyond are left out, so that what it gives back when it ends is right.
    """
    mine = {node.name: node for node in nodes if reach.holds(node) and is_up(node)}
    shared = {node.partition for node in nodes if node.name in mine} | reach.partitions
    by_partition = {node.partition: node.max_nodes for node in nodes if node.partition in reach.partitions}
    sizes = list(by_partition.values())
    limits = [] if None in sizes or not sizes else [max(size for size in sizes if size is not None)]
    limits += [] if reach.most is None else [reach.most]
    held_now = {name for row in queue for name in row.held if job_state(row.state) == "running"}
    return ClusterView(
        time=now,
        total=len(mine),
        # sinfo and squeue are two answers: a node that a job of the second holds is not free, whatever the first said.
        idle=sum(is_idle(node) for node in mine.values() if node.name not in held_now),
        jobs=tuple(view for row in queue for view in _views(row, mine, shared)),
        partition=",".join(sorted(reach.partitions)),
        max_nodes=min(limits) if limits else None,
        configured=len({node.name for node in nodes if reach.holds(node)}),
    )


def run_of(row: JobRow) -> str | None:
    """Return the run id that a job's comment or name carries, None when it is of no malleable run."""
    found = NAME.search(row.comment) or NAME.search(row.name)
    return found.group(1) if found else None


def satisfies(expression: str, features: frozenset[str]) -> bool:
    """Whether a node with these features may serve a ``--constraint``.

    Reads ``a``, ``a&b``, ``a|b``, parentheses, and counts (``a*4``); alternatives of which all nodes of a job must be
    alike (``[a|b]``) and counts are read per node. What can't be read excludes nothing.
    """
    expression, counted = re.subn(r"\*\d+", "", expression)
    expression = expression.replace("[", "(").replace("]", ")").replace(",", "&")
    if counted:
        expression = expression.replace("&", "|")  # so many nodes of the one kind and so many of the other
    if not expression.strip():
        return True
    tokens = re.findall(r"[()&|]|[^()&|\s]+", expression)
    try:
        value, rest = _any_of(tokens, features)
    except (IndexError, ValueError):
        return True
    return value or bool(rest)


def _any_of(tokens: list[str], features: frozenset[str]) -> tuple[bool, list[str]]:
    value, tokens = _all_of(tokens, features)
    while tokens and tokens[0] == "|":
        other, tokens = _all_of(tokens[1:], features)
        value = value or other
    return value, tokens


def _all_of(tokens: list[str], features: frozenset[str]) -> tuple[bool, list[str]]:
    value, tokens = _one(tokens, features)
    while tokens and tokens[0] == "&":
        other, tokens = _one(tokens[1:], features)
        value = value and other
    return value, tokens


def _one(tokens: list[str], features: frozenset[str]) -> tuple[bool, list[str]]:
    if tokens[0] == "(":
        value, tokens = _any_of(tokens[1:], features)
        return value, tokens[1:]
    if tokens[0] in "&|)":
        raise ValueError(tokens[0])
    return tokens[0] in features, tokens[1:]


def _views(row: JobRow, mine: dict[str, NodeRow], shared: set[str]) -> Iterator[JobView]:
    state = job_state(row.state)
    if state == "running":
        nodes = sum(name in mine for name in row.held)
        if nodes:
            yield _view(row, "running", row.job, nodes)
    elif state == "pending" and shared & set(row.partitions):
        for job in row.ids:
            yield _view(row, "pending", job, row.nodes)


def _view(row: JobRow, state: str, job: str, nodes: int) -> JobView:
    running = state == "running"
    return JobView(
        job=job,
        state="running" if running else "pending",
        nodes=nodes,
        priority=row.priority,
        submitted=row.submitted,
        start=row.start,
        end=row.end,
        time_limit=row.time_limit,
        partition=",".join(row.partitions),
        reason=row.reason,
        nodes_max=None if running else row.nodes_max,
        run=run_of(row),
    )
