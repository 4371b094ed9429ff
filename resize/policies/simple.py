"""Policies that need no model."""

from __future__ import annotations

from dataclasses import dataclass

from ..policy import Proposal
from ..situation import Rules, Situation


@dataclass(frozen=True)
class Static:
    """Keeps the size that the run has."""

    rules: Rules = Rules()
    name: str = "static"

    def propose(self, situation: Situation) -> Proposal:
        return Proposal(situation.run.nodes, "the policy is to keep the size")
