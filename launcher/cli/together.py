"""A command that ranks run together, under mpirun or srun: rank 0 speaks, and no rank is left waiting."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from . import UserError, fail

_FIRST_WORD = 1.0
"""Seconds that ranks leave rank 0 to tell what all of them have found."""


@contextmanager
def together() -> Iterator[Any]:
    """Yield the `Group` of the ranks that run this command; collective. Only rank 0 prints.

    An error that they have agreed upon is told by rank 0, and all end with it. Any other, which the others may not know
    of and wait for this rank meanwhile, ends all ranks at once.
    """
    from ...ckpt import CheckpointError
    from ...ckpt.comm.ranks import group_of_all

    try:
        group = group_of_all()
    except CheckpointError as error:
        fail(str(error))
    if group.size == 1:
        yield group
        return
    with contextlib.ExitStack() as stack:
        if group.rank:
            stack.enter_context(contextlib.redirect_stdout(stack.enter_context(open(os.devnull, "w"))))
        try:
            yield group
        except CheckpointError as error:
            if error.rank is None:
                _abort(group, error)
            if group.rank:
                sys.exit(1)
            fail(str(error))
        except SystemExit:
            # What all have found together, as that a checkpoint is bad.
            raise
        except BaseException as error:
            _abort(group, error)
    group.free()


def _abort(group: Any, error: BaseException) -> None:
    if group.rank:
        time.sleep(_FIRST_WORD)
    if isinstance(error, UserError):
        error.show()
    elif isinstance(error, click.ClickException):
        click.echo(f"dmr: {error.format_message()}", err=True)
    elif isinstance(error, OSError) or str(error) and type(error).__module__.startswith("dmr."):
        click.echo(f"dmr: rank {group.rank}: {error}", err=True)
    else:
        traceback.print_exception(error)
    sys.stderr.flush()
    group.comm.Abort(1)
