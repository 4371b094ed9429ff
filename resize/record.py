"""What a decision was made from, as JSON for the ledger and back."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from .view import Ahead, ClusterView, Costs, CostSample, JobView, Rate, RunView

JOB_FIELDS = tuple(each.name for each in dataclasses.fields(JobView))
RECORDED_PENDING, RECORDED_RUNNING = 50, 80
"""No more jobs than this are recorded with a view: those pending with the highest priority, and of those running the
malleable ones and those that end first. A ledger is written for the whole life of a run."""


def run_to_json(run: RunView) -> dict[str, Any]:
    """Return a run's view, without the fields that say nothing."""
    found: dict[str, Any] = {}
    for each in dataclasses.fields(RunView):
        value = getattr(run, each.name)
        default = each.default if each.default_factory is dataclasses.MISSING else each.default_factory()
        if value == default and each.default is not dataclasses.MISSING:
            continue
        if each.name in ("rates", "earlier", "resize_costs", "ahead"):
            value = [list(dataclasses.astuple(item)) for item in value]
        elif each.name == "costs":
            value = dataclasses.asdict(value)
        found[each.name] = value
    return found


def run_from_json(found: Mapping[str, Any]) -> RunView:
    """Return the view that `run_to_json` wrote; unknown fields are passed over.

    Raises
    ------
    ValueError
        When it is not one.
    """
    names = {each.name for each in dataclasses.fields(RunView)}
    given = {key: value for key, value in found.items() if key in names}
    try:
        for key, kind in (("rates", Rate), ("earlier", Rate), ("resize_costs", CostSample), ("ahead", Ahead)):
            if key in given:
                given[key] = tuple(kind(*item) for item in given[key])
        if "costs" in given:
            given["costs"] = Costs(**given["costs"])
        for key in ("sizes", "waits", "witnesses", "caveats"):
            if key in given:
                given[key] = tuple(tuple(item) if isinstance(item, list) else item for item in given[key])
        return RunView(**given)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"not the view of a run: {error}") from None


def cluster_to_json(cluster: ClusterView) -> dict[str, Any]:
    """Return a cluster's view; jobs are lists in the order of ``fields``, without the empty ends."""
    running = sorted(
        (each for each in cluster.jobs if each.state == "running"),
        key=lambda job: (job.run is None, math.inf if job.end is None else job.end),
    )
    pending = sorted((each for each in cluster.jobs if each.state == "pending"), key=lambda job: -job.priority)
    kept = (*running[:RECORDED_RUNNING], *pending[:RECORDED_PENDING])
    return {
        "time": cluster.time, "total": cluster.total, "idle": cluster.idle, "partition": cluster.partition,
        "max_nodes": cluster.max_nodes, "left_out": len(cluster.jobs) - len(kept), "fields": list(JOB_FIELDS),
        "jobs": [_row(each) for each in kept],
    }  # fmt: skip


def _row(job: JobView) -> list[Any]:
    values = list(dataclasses.astuple(job))
    while values and values[-1] is None:
        values.pop()
    return values


def cluster_from_json(found: Mapping[str, Any]) -> ClusterView:
    """Return the view that `cluster_to_json` wrote.

    Raises
    ------
    ValueError
        When it is not one.
    """
    try:
        fields = [each if each in JOB_FIELDS else None for each in found["fields"]]
        jobs = tuple(
            JobView(**{key: value for key, value in zip(fields, row, strict=False) if key is not None})
            for row in found["jobs"]
        )
        return ClusterView(
            found["time"], found["total"], found["idle"], jobs, found.get("partition", ""), found.get("max_nodes")
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not the view of a cluster: {error!r}") from None
