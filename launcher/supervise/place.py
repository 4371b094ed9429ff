"""Where the ranks run: the allocation held, fitted to the size that is wanted, and the start of the ranks on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from ...resize import words
from ..engines.engine import Allocation, Engine, EngineError, Launch, Ranks, ShrinkRefused
from ..foreign.start import start_foreign
from ..run.options import RunOptions
from ..run.rundir import Generation
from ..telemetry.start import prefix as sampler
from .account import Account
from .application import Application
from .console import Console
from .hooks import reached


class Place:
    """The allocation of this launcher.

    Attributes
    ----------
    allocation
        What is held, as far as it is known.
    """

    def __init__(
        self, account: Account, options: RunOptions, engine: Engine, console: Console, held: Allocation | None = None
    ) -> None:
        self.account, self.options, self.engine, self.console = account, options, engine, console
        self.allocation = engine.allocation() if held is None else held
        self._refused = False
        self.used = len(self.allocation.nodes)
        """Nodes that ranks run on."""

    @property
    def in_place(self) -> bool:
        """Whether growth is possible here."""
        return not self.engine.can_submit

    @property
    def shrink_refused(self) -> bool:
        """Whether nodes can't be given back, by what is known: every other size then needs a successor."""
        return self._refused or self.engine.no_shrink is not None

    @property
    def job(self) -> str | None:
        return self.allocation.job

    def first_size(self, asked: int | None = None) -> int:
        """Return the size to begin with: what was asked for where there is a choice, else the largest that fits.

        Raises
        ------
        EngineError
            When fewer nodes are held than the run takes.
        """
        largest = self.largest(len(self.allocation.nodes))
        last = self.account.history.last
        wanted = asked or (self.options.start if last is None else last.nodes if self.in_place else None)
        return wanted if wanted in self.options.sizes and wanted <= largest else largest

    def lose(self) -> bool:
        """Take note of nodes that were lost; True when there are any."""
        before = len(self.allocation.nodes)
        self.allocation = self.engine.survivors(self.allocation)
        after = len(self.allocation.nodes)
        if after == before:
            return False
        self.account.record("shrunk", before=before, after=after, lost=True)
        self.console.warn(f"{before - after} of {words.nodes(before)} can't be used: lost, or silent")
        return True

    def silent(self) -> bool:
        """Whether nodes don't answer that may yet."""
        return bool(self.engine.silent(self.allocation))

    def largest(self, most: int) -> int:
        """Return the largest allowed size of at most ``most`` that fits into what is held.

        Raises
        ------
        EngineError
            When there is none.
        """
        held = len(self.allocation.nodes)
        fitting = [size for size in self.options.sizes if size <= min(held, most)]
        if not fitting:
            least = words.nodes(self.options.sizes[0])
            raise EngineError(f"the run takes {least} at least, but only {held} can be had here")
        return fitting[-1]

    def usable(self, nodes: int) -> int:
        """Return the size to start with when ``nodes`` is wanted: all that is held where nodes can't be given back."""
        held = len(self.allocation.nodes)
        return self.largest(held) if self.shrink_refused or held < nodes else nodes

    @property
    def idle(self) -> int:
        """Nodes held beyond those that the ranks were started on, which a later try may give back."""
        return 0 if self.shrink_refused else len(self.allocation.nodes) - self.used

    def why_not_keep(self, keep: Sequence[str], nodes: int) -> str:
        """Return why these nodes can't be among ``nodes`` that are kept; empty when they can."""
        held = self.allocation.nodes
        if self.in_place or self.shrink_refused or nodes >= self.used:
            return "nodes to keep can be named where a job gives nodes back, and nowhere else"
        if unknown := [each for each in keep if each not in held]:
            return f"{', '.join(unknown)} can't be kept: the job holds {', '.join(held)}"
        if len(wanted := dict.fromkeys((held[0], *keep))) > nodes:
            why = f"{held[0]} stays, since dmr-launch runs there"
            return f"{', '.join(wanted)} are more than {words.nodes(nodes)} ({why})"
        return ""

    def prefer(self, keep: Sequence[str]) -> None:
        """Let these nodes be used before others, after the one that the launcher runs on."""
        held = self.allocation.nodes
        self.allocation = dataclasses.replace(self.allocation, nodes=tuple(dict.fromkeys((held[0], *keep, *held))))

    def fit(self, nodes: int) -> None:
        """Hold the nodes that are used and no more, where the engine allows it."""
        before = len(self.allocation.nodes)
        if nodes == before or (nodes < before and self.shrink_refused):
            return
        try:
            self.allocation = self.engine.resize_in_place(self.allocation, nodes)
        except ShrinkRefused as error:
            self._refused = True
            self.account.record("failed", what=f"{before} to {words.nodes(nodes)} in place was refused: {error}")
            self.console.warn(f"can't go from {before} to {words.nodes(nodes)} in place: {error}")
        except EngineError as error:
            self.account.record("failed", what=f"{before} to {words.nodes(nodes)} in place failed: {error}")
            self.console.warn(f"could not go from {before} to {words.nodes(nodes)} in place: {error}")
        else:
            after = len(self.allocation.nodes)
            self.account.record("shrunk" if after < before else "grown", before=before, after=after)
        reached("shrunk", self.account.number)

    def start(self, nodes: int, cause: str, *, may_fail: bool) -> Application:
        """Start the ranks on ``nodes`` of the nodes held.

        Parameters
        ----------
        may_fail
            Count a start that the engine can't do as a crash of the ranks, rather than raise.
        """
        account, held = self.account, self.allocation
        # What can't be given back stays idle.
        used = dataclasses.replace(held, nodes=held.nodes[:nodes])
        ranks = nodes * used.tasks_per_node
        self.used = nodes
        account.launched = True
        account.record(
            "launched", token=account.token, job=used.job, nodes=nodes, hosts=list(used.nodes), ranks=ranks, cause=cause
        )
        self.console.say(f"generation {account.number}: {words.nodes(nodes)}, {words.count(ranks, 'rank')} ({cause})")
        generation = Generation(account.run.folder, account.number, account.token, nodes)
        launch = Launch(
            self.options.command,
            used,
            {**generation.environment(), **self.options.application_environment()},
            Path(self.options.folder),
            account.run.folder / "logs" / f"{account.number:04d}.out",
            prefix=sampler() if self.options.telemetry else (),
        )
        failed: str | None = None
        started: Ranks
        try:
            if self.options.app is None:
                started = self.engine.start(launch)
            else:
                started = start_foreign(self.engine, launch, self.options, self.console)
        except EngineError as error:
            if not may_fail:
                account.record("ended", why="failed", text=str(error))
                raise
            started, failed = NeverStarted(), str(error)
        app = Application(
            account.run, account.number, account.token, nodes, started, grace=self.options.grace,
            next_id=account.next_control, clock=account.clock,
        )  # fmt: skip
        app.killed = failed
        account.reread()
        reached("launched", account.number)
        return app


class NeverStarted:
    """Stands for ranks that the engine could not start."""

    def poll(self) -> int | None:
        return 1

    def terminate(self) -> None:
        return

    def kill(self) -> None:
        return

    def dump(self) -> None:
        return

    def signal(self, name: str) -> bool:
        return False
