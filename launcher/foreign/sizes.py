"""Which sizes a program takes: nodes, by the processes that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...resize import words
from .description import Foreign
from .errors import ForeignError
from .load import described


def allowed(app: Foreign, sizes: Sequence[int], tasks_per_node: int) -> tuple[int, ...]:
    """Return those of the sizes, in nodes, that the program takes.

    Raises
    ------
    ForeignError
        When none is left, or when several are wanted of a program that can't change.
    """
    if not app.processes.change and len(sizes) > 1:
        raise ForeignError(
            f"{app.name} goes on only with as many processes as wrote its checkpoint (sizes.change = false in "
            f"{app.source}): give one size, --nodes {sizes[0]}"
        )
    kept = tuple(size for size in sizes if refusal(app, size, tasks_per_node) is None)
    if not kept:
        why = refusal(app, sizes[0], tasks_per_node)
        raise ForeignError(f"--nodes: {why}; choose other nodes or another --ntasks-per-node")
    return kept


def refusal(app: Foreign, nodes: int, tasks_per_node: int) -> str | None:
    """Return why the program can't run on so many nodes, None when it can."""
    processes = nodes * tasks_per_node
    if app.processes.allowed is None or processes in app.processes.allowed:
        return None
    return (
        f"{words.count(nodes, 'node is', 'nodes are')} {words.count(processes, 'process', 'processes')}, "
        f"but {app.name} takes {app.processes.text} (sizes.processes in {app.source})"
    )


def why_not(described_app: Mapping[str, Any] | None, nodes: int, tasks_per_node: int) -> str | None:
    """Return why a run's program does not take a size; None when it does, or when it speaks for itself.

    Parameters
    ----------
    described_app
        As kept in ``run.json``.
    """
    return None if described_app is None else refusal(described(described_app), nodes, tasks_per_node)
