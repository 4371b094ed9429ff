"""What the launcher knows of the program's phases: from earlier runs, and by what the nodes do now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..run.history import History
from ..run.options import RunOptions
from .account import Account
from .application import Application

if TYPE_CHECKING:
    from ...resize.phases.looks import Look
    from ...resize.view import RunView
    from ..models.foresight import Foresight
    from ..models.recognition import Recognition


class Spotter:
    """Completes the views of a run; recognises the phase of a program that declares none.

    Nothing is read or watched before the first view has to be completed.
    """

    def __init__(self, account: Account, options: RunOptions) -> None:
        self._account, self._options = account, options
        self._foresight: Foresight | None = None
        self._recognition: Recognition | None = None
        self._learnt: dict[tuple[str, int], Look] = {}
        self.phase: str | None = None
        """The phase that was recognised last."""

    def turn(self, app: Application) -> None:
        """Look at what the nodes have done since."""
        progress = app.progress
        if self._foresight is None or progress is None or app.computing_since is None:
            return
        if progress.phase is not None:
            self._forget(app)
            return
        if self._recognition is None or self._recognition.generation != app.number:
            self._begin(app, self._foresight)
        recognition, now = self._recognition, self._account.clock()
        if recognition is None:
            return
        if recognition.turn(now, progress.step, progress.state == "running"):
            self._tell(recognition, now)
        state = recognition.state(now)
        known = state is not None and state.confirmed
        self._account.phase = (state.phase, state.confidence) if known and state is not None else (None, None)

    def _begin(self, app: Application, foresight: Foresight) -> None:
        looks = foresight.looks()
        if not looks or not self._options.telemetry or app.computing_since is None:
            return
        from ..models.recognition import Recognition

        def expected(step: int) -> str | None:
            ahead = foresight.ahead(step, None, None)
            return ahead[0].phase if ahead else None

        if self._recognition is not None:
            self._learnt.update({(each.phase, each.nodes): each for each in self._recognition.learnt})
        folder, known = self._account.run.folder / "telemetry", (*looks, *self._learnt.values())
        self._recognition = Recognition(
            folder, app.number, app.nodes, known, app.computing_since, before=foresight.last, expected=expected
        )
        app.phase_at = self._recognition.at

    def _forget(self, app: Application) -> None:
        if self._recognition is not None:
            self._recognition, app.phase_at = None, None
            self._account.phase, self.phase = (None, None), None

    def _tell(self, recognition: Recognition, now: float) -> None:
        state, step = recognition.state(now), recognition.since_step
        if state is None or not state.confirmed:
            return
        self.phase = state.phase
        if self._foresight is not None:
            self._foresight.note(state.phase, step or 0)
        self._account.record("recognised", phase=state.phase, confidence=state.confidence, step=step or 0)
        what = state.phase if state.phase is not None else "what it does is like none of the known phases"
        self._account.console.detail(f"recognised: {what} ({state.confidence:.0%} sure)")

    def completed(self, run: RunView, history: History, app: Application) -> RunView:
        """Return the view with what is known from before, and the phase where it was recognised."""
        if self._foresight is None:
            from ..models.foresight import Foresight

            self._foresight = Foresight(self._account.run, self._options, clock=self._account.clock)
            self.turn(app)
        state = None
        if self._recognition is not None and self._recognition.generation == run.generation:
            state = self._recognition.state(run.time)
        return self._foresight.completed(run, history, state)
