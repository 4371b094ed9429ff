"""A run's report for a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ..cli import print_table
from . import words

WIDTH = 72
BLOCKS = " ▁▂▃▄▅▆▇█"
PLAIN = " .:-=+*#@"
SIGNS = {"do": "→", "know": "·", "doubt": "?"}


def print_report(data: dict[str, Any], echo: Any) -> None:
    """Print one run."""
    unicode = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"
    what = " · ".join(each for each in (data["program"], data["input"], data["machine"]) if each)
    echo(f"{data['run']}: {what}")
    echo(
        f"{data['state']}, {words.seconds(data['seconds'])}, {words.hours(data['node_hours'])} node-hours, "
        f"{'unknown steps' if data['steps'] is None else words.count(data['steps'], 'step')}, "
        f"{words.count(data['generations'], 'generation')}"
    )
    _strips(data, echo, BLOCKS if unicode else PLAIN)
    _section(echo, "Phases")
    rows = [("PHASE", "NODES", "TIME", "S/STEP", "EFFICIENCY", "CPU", "MEMORY", "NODE-H", "IDLE", "OVER", "RIGHT SIZE")]
    for summary in data["summaries"]:
        for use in summary["uses"]:
            memory = f"{words.size(use['memory_peak'])} of {words.size(use['memory_held'])}"
            rows.append(
                (summary["phase"], str(use["nodes"]), words.seconds(use["seconds"]),
                 words.number(use["seconds_per_step"]), words.share(use["efficiency"]), words.share(use["cpu"]),
                 memory if use["memory_peak"] else "-", words.hours(use["node_hours"]),
                 words.hours(use["idle_node_hours"]), words.hours(use["over_node_hours"]), right_size(summary["right"]))
            )  # fmt: skip
    print_table(rows if len(rows) > 1 else [("no phase was measured",)], right="lrrrrrrrrrl")
    if data["changes"]:
        _section(echo, "Changes of size")
        changes = [("AT", "NODES", "BY", "VERDICT", "LEAD", "GAINED", "LOST", "NET", "NODE-H SAVED", "WHY")]
        for each in data["changes"]:
            changes.append(
                (words.seconds(each["time"]), f"{each['before']}→{each['after']}", each["by"], each["verdict"],
                 words.seconds(each["lead"]), words.seconds(each["gained"], sign=True), words.seconds(each["lost"]),
                 words.seconds(each["net"], sign=True), words.hours(each["node_hours"]), each["why"])
            )  # fmt: skip
        print_table(changes, right="rlllrrrrrl")
    _section(echo, "Where the node-hours went")
    total = data["node_hours"] or 1.0
    costs = [(each["what"], each["node_hours"]) for each in data["costs"]]
    print_table([(what, words.hours(hours), words.share(hours / total)) for what, hours in costs], right="lrr")
    if data["advice"]:
        _section(echo, "Advice")
        for each in data["advice"]:
            echo(f"{SIGNS[each['kind']] if unicode else '-'} {each['text']}")
    remarks = [*data["clocks"], *(f"{g['what']}, {words.seconds(g['end'] - g['start'])} long" for g in data["gaps"])]
    if remarks:
        _section(echo, "The data")
        for remark in remarks:
            echo(f"- {remark}")


def print_comparison(runs: Sequence[dict[str, Any]], echo: Any) -> None:
    """Print several runs beside one another, the first as the measure of the others."""
    rows = [("RUN", "STATE", "TIME", "", "NODE-HOURS", "", "STEPS", "S/STEP", "CHANGES", "COMPUTING")]
    for each in runs:
        rows.append(
            (each["run"], each["state"], words.seconds(each["seconds"]), ratio(each, runs[0], "seconds"),
             words.hours(each["node_hours"]), ratio(each, runs[0], "node_hours"),
             "-" if each["steps"] is None else str(each["steps"]),
             words.number(each["seconds"] / each["steps"]) if each["steps"] else "-", str(len(each["changes"])),
             words.share(computing_share(each)))
        )  # fmt: skip
    print_table(rows, right="llrrrrrrrr")


def ratio(run: dict[str, Any], first: dict[str, Any], name: str) -> str:
    """Return by how much a run differs from the first one, empty for that itself."""
    if run is first or not first[name]:
        return ""
    return f"{run[name] / first[name] - 1:+.0%}".replace("-", "−")


def computing_share(run: dict[str, Any]) -> float | None:
    """Return which share of the node-hours went into computing."""
    return next((c["node_hours"] for c in run["costs"] if c["kind"] == "compute"), 0.0) / (run["node_hours"] or 1.0)


def right_size(right: dict[str, Any] | None) -> str:
    """Return ``4 (2-8)``."""
    if right is None:
        return "-"
    span = f" ({right['low']}–{right['high']})" if right["low"] != right["high"] else ""
    return f"{right['nodes']}{span}{'?' if right['measured'] < 2 else ''}"


def _section(echo: Any, title: str) -> None:
    echo(f"\n{title}")


def _strips(data: dict[str, Any], echo: Any, blocks: str) -> None:
    """Print nodes held and used, and the phases, over time."""
    most = max([nodes for _, nodes in data["held"]] + [nodes for _, nodes in data["requested"]], default=0)
    if not most or data["seconds"] <= 0:
        return
    echo("")
    width = data["seconds"] / WIDTH
    for name in ("requested", "held"):
        cells = [_at(data[name], (place + 0.5) * width) for place in range(WIDTH)]
        echo(f"{name:>9}  {''.join(_block(cell / most, blocks) for cell in cells)}  up to {words.nodes(max(cells))}")
    used = (data.get("columns") or {}).get("used")
    if used is not None:
        values = used["mean"]
        shares = []
        for place in range(WIDTH):
            part = values[place * len(values) // WIDTH : max(1, (place + 1) * len(values) // WIDTH)]
            known = [each for each in part if each is not None]
            shares.append(sum(known) / len(known) if known else 0.0)
        drawn = "".join(_block(each / most, blocks) for each in shares)
        echo(f"{'used':>9}  {drawn}  {words.number(sum(shares) / WIDTH)} on average")
    letters = {each["phase"]: "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[place % 26] for place, each in enumerate(data["summaries"])}
    if letters:
        marks = [
            next((letters[p["phase"]] for p in data["phases"] if p["start"] <= (place + 0.5) * width < p["end"]), " ")
            for place in range(WIDTH)
        ]
        listed = ", ".join(f"{letter} {phase}" for phase, letter in letters.items())
        echo(f"{'phase':>9}  {''.join(marks)}  {listed}")


def _at(levels: Sequence[Sequence[float]], time: float) -> int:
    found = 0
    for start, nodes in levels:
        if start > time:
            break
        found = int(nodes)
    return found


def _block(share: float, blocks: str) -> str:
    return blocks[min(len(blocks) - 1, max(0, round(share * (len(blocks) - 1))))]
