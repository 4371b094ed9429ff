"""``--app`` on the command line: its description, and what of the other options goes with it."""

from __future__ import annotations

from dataclasses import replace

from ..run.options import RunOptions
from .description import Foreign
from .errors import ForeignError
from .load import described, read
from .start import LEAST_KEPT


def choose(options: RunOptions, choice: str, *, grace_given: bool) -> RunOptions:
    """Return the options of a run of the program that ``--app`` names.

    Raises
    ------
    ForeignError
        When the description is wrong, or an option would do nothing.
    """
    found = read(choice)
    app = described(found)
    if options.driver is not None:
        raise ForeignError(f"--driver does nothing with --app: {app.name} writes its own files")
    if options.background:
        raise ForeignError(f"--background does nothing with --app: {app.name} writes its own files")
    if options.fast_dir is not None:
        raise ForeignError(f"--fast-dir does nothing with --app: {app.name} writes its own files")
    if options.compress is not None:
        raise ForeignError(f"--compress does nothing with --app: {app.name} writes its own files")
    if (options.checkpoint_every or "").startswith("auto"):
        raise ForeignError("--checkpoint-every auto does nothing with --app: give a time or a number of steps")
    _check_keep(options, app)
    if options.checkpoint_every is not None and (app.request.exits or app.request.kind == "interval"):
        why = "ends when it writes a checkpoint" if app.request.exits else "writes at its own interval"
        raise ForeignError(f"--checkpoint-every does nothing here: {app.name} {why} ({app.source})")
    grace = options.grace if grace_given or app.files.patience is None else app.files.patience
    return replace(options, app=found, grace=grace)


def _check_keep(options: RunOptions, app: Foreign) -> None:
    if options.keep is None:
        return
    if not (app.files.copy or app.files.delete):
        raise ForeignError(
            f"--keep does nothing here: all files that {app.name} writes are left where they are; "
            f"set checkpoint.delete = true in {app.source} to have old ones deleted"
        )
    if options.keep < LEAST_KEPT:
        raise ForeignError(f"--keep {options.keep}: of a program's own checkpoints {LEAST_KEPT} are kept at least")
