"""A decision as text for people, and as JSON for the ledger."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from . import words
from .view import Choice, Decision

_UNBOUNDED = "inf"
LONG = 20
"""Of a table with more rows than this, rows in a row that have the same reason are shown as their first and last."""


def explain(decision: Decision) -> str:
    """Return a decision with its table as plain text."""
    head = f"{decision.action} ({words.nodes(decision.nodes)}): {decision.reason}"
    lines = [f"policy {decision.policy}: {head}" if decision.policy else head]
    if decision.table:
        now = decision.facts.get("time")
        origin = float(now) if isinstance(now, (int, float)) else None
        cells = [["", "nodes", "wait", "cost", "ends in", "node-h", "gain", "why"]]
        cells += [_cells(row, origin) if row is not None else [" ", "…", *[""] * 6] for row in _shown(decision.table)]
        widths = [max(len(line[column]) for line in cells) for column in range(7)]
        lines += [
            "  ".join([line[0], *(line[c].rjust(widths[c]) for c in range(1, 7)), line[7]]).rstrip() for line in cells
        ]
    numbers = {key: value for key, value in decision.facts.items() if not isinstance(value, str) and key != "time"}
    if numbers:
        lines.append("; ".join(f"{key.replace('_', ' ')} {value:.6g}" for key, value in numbers.items()))
    lines += [f"{key.replace('_', ' ')}: {value}" for key, value in decision.facts.items() if isinstance(value, str)]
    return "\n".join(lines)


def _shown(table: Sequence[Choice]) -> Iterator[Choice | None]:
    """Yield the rows of a table that are worth a line, None for those between."""
    for _, same in groupby(table, key=lambda row: (row.taken, row.reason)):
        rows = list(same)
        if len(table) <= LONG or len(rows) <= 3:
            yield from rows
        else:
            yield from (rows[0], None, rows[-1])


def _cells(row: Choice, origin: float | None) -> list[str]:
    gain = "-" if row.gain is None else f"{row.gain:+.0f}"
    if row.gain is not None and row.gain_error:
        gain += f" ± {row.gain_error:.0f}"
    ends = "-" if row.finish is None or origin is None else duration(row.finish - origin)
    hours = "-" if row.node_hours is None else f"{row.node_hours:.2f}"
    cost = "-" if row.cost is None else f"{row.cost:.1f}"
    return ["*" if row.taken else " ", str(row.nodes), _wait(row.wait), cost, ends, hours, gain, row.reason]


def _wait(wait: tuple[float, float] | None) -> str:
    if wait is None:
        return "-"
    low, high = (duration(each) if math.isfinite(each) else "?" for each in wait)
    return low if low == high else f"{low}-{high}"


def duration(seconds: float) -> str:
    """Return seconds as 0:07, 1:30 or 1:00:00."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def decision_to_json(decision: Decision) -> dict[str, Any]:
    """Return a decision as what the json module can write; infinite bounds become ``"inf"``."""
    return {
        "action": decision.action,
        "nodes": decision.nodes,
        "reason": decision.reason,
        "policy": decision.policy,
        "limit": decision.limit,
        "facts": {key: _finite(value) for key, value in decision.facts.items()},
        "table": [{key: _finite(value) for key, value in dataclasses.asdict(row).items()} for row in decision.table],
    }


def decision_from_json(found: Mapping[str, Any] | str) -> Decision:
    """Return the decision that `decision_to_json` wrote; takes text, too.

    Raises
    ------
    ValueError
        When it is not one.
    """
    try:
        data: Mapping[str, Any] = json.loads(found) if isinstance(found, str) else found
        names = {each.name for each in dataclasses.fields(Choice)}
        table = tuple(
            Choice(**{key: _infinite(value) for key, value in row.items() if key in names})
            for row in data.get("table", ())
        )
        action = data["action"]
        if action not in ("stay", "shrink", "expand", "cancel"):
            raise ValueError(f"unknown action {action!r}")
        facts = {key: _infinite(value) for key, value in data.get("facts", {}).items()}
        limit = data.get("limit")
        return Decision(action, int(data["nodes"]), data["reason"], data.get("policy", ""), table, facts, limit)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a decision: {error!r}") from None


def _finite(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_finite(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return _UNBOUNDED if value > 0 else None
    return value


def _infinite(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_infinite(each) for each in value)
    return math.inf if value == _UNBOUNDED else value
