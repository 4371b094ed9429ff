"""Malleable MPI jobs by checkpoint and restart, on an unmodified Slurm with an unmodified MPI.

A program is made malleable by decorating its main function and looping over `Run.steps`::

    import dmr

    @dmr.malleable
    def main(run):
        u = run.array("u", shape=(ny, nx), dtype="f8", layout=dmr.Block(axis=0))
        if run.fresh:
            u.local[:] = initial(u.box)
        for step in run.steps(10_000):
            relax(u.local, run.comm)

    main()

Names are loaded when first used, so that ``import dmr`` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "malleable": "entry",
    "Run": "run",
    "Array": "arrays",
    "Value": "values",
    "Error": "errors",
    "Action": "calls",
    "USE_POLICY": "calls",
    "SHOULD_EXPAND": "calls",
    "SHOULD_SHRINK": "calls",
    "SHOULD_STAY": "calls",
    "init": "calls",
    "check": "calls",
    "reconfigure": "calls",
    "finalize": "calls",
    "auto": "calls",
    "current": "calls",
    "set_nodes_next_expand": "calls",
    "set_nodes_next_shrink": "calls",
    "set_reconf_step_inhibitor": "calls",
    "cancel_expansion": "calls",
    "get_nodes_next_expand": "calls",
    "get_nodes_next_shrink": "calls",
    "get_current_node_count": "calls",
    "get_reconfig_count": "calls",
    "get_active_expansions": "calls",
    "pending_expansion": "calls",
}

_LAYOUTS = ("Block", "Replicated", "Box")

__all__ = ["__version__", *_HOME, *_LAYOUTS]

if TYPE_CHECKING:
    from .arrays import Array
    from .calls import (
        SHOULD_EXPAND,
        SHOULD_SHRINK,
        SHOULD_STAY,
        USE_POLICY,
        Action,
        auto,
        cancel_expansion,
        check,
        current,
        finalize,
        get_active_expansions,
        get_current_node_count,
        get_nodes_next_expand,
        get_nodes_next_shrink,
        get_reconfig_count,
        init,
        pending_expansion,
        reconfigure,
        set_nodes_next_expand,
        set_nodes_next_shrink,
        set_reconf_step_inhibitor,
    )
    from .ckpt import Block, Box, Replicated
    from .entry import malleable
    from .errors import Error
    from .run import Run
    from .values import Value


def __getattr__(name: str) -> Any:
    if name in _HOME:
        found = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    elif name in _LAYOUTS:
        found = getattr(importlib.import_module(".ckpt", __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
