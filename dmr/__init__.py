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

Names are loaded when first used, so that ``import dmr`` costs next to nothing. Under a launcher it also tells that the
program has come so far (see `dmr.launcher.run.sign`): import it before mpi4py.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "malleable": "entry",
    "Run": "run",
    "Array": "arrays",
    "Value": "values",
    "Error": "errors",
    "Ragged": "holders",
    "Particles": "holders",
    "PerRank": "holders",
    "Block": "ckpt",
    "BlockCyclic": "ckpt",
    "Box": "ckpt",
    "Boxes": "ckpt",
    "Counts": "ckpt",
    "Indices": "ckpt",
    "Replicated": "ckpt",
}
"""Module of each name; all others are in ``calls``."""

__all__ = [
    "SHOULD_EXPAND",
    "SHOULD_SHRINK",
    "SHOULD_STAY",
    "USE_POLICY",
    "Action",
    "Array",
    "Block",
    "BlockCyclic",
    "Box",
    "Boxes",
    "Counts",
    "Error",
    "Indices",
    "Particles",
    "PerRank",
    "Ragged",
    "Replicated",
    "Run",
    "Value",
    "__version__",
    "auto",
    "cancel_expansion",
    "check",
    "current",
    "finalize",
    "get_active_expansions",
    "get_current_node_count",
    "get_nodes_next_expand",
    "get_nodes_next_shrink",
    "get_reconfig_count",
    "init",
    "malleable",
    "pending_expansion",
    "reconfigure",
    "set_nodes_next_expand",
    "set_nodes_next_shrink",
    "set_reconf_step_inhibitor",
]

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
    from .ckpt import Block, BlockCyclic, Box, Boxes, Counts, Indices, Replicated
    from .entry import malleable
    from .errors import Error
    from .holders import Particles, PerRank, Ragged
    from .run import Run
    from .values import Value


if "DMR_NODES" in os.environ:
    # Now, since an `import mpi4py.MPI` that follows initialises MPI, and may not come back.
    from .launcher.run.sign import give

    give()


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f".{_HOME.get(name, 'calls')}", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
