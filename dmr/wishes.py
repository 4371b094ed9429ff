"""What this rank wants to be heard at the next agreement: its suggestions, inhibitors, and that it was told to end."""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass

import numpy as np

from .errors import Error

SUGGESTION_HOLDS = 60.0
"""Seconds that a suggestion to expand or shrink stands: longer than the launcher takes to look at the queue once."""

STEP_INHIBITOR_HOLDS = 60.0
"""Seconds for which an inhibitor by steps is told ahead, at each agreement anew."""


class Suggest(enum.IntEnum):
    """What a rank thinks of its size; where ranks differ, the higher number wins."""

    POLICY = 0
    EXPAND = 1
    SHRINK = 2
    STAY = 3


@dataclass
class Wishes:
    """One rank's wishes. Nothing of it waits or talks."""

    suggestion: Suggest = Suggest.POLICY
    signalled: bool = False
    saving: bool = False
    cancels: int = 0
    expand_by: int = 0
    shrink_by: int = 0
    inhibited_until: float = 0.0
    _held: Suggest = Suggest.POLICY
    _held_until: float = 0.0
    _inhibited_before_step: int = 0

    def suggest(self, chosen: Suggest) -> None:
        """Suggest something until the next agreement; to expand or shrink, for `SUGGESTION_HOLDS` seconds."""
        self.suggestion = max(self.suggestion, chosen)
        if chosen in (Suggest.EXPAND, Suggest.SHRINK):
            self._held, self._held_until = chosen, time.monotonic() + SUGGESTION_HOLDS

    def suggest_by_name(self, what: str) -> None:
        """Do as `suggest`; ``policy`` takes a suggestion back.

        Raises
        ------
        Error
            When there is no such suggestion.
        """
        try:
            chosen = Suggest[what.upper()]
        except (KeyError, AttributeError):
            raise Error(f"run.suggest({what!r}): takes 'expand', 'shrink', 'stay' or 'policy'") from None
        if chosen is Suggest.POLICY:
            self.suggestion, self._held_until = Suggest.POLICY, 0.0
        else:
            self.suggest(chosen)

    def inhibit(self, seconds: float | None, steps: int | None, step: int) -> None:
        """Inhibit changes of size from now, at ``step``; see `Run.inhibit`."""
        if (seconds is None) == (steps is None) or not (seconds or steps or 0) >= 0:
            raise Error(f"run.inhibit({seconds!r}, steps={steps!r}): takes either seconds or steps, 0 or more")
        self.inhibited_until = time.time() + seconds if seconds else 0.0
        self._inhibited_before_step = step + steps if steps else 0

    def at(self, step: int) -> Wishes:
        """Bring up to date what stands over several agreements; call it before each."""
        if time.monotonic() < self._held_until:
            self.suggestion = max(self.suggestion, self._held)
        if self._inhibited_before_step:
            still = step < self._inhibited_before_step
            self.inhibited_until = time.time() + STEP_INHIBITOR_HOLDS if still else 0.0
            self._inhibited_before_step = self._inhibited_before_step if still else 0
        return self

    def told(self) -> None:
        """Take note that the suggestion has been heard."""
        self.suggestion = Suggest.POLICY


def count_of_nodes(what: str, by: int) -> int:
    """Return a number of nodes that a program gave.

    Raises
    ------
    Error
        When it is none.
    """
    if not isinstance(by, int | np.integer) or by < 0:
        raise Error(f"run.{what}({by!r}): takes a number of nodes, 0 or more")
    return int(by)
