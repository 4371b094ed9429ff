"""The ranks of a program that checkpoints by itself, with the monitor that speaks for them."""

from __future__ import annotations

from ..engines.engine import Ranks
from .monitor import Monitor


class ForeignRanks:
    """Ranks whose monitor has its turn whenever the launcher looks after them.

    The end is told only when the monitor has seen what they left behind.
    """

    def __init__(self, ranks: Ranks, monitor: Monitor) -> None:
        self._ranks, self._monitor = ranks, monitor
        self._told = False

    def poll(self) -> int | None:
        status = self._ranks.poll()
        if status is None:
            self._monitor.turn()
            return None
        if not self._told:
            self._told = self._monitor.ended(status)
        return status if self._told else None

    def terminate(self) -> None:
        if self._ranks.poll() is None:
            self._monitor.killed()
        self._ranks.terminate()

    def kill(self) -> None:
        if self._ranks.poll() is None:
            self._monitor.killed()
        self._ranks.kill()

    def dump(self) -> None:
        """Do nothing: a signal that the program does not know would end it, and tell of no stack."""

    def signal(self, name: str) -> bool:
        return self._ranks.signal(name)
