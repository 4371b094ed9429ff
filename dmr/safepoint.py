"""Safe points: when the ranks talk, and what they agree on.

Between two agreements a safe point is one comparison of integers. How many steps lie between is
chosen by rank 0 from the measured time of a step and told to all in the agreement before, so every
rank enters the next one at the same step, without asking.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import Error
from .wishes import Suggest, Wishes

MOST_STEPS_APART = 10_000
"""A step that takes a microsecond costs an agreement (some 20 µs) 0.2 % this way; and a step that becomes
a thousand times slower in between still sees a request within ten seconds."""


class Ask(enum.IntEnum):
    """What the launcher asks; `Control.action` by number."""

    NONE = 0
    CHECKPOINT = 1
    RESIZE = 2
    STOP = 3


@dataclass(frozen=True)
class Order:
    """What rank 0 wants all ranks to do at this safe point.

    ``request`` is the id of the launcher's request, 0 when the order comes from elsewhere; ``save`` whether a
    checkpoint is to be made; ``here`` whether the program starts again on the same node. ``pending`` is the size of the
    successor that waits, 0 for none, ``resizes`` how often the size changed: told along, so that every rank knows the
    same.
    """

    request: int = 0
    ask: Ask = Ask.NONE
    save: bool = False
    pending: int = 0
    resizes: int = 0
    here: bool = False

    @property
    def leaves(self) -> bool:
        """Whether the program leaves after saving."""
        return self.ask in (Ask.RESIZE, Ask.STOP)


@dataclass(frozen=True)
class Agreement:
    """What all ranks agreed on: rank 0's order, the strongest suggestion, whether a rank was told to end.

    ``saving`` is whether a rank is still saving in the background.
    ``expand_by`` and ``shrink_by`` are the largest sizes of the next change that a rank has set, 0 for none;
    ``cancels`` is the largest count of calls to give up a pending expansion.
    """

    order: Order
    suggestion: Suggest
    signalled: bool
    saving: bool = False
    cancels: int = 0
    expand_by: int = 0
    shrink_by: int = 0
    inhibited_until: float = 0.0


class Cadence:
    """How many steps apart the agreements are, on rank 0.

    Parameters
    ----------
    interval
        Seconds that should lie between two agreements.
    """

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.seconds_per_step: float | None = None
        self._apart = 1
        self._step: int | None = None
        self._time = 0.0

    def entered(self, step: int, now: float) -> None:
        """Take note that an agreement begins at ``step``; updates ``seconds_per_step``."""
        if self._step is not None and step > self._step:
            self.seconds_per_step = max(now - self._time, 0.0) / (step - self._step)

    def left(self, step: int, now: float) -> None:
        """Take note that the program goes on from ``step``: what a save took is no part of a step."""
        self._step, self._time = step, now

    def apart(self) -> int:
        """Return the number of steps until the next agreement; at most doubles each time."""
        if self.seconds_per_step is None:
            return 1
        wanted = self.interval / self.seconds_per_step if self.seconds_per_step > 0 else MOST_STEPS_APART
        self._apart = max(1, min(int(wanted), 2 * self._apart, MOST_STEPS_APART))
        return self._apart


AT_THE_END = 2**62
"""The step of a program that is done, so that ranks which are not are told rather than waited for."""


def agree(comm: Any, step: int, order: Order, next_due: int, wishes: Wishes) -> tuple[Agreement, int]:
    """Reach agreement at a safe point. Collective: one Allreduce of sixteen 64-bit integers.

    Parameters
    ----------
    comm
        The run's own communicator, used for nothing else.
    step
        The step that this rank is at.
    order, next_due
        What rank 0 wants, and the step of the next agreement; ignored on other ranks.

    Returns
    -------
    agreement, next_due

    Raises
    ------
    Error
        On every rank, when the ranks are not at the same step.
    """
    root = comm.Get_rank() == 0
    mine = np.array(
        [
            order.request if root else 0,
            int(order.ask) if root else 0,
            int(order.save) if root else 0,
            next_due if root else 0,
            int(wishes.suggestion),
            int(wishes.signalled),
            wishes.cancels,
            wishes.expand_by,
            wishes.shrink_by,
            int(wishes.inhibited_until * 1000),
            order.pending if root else 0,
            order.resizes if root else 0,
            int(wishes.saving),
            int(order.here) if root else 0,
            step,
            -step,
        ],
        dtype=np.int64,
    )
    if comm.Get_size() == 1:
        all_ = mine
    else:
        from mpi4py import MPI

        all_ = np.empty_like(mine)
        comm.Allreduce(mine, all_, op=MPI.MAX)
    if all_[-2] != -all_[-1]:
        if all_[-2] == AT_THE_END:
            raise Error(
                f"some ranks have ended, others are at safe point {-all_[-1]}: every rank has to make the same calls "
                "of run.steps and dmr.check, so a loop has to be left by all of them at the same step"
            )
        raise Error(
            f"the ranks are at different steps: rank {comm.Get_rank()} is at safe point {step}, others lie between "
            f"{-all_[-1]} and {all_[-2]}; every rank has to make the same calls of run.steps and dmr.check"
        )
    (
        request,
        ask,
        save,
        due,
        suggestion,
        signalled,
        cancels,
        expand_by,
        shrink_by,
        inhibited,
        pending,
        resizes,
        saving,
        here,
    ) = (int(value) for value in all_[:14])
    agreement = Agreement(
        Order(request, Ask(ask), bool(save), pending, resizes, bool(here)),
        Suggest(suggestion),
        bool(signalled),
        bool(saving),
        cancels,
        expand_by,
        shrink_by,
        inhibited / 1000,
    )
    return agreement, due
