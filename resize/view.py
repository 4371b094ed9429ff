"""What a decision is made from, and what comes out of it: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ActionName = Literal["stay", "shrink", "expand", "cancel"]


@dataclass(frozen=True)
class JobView:
    """A job as the queue shows it. Times are unix seconds, None where unknown.

    ``nodes`` is the size held, or the least size asked for while pending. ``end`` is the latest end by
    the job's time limit. ``run`` is the run id when the job belongs to a malleable run.
    """

    job: str
    state: Literal["pending", "running"]
    nodes: int
    priority: float = 0.0
    submitted: float | None = None
    start: float | None = None
    end: float | None = None
    time_limit: float | None = None
    partition: str = ""
    reason: str = ""
    nodes_max: int | None = None
    run: str | None = None


@dataclass(frozen=True)
class ClusterView:
    """The cluster at one time, restricted to the nodes that this run could get.

    ``idle`` counts nodes that are free now; ``total`` those that are up at all; ``configured`` those that are down or
    drained, too, None where that is the same.
    """

    time: float
    total: int
    idle: int
    jobs: tuple[JobView, ...] = ()
    partition: str = ""
    max_nodes: int | None = None
    configured: int | None = None


@dataclass(frozen=True)
class Costs:
    """Seconds that one resize takes, as measured on this run; None where not yet measured."""

    save: float | None = None
    launch: float | None = None
    load: float | None = None


@dataclass(frozen=True)
class Rate:
    """Speed measured at one size: ``seconds_per_step`` over ``steps`` steps."""

    nodes: int
    seconds_per_step: float
    steps: int = 1
    phase: str | None = None


@dataclass(frozen=True)
class CostSample:
    """What one generation measured at its size: ``launch`` and ``load`` at its start, ``save`` at its end, seconds."""

    nodes: int
    bytes: int = 0
    save: float | None = None
    launch: float | None = None
    load: float | None = None


@dataclass(frozen=True)
class Ahead:
    """A phase that earlier runs, or this one before, had from step ``start`` to before step ``end``.

    ``confidence`` is from 0 to 1.
    """

    phase: str
    start: int
    end: int
    confidence: float = 1.0


@dataclass(frozen=True)
class RunView:
    """The run at one time.

    ``job`` is the scheduler's id of the allocation held. ``sizes`` are all allowed sizes in nodes,
    ascending. ``since`` is when the current size began, ``pending`` the size asked for in a
    successor that waits, ``end`` when the allocation's time limit is reached. ``expand_to`` and
    ``shrink_to`` are the sizes that the application set for its next suggestion. ``in_place`` says
    that growth takes only the additional nodes (local engine); otherwise the successor's whole
    allocation has to stand beside the old one until it takes over. ``no_shrink`` says that the job can't give nodes
    back, so that a smaller size needs a successor, too.

    ``earlier`` are rates of earlier runs of the same program, trusted less than ``rates``; both are in
    order of time. ``resize_costs`` are the changes of size so far. ``witnesses`` are (nodes, seconds) until a job
    of that size could start as the scheduler itself says (``sbatch --test-only``), ``waits`` those seen by
    this run. ``lost_steps`` is how many steps a change of size throws away on average, for programs that
    checkpoint only at their own interval. ``started`` is when the run began; ``deadline`` when the user
    wants it to be done. ``ahead`` are the phases that are to come, the present one first, with ``caveats`` about
    where that is known from; ``first_nodes`` is the size that the run began with.

    ``phase_confidence`` is how surely the phase was recognised by what the nodes do, from 0 to 1; None where the
    program declared it, or nobody looks. With it and no ``phase`` the program does what no known phase does.
    """

    time: float
    run: str
    generation: int
    nodes: int
    sizes: tuple[int, ...]
    since: float
    step: int = 0
    steps: int | None = None
    job: str | None = None
    rates: tuple[Rate, ...] = ()
    costs: Costs = field(default_factory=Costs)
    state_bytes: int = 0
    phase: str | None = None
    suggestion: Literal["policy", "stay", "expand", "shrink"] = "policy"
    inhibited_until: float = 0.0
    pending: int | None = None
    pending_since: float | None = None
    pending_job: str | None = None
    end: float | None = None
    node_hours: float = 0.0
    resizes: int = 0
    waits: tuple[tuple[int, float], ...] = ()
    expand_to: int | None = None
    shrink_to: int | None = None
    in_place: bool = False
    earlier: tuple[Rate, ...] = ()
    resize_costs: tuple[CostSample, ...] = ()
    witnesses: tuple[tuple[int, float], ...] = ()
    lost_steps: float = 0.0
    started: float | None = None
    deadline: float | None = None
    ahead: tuple[Ahead, ...] = ()
    caveats: tuple[str, ...] = ()
    first_nodes: int | None = None
    phase_confidence: float | None = None
    no_shrink: bool = False


@dataclass(frozen=True)
class Choice:
    """One row of a decision's table: what a size would cost and bring. Seconds; None where unknown."""

    nodes: int
    wait: tuple[float, float] | None = None
    cost: float | None = None
    finish: float | None = None
    node_hours: float | None = None
    gain: float | None = None
    gain_error: float | None = None
    taken: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Decision:
    """What to do now, and why. ``nodes`` is the size to be at; ``cancel`` gives up a pending successor.

    ``limit`` is the time limit, in seconds, that a successor should ask for so that it fits before a job that
    waits for its nodes; None to ask for what the user asked for. ``again`` is in how many seconds to ask the policy
    again at the latest, None for when there is something new.
    """

    action: ActionName
    nodes: int
    reason: str
    policy: str = ""
    table: tuple[Choice, ...] = ()
    facts: Mapping[str, float | str] = field(default_factory=dict)
    limit: float | None = None
    again: float | None = None
