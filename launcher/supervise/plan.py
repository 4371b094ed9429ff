"""What follows once the ranks have left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["in place", "handover", "leave", "requeue", "stop"]


@dataclass(frozen=True)
class Plan:
    """Why the application was asked to leave, and what is to follow.

    Attributes
    ----------
    kind
        ``in place``: give nodes back (or, locally, take some) and start again here. ``handover``: release the run to
        the successor that has started, and end this job. ``leave``: release it to a successor that waits for this
        job's end (chain, time limit), or for its turn. ``requeue``: the scheduler starts this job again. ``stop``: end
        the run.
    nodes
        Size that follows.
    by, reason
        Who asked, and why, in words.
    why
        How the history names the end of the generation.
    """

    kind: Kind
    nodes: int
    by: str
    reason: str
    why: str
