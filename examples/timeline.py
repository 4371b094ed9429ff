"""A picture of who held which node when: as text, and by matplotlib. Used by examples/demo.py."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LETTERS = "█▒░"


@dataclass(frozen=True)
class Bar:
    """Nodes that one user held from ``start`` to ``end`` (unix times)."""

    user: str
    nodes: Sequence[str]
    start: float
    end: float


def text(bars: Sequence[Bar], width: int = 72) -> str:
    """Return one line a node, time from left to right."""
    if not bars:
        return "(nothing ran)"
    first, last = min(bar.start for bar in bars), max(bar.end for bar in bars)
    second = width / max(last - first, 1e-9)
    letter = _letters(bars)
    nodes = _nodes(bars)
    margin = max(map(len, nodes)) + 2
    lines = []
    for node in nodes:
        cells = ["·"] * width
        for bar in (each for each in bars if node in each.nodes):
            begin, end = round((bar.start - first) * second), round((bar.end - first) * second)
            cells[begin : max(end, begin + 1)] = letter[bar.user] * (max(end, begin + 1) - begin)
        lines.append(f"{node:<{margin}}{''.join(cells[:width])}")
    length = f"{last - first:.0f} s"
    lines.append(f"{'':{margin}}0 s{length:>{width - 3}}")
    lines.append(f"{'':{margin}}" + "   ".join(f"{sign} {user}" for user, sign in letter.items()) + "   · idle")
    return "\n".join(lines)


def draw(bars: Sequence[Bar], path: Path) -> bool:
    """Draw the same into a PNG; False when matplotlib is not there."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    first, nodes, users = min(bar.start for bar in bars), _nodes(bars), list(_letters(bars))
    figure, axes = pyplot.subplots(figsize=(8, 3), layout="constrained")
    for bar in bars:
        for node in bar.nodes:
            span = (bar.start - first, bar.end - bar.start)
            axes.broken_barh([span], (nodes.index(node) - 0.45, 0.9), color=f"C{users.index(bar.user)}")
    for number, user in enumerate(users):
        axes.broken_barh([], (0, 0), color=f"C{number}", label=user)
    axes.set_yticks(range(len(nodes)), nodes)
    axes.invert_yaxis()
    axes.set_xlabel("time (s)")
    figure.legend(loc="outside upper right", ncols=len(users))
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return True


def _letters(bars: Sequence[Bar]) -> dict[str, str]:
    users = list(dict.fromkeys(bar.user for bar in bars))
    return {user: LETTERS[place % len(LETTERS)] for place, user in enumerate(users)}


def _nodes(bars: Sequence[Bar]) -> list[str]:
    found = {node for bar in bars for node in bar.nodes}
    return sorted(found, key=lambda node: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", node)])
