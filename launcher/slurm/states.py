"""Slurm's states of jobs and nodes, in the few words that the launcher needs."""

from __future__ import annotations

from ..engines.engine import JobState
from .parse import NodeRow

# A job requeued (after preemption, say) shows one of these and starts again under its id: not an end.
_PENDING = frozenset(("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"))
# While CONFIGURING nodes are held already; while COMPLETING they still are, and processes may still run.
_RUNNING = frozenset(
    (
        "RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING", "COMPLETING", "CONFIGURING",
        "POWER_UP_NODE", "EXPEDITING",
    )
)  # fmt: skip
_ENDED = frozenset(
    (
        "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL",
        "DEADLINE", "REVOKED", "LAUNCH_FAILED", "RECONFIG_FAIL",
    )
)  # fmt: skip

_UP = frozenset(("idle", "mixed", "allocated", "completing", "planned", "blocked", "perfctrs", "npc"))
# A node planned for a larger job is free until that starts.
_IDLE = frozenset(("idle", "planned"))
# It doesn't answer, powers down, is under maintenance, or is to reboot. (~ is powered off: Slurm starts it for a job.)
_AWAY = frozenset("*%!$@^")


def is_up(node: NodeRow) -> bool:
    """Whether a node is, or comes to be, at a job's disposal: not down, drained, reserved, in maintenance …"""
    return node.state in _UP and not _AWAY & set(node.flag)


def is_responding(node: NodeRow) -> bool:
    """Whether a node answers, so that ranks can be started on it; one that is drained does."""
    return not _is_given_up(node) and not node.state.startswith("unknown") and "*" not in node.flag


def is_silent(node: NodeRow) -> bool:
    """Whether a node does not answer for now, and is not given up: a controller just started has to hear of it yet."""
    return not _is_given_up(node) and not is_responding(node)


def _is_given_up(node: NodeRow) -> bool:
    return node.state.startswith(("down", "fail", "power", "reboot"))


def is_idle(node: NodeRow) -> bool:
    """Whether the whole node is free now."""
    return node.state in _IDLE and is_up(node)


def job_state(state: str) -> JobState:
    """Return what a job's state means; a state that is not known is ``unknown``, so that nothing is done on it."""
    word = state.upper().split(" ")[0].rstrip("+")
    if word in _PENDING:
        return "pending"
    if word in _RUNNING:
        return "running"
    return "ended" if word in _ENDED else "unknown"
