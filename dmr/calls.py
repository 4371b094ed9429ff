"""The four calls, for a program with a loop of its own; names and meaning follow BSC's DMR.

::

    run = dmr.init()                            # RESTART after a resize: the state is loaded as it is declared
    u = dmr.current().array("u", (n,), "f8")
    while not done:
        if dmr.check(dmr.USE_POLICY) is dmr.Action.RECONFIGURE:
            if dmr.reconfigure() is dmr.Action.REDIST_FINALIZE:
                dmr.finalize()                  # ends this process
        step(u.local)
    dmr.finalize()

Unlike there, a suggestion is this rank's own: ranks may differ and nothing waits.
"""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Callable
from typing import Any

from .ckpt import Retention
from .entry import begin, fail
from .errors import Error
from .run import Run
from .wishes import Suggest

USE_POLICY = Suggest.POLICY
SHOULD_EXPAND = Suggest.EXPAND
SHOULD_SHRINK = Suggest.SHRINK
SHOULD_STAY = Suggest.STAY


class Action(enum.Enum):
    """What a call asks the program to do next."""

    NONE = "none"
    """Go on."""
    RESTART = "restart"
    """Restarted after a resize: load what is saved outside dmr. (State declared with `Run` is loaded by itself.)"""
    RECONFIGURE = "reconfigure"
    """Call `reconfigure`."""
    REDIST_FINALIZE = "redist_finalize"
    """Saved; save what is kept outside dmr, then call `finalize`, which ends this process."""


_current: Run | None = None
_leaving = False


def init(
    comm: Any = None,
    *,
    checkpoint_every: str | float | None = None,
    keep: int | Retention | None = None,
    driver: str | None = None,
    background: bool = False,
    fast_dir: str | os.PathLike[str] | None = None,
    compress: str | None = None,
) -> Action:
    """Begin. Collective; once in a program. The arguments are those of `dmr.malleable`.

    Returns
    -------
    Action
        ``NONE`` at a fresh start, ``RESTART`` when this is a later generation with a checkpoint to go on from.

    Raises
    ------
    Error
        When it was called already.
    """
    global _current
    if _current is not None:
        raise Error("dmr.init: called already; once in a program is enough")
    _end_all_on_failure()
    _current = begin(comm, checkpoint_every, keep, driver, background, fast_dir, compress)
    return Action.NONE if _current.fresh else Action.RESTART


def current() -> Run:
    """Return the run that `init` began.

    Raises
    ------
    Error
        Before `init`, or after `finalize`.
    """
    if _current is None:
        raise Error("no run has begun: call dmr.init() first")
    return _current


def check(suggestion: Suggest = USE_POLICY) -> Action:
    """Safe point. Every rank has to call it equally often; the suggestions may differ.

    Returns
    -------
    Action
        ``NONE`` or ``RECONFIGURE``.
    """
    return Action.RECONFIGURE if current().check(Suggest(suggestion)) else Action.NONE


def reconfigure() -> Action:
    """Save the declared state, after `check` returned ``RECONFIGURE``. Collective.

    Returns
    -------
    Action
        ``REDIST_FINALIZE``: leave by `finalize`. ``NONE``: the save failed, nothing is lost; go on.
    """
    global _leaving
    _leaving = current().release()
    return Action.REDIST_FINALIZE if _leaving else Action.NONE


def finalize() -> Action:
    """End. Collective. After ``REDIST_FINALIZE`` it ends the process with status 0; else it returns ``NONE``."""
    global _current, _leaving
    run, _current = current(), None
    if _leaving:
        _leaving = False
        run.leave()
        sys.stdout.flush()
        raise SystemExit(0)
    run.finish()
    return Action.NONE


def auto(
    action: Action,
    redist: Callable[[], object] | None = None,
    restart: Callable[[], object] | None = None,
    finalize: Callable[[], object] | None = None,
) -> None:
    """Do what an action asks for, as DMR's macro ``DMR_AUTO``: ``dmr.auto(dmr.check(), save, None, free)``.

    Parameters
    ----------
    action
        What `init` or `check` returned.
    redist
        Saves what is kept outside dmr, before the process ends.
    restart
        Loads it after a restart.
    finalize
        Cleans up before the process ends.
    """
    if action is Action.RESTART and restart:
        restart()
    if action is Action.RECONFIGURE and reconfigure() is Action.REDIST_FINALIZE:
        for call in (redist, finalize):
            if call:
                call()
        _finalize()


_finalize = finalize


def set_nodes_next_expand(nodes: int) -> None:
    """Set by how many nodes the next suggested expansion goes (0: to the next allowed size). Any rank."""
    current().next_expand(nodes)


def set_nodes_next_shrink(nodes: int) -> None:
    """Set by how many nodes the next suggested shrink goes (0: to the next allowed size). Any rank."""
    current().next_shrink(nodes)


def get_nodes_next_expand() -> int:
    """Return what this rank has set by `set_nodes_next_expand`."""
    return current().next_sizes[0]


def get_nodes_next_shrink() -> int:
    """Return what this rank has set by `set_nodes_next_shrink`."""
    return current().next_sizes[1]


def set_reconf_step_inhibitor(steps: int) -> None:
    """Ask for no change of size during the next ``steps`` checks, counted from now; 0 takes it back."""
    current().inhibit(steps=steps)


def cancel_expansion() -> None:
    """Give up an expansion that waits in the queue. Any rank."""
    current().cancel_expand()


def get_current_node_count() -> int:
    """Return the nodes of this generation."""
    return current().nodes


def get_reconfig_count() -> int:
    """Return how often the size changed so far. The same on every rank."""
    return current().resizes


def get_active_expansions() -> int:
    """Return 1 while an expansion waits in the queue, else 0. As of the last agreement, the same on every rank."""
    return int(pending_expansion())


def pending_expansion() -> bool:
    """Return whether an expansion waits in the queue. As of the last agreement, the same on every rank."""
    return current().pending_expand is not None


def _end_all_on_failure() -> None:
    """Let an exception that nobody catches end all ranks, as `dmr.malleable` does."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if isinstance(error, Exception):
            fail(error)
        before(kind, error, trace)

    sys.excepthook = hook
