"""What all commands share: errors in one line, times and sizes as users write them, ``--json``.

A user's mistake ends in one line on standard error and an exit status that is not 0, never in a
traceback. Nothing here imports numpy, HDF5 or MPI.
"""

from __future__ import annotations

import dataclasses
import errno
import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import click

EXIT_FAILED = 1
EXIT_USAGE = 2

_WORLD = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOENT)
"""Errors of files and disks that a user has to deal with; any other is ours."""

_UNITS = {"": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}
_SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class UserError(click.ClickException):
    """A mistake of the user's, or a state of the world that a user has to deal with."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.status = exit_code

    def show(self, file: Any = None) -> None:
        click.echo(f"{_program()}: {self.message}", file=file or sys.stderr, err=True)


def fail(message: str, exit_code: int = EXIT_FAILED) -> NoReturn:
    """End the command with one line on standard error."""
    raise UserError(message, exit_code)


def run_command(command: click.Command, name: str) -> NoReturn:
    """Run a click command as a program: known errors become one line, a closed pipe is quiet."""
    from ..engines.engine import EngineError
    from ..run.rundir import RunDirError
    from ..supervise.console import discard

    if f"_{name}_COMPLETE".replace("-", "_").upper() in os.environ:
        importlib.import_module(".completing", __package__)  # its way of bash
    try:
        status = command.main(prog_name=name, standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except UserError as error:
        error.show()
        sys.exit(error.status)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # click 8.2 and later
            click.echo(error.format_message(), err=True)
            sys.exit(EXIT_USAGE)
        where = error.ctx.command_path if error.ctx else name
        click.echo(f"{where}: {error.format_message()}\nTry '{where} --help'.", err=True)
        sys.exit(EXIT_USAGE)
    except click.ClickException as error:
        click.echo(f"{name}: {error.format_message()}", err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo(f"{name}: interrupted", err=True)
        sys.exit(130)
    except (RunDirError, EngineError) as error:
        click.echo(f"{name}: {error}", err=True)
        sys.exit(EXIT_FAILED)
    except BrokenPipeError:
        discard(sys.stdout)
        sys.exit(141)
    except OSError as error:
        if error.errno not in _WORLD:
            raise
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"{name}: {where}{error.strerror}", err=True)
        sys.exit(EXIT_FAILED)


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, or asked for their help.

    Parameters
    ----------
    table
        Name of each command → (``package.module:attribute``, one line for the list of commands), so
        that ``--help`` of the group imports none of them.
    """

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = dict(table or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.table, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.table:
            return super().get_command(ctx, name)
        module, _, attribute = self.table[name][0].partition(":")
        command = getattr(importlib.import_module(module, "dmr.launcher.cli"), attribute)
        assert isinstance(command, click.Command), f"{module}:{attribute} is no click command"
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Complete the names of commands without importing them."""
        from click.shell_completion import CompletionItem

        rows = [(name, self.table[name][1]) for name in self.list_commands(ctx) if name in self.table]
        found = [CompletionItem(name, help=text) for name, text in rows if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, self.table[name][1]) for name in self.list_commands(ctx) if name in self.table]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], self.table, n=1)
            if near:
                raise click.UsageError(f"No such command '{args[0]}'. Did you mean '{near[0]}'?", ctx) from error
            raise


def parse_size(text: str) -> int:
    """Return bytes of ``512M``, ``1.5GiB``, ``4096``; binary multiples, as Slurm's.

    Raises
    ------
    ValueError
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGTP]?)(?:i?B)?\s*", text, re.IGNORECASE)
    if not found:
        raise ValueError(f"{text!r} is no size: write it as 512M or 2G")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def parse_time(text: str) -> float:
    """Return seconds of ``90``, ``90s``, ``5m``, ``1:30:00``, ``30:00`` and ``1-12:00:00`` (days first).

    A bare number is in seconds; ``30:00`` is minutes and seconds and ``1-12`` days and hours, as in Slurm.

    Raises
    ------
    ValueError
    """
    text = text.strip()
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d|)", text)
    if found:
        return float(found[1]) * _SECONDS[found[2]]
    found = re.fullmatch(r"(\d+)-(\d+)(?::(\d+))?(?::(\d+))?", text)
    if found:
        days, hours, minutes, seconds = (int(each or 0) for each in found.groups())
        return 86400.0 * days + 3600.0 * hours + 60.0 * minutes + seconds
    found = re.fullmatch(r"(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", text)
    if found:
        return 3600.0 * int(found[1] or 0) + 60.0 * int(found[2]) + float(found[3])
    raise ValueError(f"{text!r} is no time: write it as 90, 5m, 30:00 or 1:30:00")


def format_size(count: float) -> str:
    """Return bytes as ``512M``."""
    for unit in ("", "K", "M", "G", "T"):
        if abs(count) < 1024:
            return f"{count:.0f}{unit}" if count >= 10 or not unit else f"{count:.1f}{unit}"
        count /= 1024
    return f"{count:.0f}P"


def format_remaining(seconds: float | None, seen: int | None, *, short: bool = False) -> str:
    """Return the time that is left, and whether it is told from few steps yet: ``seen`` is how many."""
    from ...resize.words import count
    from ..run.status import FEW_STEPS

    text = format_time(seconds, unit="" if short else " s")
    if seconds is None or seen is None or seen >= FEW_STEPS:
        return text
    return f"{text}?" if short else f"{text} (from {count(seen, 'step')} yet)"


def format_time(seconds: float | None, unknown: str = "-", unit: str = "") -> str:
    """Return seconds as ``0.8``, ``42``, ``1:30`` or ``1:30:00``; ``unknown`` for None, ``unit`` after bare seconds."""
    if seconds is None:
        return unknown
    if seconds < 10:
        return f"{seconds:.1f}{unit}"
    if seconds < 60:
        return f"{seconds:.0f}{unit}"
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


class _Parsed(click.ParamType):
    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


SIZE = _Parsed("size", parse_size)
"""click type: bytes, written as ``512M``."""

TIME = _Parsed("time", parse_time)
"""click type: seconds, written as ``90``, ``5m`` or ``1:30:00``."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


def print_json(value: Any) -> None:
    """Print a value, dataclasses included, as JSON."""
    click.echo(json.dumps(value, indent=2, default=_plain))


def print_table(rows: Sequence[tuple[str, ...]], *, right: str = "") -> None:
    """Print rows of text in columns; ``right`` has an ``r`` at the place of each column that is aligned right."""
    if not rows:
        return
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.rjust(width) if right[column : column + 1] == "r" else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        click.echo("  ".join(cells).rstrip())


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)


def _program() -> str:
    context = click.get_current_context(silent=True)
    return context.command_path if context else sys.argv[0].rsplit("/", 1)[-1]
