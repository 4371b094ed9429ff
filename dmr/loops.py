"""Where a program is in its loops: what lets a restarted one go on at the right step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import Error


class Loops:
    """The loops of a program in the order in which it enters them, and the step of the whole run.

    A loop that was done when a checkpoint was made is passed over after a restart; the one that was
    under way goes on at the turn that had not begun.
    """

    def __init__(self, saved: Mapping[str, Any] | None = None) -> None:
        saved = saved or {}
        self._loops: list[dict[str, Any]] = [dict(loop) for loop in saved.get("loops", [])]
        self._once: set[str] = set(saved.get("once", []))
        self._entered = 0
        self._inside = False
        self._offset = 0
        self.here = 0

    def to_json(self) -> dict[str, Any]:
        """Return what `Loops` takes as ``saved``."""
        loops = self._loops[: self._entered]
        if self._inside:
            loops = [*loops[:-1], {**loops[-1], "next": self.here}]
        return {"loops": loops, "once": sorted(self._once)}

    @property
    def entered(self) -> bool:
        """Whether the program has come to its first loop."""
        return self._entered > 0

    @property
    def inside(self) -> bool:
        return self._inside

    @property
    def step(self) -> int:
        """Turns begun over all loops of the run."""
        return self._offset + self.here

    def step_at(self, turn: int) -> int:
        """Return the step of the whole run that a turn of the present loop is."""
        return self._offset + turn

    def enter(self, start: int) -> int | None:
        """Enter the next loop; returns the turn to begin with, None when the loop is done already.

        Raises
        ------
        Error
            When another loop is under way.
        """
        if self._inside:
            raise Error(
                "run.steps inside another loop of steps: only one of the two can hold the safe points; "
                "use range for the other, or finish the first"
            )
        index = self._entered
        self._entered += 1
        if index == len(self._loops):
            self._loops.append({"first": start, "next": start, "done": False})
        loop = self._loops[index]
        self._offset = sum(each["next"] - each["first"] for each in self._loops[:index]) - loop["first"]
        self.here = loop["next"]
        if loop["done"]:
            return None
        self._inside = True
        return self.here

    def leave(self, done: bool) -> None:
        """Leave the loop, done or broken off; one that was broken off by the program counts as done."""
        self._loops[self._entered - 1].update(next=self.here, done=done)
        self._inside = False

    def once(self, name: str) -> bool:
        if name in self._once:
            return False
        self._once.add(name)
        return True
