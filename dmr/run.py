"""A run as the program sees it: its state, its loop, and the safe points in it."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from .declarations import Declarations
from .ending import leaves, shorten_end
from .errors import Error, Released
from .launcher.run import sign
from .launcher.run.rundir import Generation
from .link import Link
from .loops import Loops
from .safepoint import AT_THE_END, Agreement, Ask, Cadence, Order, agree
from .saving import Saver
from .settings import Settings
from .state import State
from .waiting import timed, waiting
from .wishes import Suggest, Wishes, count_of_nodes
from .world import SingleProcess

_META = "dmr"


class Run(Declarations):
    """The state of a malleable program and its way through its steps. Made by `dmr.malleable` or `dmr.init`.

    Making it is collective.

    Attributes
    ----------
    comm : mpi4py.MPI.Intracomm
        A communicator of all ranks for the program's own use.
    fresh : bool
        True when the program starts from the beginning, False when it was restarted from a checkpoint.
    rank, ranks : int
    nodes : int
        Nodes of this generation; 1 outside a launcher.
    generation : int
        Counts the launches of this run from 1 on; 0 outside a launcher.
    """

    def __init__(self, comm: Any, generation: Generation | None, settings: Settings) -> None:
        self._waiting = waiting(generation)
        self.comm = comm.Dup()
        if self._waiting is not None and not isinstance(comm, SingleProcess):
            self.comm = timed(self.comm, self._waiting)
        self._talk = comm.Dup()
        self.rank, self.ranks = comm.Get_rank(), comm.Get_size()
        self.generation = generation.number if generation else 0
        self.nodes = generation.nodes if generation else 1
        self._link = Link(generation, self.ranks, 2 * settings.interval) if generation and self.rank == 0 else None
        sign.spoke()
        if generation:
            shorten_end()
        self._wishes = Wishes()
        self._cadence = Cadence(settings.interval)
        self._told = Order()
        self._phase: str | None = None
        self._phase_step = 0
        self._due = 0
        self._checks = False
        self._order: Order | None = None
        if generation and threading.current_thread() is threading.main_thread():
            self._listen()
        self._saver = Saver(generation, self._talk, settings, self._link) if generation else None
        loaded = self._saver.load_newest() if self._saver else None
        self.fresh = loaded is None
        super().__init__(State(self.rank, self.ranks, loaded))
        self._loops = Loops(loaded.info.get(_META) if loaded else None)

    def once(self, name: str) -> bool:
        """Return True the first time in the whole run, False in the generations that follow.

        For set-up between two loops, which would otherwise run again after a restart in the second one.
        """
        return self._loops.once(name)

    # -- the loop

    @property
    def step(self) -> int:
        """Turns begun so far over all loops of the run; what a checkpoint is numbered by."""
        return self._loops.step

    @property
    def began(self) -> bool:
        """Whether the program has come to its first safe point, in this generation or an earlier one."""
        return self._loops.entered or not self.fresh

    def steps(self, n: int, start: int = 0) -> Iterator[int]:
        """Yield the steps ``start`` … ``n - 1``, each after a safe point; after a restart those that are left.

        Every rank has to make the same calls. Loops may follow one another, not lie in one another.

        Raises
        ------
        Error
            Inside another such loop; when the checkpoint holds state that the program has not declared by now;
            when the ranks are not at the same step.
        """
        loops = self._loops
        turn = loops.enter(start)
        if turn is None:
            return
        try:
            self._state.complete()
            self._due = turn
            if self._link:
                self._link.update(steps=loops.step_at(n))
            while turn < n:
                if turn >= self._due:
                    loops.here = turn
                    self._leave_if(self._safe_point(turn))
                stop = min(self._due, n)
                for turn in range(turn, stop):  # noqa: B020
                    loops.here = turn
                    yield turn
                turn = stop
            loops.here = max(n, turn)
        finally:
            loops.leave(done=True)

    def check(self, suggestion: Suggest = Suggest.POLICY) -> bool:
        """Safe point of a loop of the program's own; `dmr.check` is this with DMR's names.

        A checkpoint that is due is made here.

        Returns
        -------
        bool
            True when the program has to leave: call `release`, then end.
        """
        loops = self._loops
        if not self._checks:
            turn = loops.enter(0)
            self._state.complete()
            self._due = turn or 0
            self._checks = True
        else:
            loops.here += 1
        if suggestion is not Suggest.POLICY:
            self._wishes.suggest(suggestion)
        if loops.here < self._due:
            return False
        self._order = self._safe_point(loops.here)
        return self._order is not None

    def release(self) -> bool:
        """Save and get ready to leave, after `check` returned True. Collective.

        Returns
        -------
        bool
            False when the save failed: nothing is lost, the program goes on computing.

        Raises
        ------
        Error
            When nothing was asked for.
        """
        order, self._order = self._order, None
        if order is None:
            raise Error("nothing was asked for: call dmr.reconfigure when dmr.check has returned Action.RECONFIGURE")
        return self._save(order)

    # -- wishes

    def suggest(self, what: str) -> None:
        """Suggest ``expand``, ``shrink``, ``stay`` or ``policy`` (take it back). Any rank, at any time; never waits.

        Where ranks differ, ``stay`` wins over ``shrink`` over ``expand``. A suggestion to expand or shrink
        stands until the size changes, or for a minute.
        """
        self._wishes.suggest_by_name(what)

    def next_expand(self, by: int) -> None:
        """Set by how many nodes the next expansion that is suggested goes; 0: to the next allowed size."""
        self._wishes.expand_by = count_of_nodes("next_expand", by)

    def next_shrink(self, by: int) -> None:
        """Set by how many nodes the next shrink that is suggested goes; 0: to the next allowed size."""
        self._wishes.shrink_by = count_of_nodes("next_shrink", by)

    def inhibit(self, seconds: float | None = None, *, steps: int | None = None) -> None:
        """Ask for no change of size for so many seconds or steps, counted from now. Any rank; 0 takes its own back.

        It holds back the policy, not a user's ``dmr resize``.
        """
        self._wishes.inhibit(seconds, steps, self.step)

    def cancel_expand(self) -> None:
        """Give up an expansion that waits in the queue. Any rank; done soon after the next safe point."""
        self._wishes.cancels += 1

    @property
    def next_sizes(self) -> tuple[int, int]:
        """What this rank has set by `next_expand` and `next_shrink`."""
        return self._wishes.expand_by, self._wishes.shrink_by

    @property
    def pending_expand(self) -> int | None:
        """Size in nodes of the successor that waits in the queue, None for none. As of the last agreement."""
        return self._told.pending or None

    @property
    def resizes(self) -> int:
        """How often the size of the run changed. As of the last agreement."""
        return self._told.resizes

    # -- records

    def note(self, event: str, **fields: Any) -> None:
        """Add an event of the program's own, with JSON fields, to the run's ledger. Any rank calls, rank 0 writes.

        Raises
        ------
        Error
            When a field is no JSON value.
        """
        try:
            json.dumps(fields, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise Error(f"run.note({event!r}): its fields have to be JSON values: {error}") from None
        if self._link:
            self._link.event("note", note=event, step=self.step, data=fields)

    def phase(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Declare that a phase of the program begins: ``run.phase("solve")`` or ``with run.phase("solve"):``.

        Called alone, the phase lasts until the next one; as a context manager until its end, when the phase
        before goes on.
        """
        before = self._phase
        self._enter_phase(name)
        return _Phase(self, before)

    def log(self, text: str) -> None:
        """Print a line on rank 0's standard error, marked as dmr's."""
        if self.rank == 0:
            print(f"dmr: {text}", file=sys.stderr, flush=True)

    # -- end

    def finish(self) -> None:
        """Report that the program is done, and free the communicators. Collective.

        Raises
        ------
        Error
            On every rank, when others have not come to the end but to a safe point.
        """
        agree(self._talk, AT_THE_END, Order(), 0, self._wishes)
        if self._saver:
            self._saver.collect()
        if self._link:
            self._link.update(now=True, state="finished", step=self.step)
        self.close()

    def leave(self) -> None:
        """Report that every rank has let go, after `release`. Collective."""
        self._talk.Barrier()
        if self._link:
            self._link.update(now=True, state="leaving")
        self.close()
        leaves()

    def close(self) -> None:
        """Free the communicators. Collective."""
        if self._saver:
            self._saver.close()
            self._saver = None
        for comm in (self._talk, self.comm):
            if comm is not None:
                comm.Free()
        self._talk = self.comm = None

    # -- inside

    def _listen(self) -> None:
        def told_to_end(signum: int, frame: object) -> None:
            self._wishes.signalled = True

        signal.signal(signal.SIGTERM, told_to_end)
        sign.show_stacks_on_request()

    def _enter_phase(self, name: str | None) -> None:
        if name == self._phase:
            return
        self._phase = name
        if self._link:
            # What comes now is measured apart from what was before, where phases last for several steps.
            if self.step - self._phase_step > 1:
                self._cadence.left(self._loops.here, time.monotonic())
            self._phase_step = self.step
            self._link.update(phase=name, step=self.step)
            self._link.event("phase", phase=name, step=self.step)

    def _safe_point(self, turn: int) -> Order | None:
        """Agree with all ranks and save if that is due; returns an order to leave, which is still to be followed."""
        order, due = Order(), 0
        if self.rank == 0:
            moment = time.monotonic()
            self._cadence.entered(turn, moment)
            order = self._orders()
            due = turn + self._cadence.apart()
            if self._saver and (left := self._saver.steps_left(self.step)):
                due = min(due, turn + left)
        self._wishes.saving = self._saver is not None and self._saver.busy
        with self._waiting or contextlib.nullcontext():
            agreement, self._due = agree(self._talk, turn, order, due, self._wishes.at(self.step))
        self._wishes.told()
        if self._link:
            self._report(agreement)
        if self._saver and not agreement.saving:
            self._saver.collect()
        order = self._told = agreement.order
        if agreement.signalled and not order.leaves:
            order = Order(order.request, Ask.STOP)
        if order.leaves:
            self._due = turn + 1
            return order
        if order.save:
            self._save(order)
        if self.rank == 0:
            self._cadence.left(turn, time.monotonic())
        return None

    def _leave_if(self, order: Order | None) -> None:
        if order is not None and self._save(order):
            raise Released(order.ask.name.lower())

    def _orders(self) -> Order:
        """Rank 0: what is to be done at this safe point."""
        control = self._link.request() if self._link else None
        save = self._saver is not None and self._saver.due(self.step)
        launcher = self._link.launcher() if self._link else None
        pending, resizes = (launcher.pending_nodes or 0, launcher.resizes) if launcher else (0, 0)
        if control is None:
            return Order(save=save, pending=pending, resizes=resizes)
        save = save or control.action == "checkpoint"
        return Order(control.id, Ask[control.action.upper()], save, pending, resizes, control.here)

    def _report(self, agreement: Agreement) -> None:
        assert self._link is not None
        suggestion = agreement.suggestion.name.lower()
        before = self._link.progress
        self._link.update(
            now=(suggestion, agreement.cancels) != (before.suggestion, before.cancelled_expands),
            state="running",
            step=self.step,
            seconds_per_step=self._cadence.seconds_per_step,
            phase=self._phase,
            suggestion=suggestion,
            cancelled_expands=agreement.cancels,
            expand_by=agreement.expand_by,
            shrink_by=agreement.shrink_by,
            inhibited_until=agreement.inhibited_until,
        )

    def _save(self, order: Order) -> bool:
        """Make a checkpoint; False when that failed and the program goes on without. Collective."""
        if self._saver is None:
            raise Error("there is no run directory to save to: start the program with dmr-launch")
        info = {_META: {**self._loops.to_json(), "nodes": self.nodes, "ranks": self.ranks}}
        return self._saver.save(self.step, self._state.items(), info, order)


class _Phase(contextlib.AbstractContextManager[None]):
    def __init__(self, run: Run, before: str | None) -> None:
        self._run, self._before = run, before

    def __exit__(self, *exc: object) -> None:
        self._run._enter_phase(self._before)
