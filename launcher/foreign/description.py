"""What a description of a program says: how it is asked, what it writes, how it goes on, what it tells, its sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...resize.sizes import SizesError, parse_sizes
from .errors import ForeignError
from .table import Table
from .words import OF_CHECKPOINT, VARIABLES, pattern_problem, unknown

RequestKind = Literal["signal", "file", "command", "interval"]
KINDS = ("signal", "file", "command", "interval")
SIGNALS = ("USR1", "USR2", "HUP", "INT", "TERM")
WHOLE = r"\d+"
DECIMAL = r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"


@dataclass(frozen=True)
class Request:
    """How the program is asked for a checkpoint: one of ``signal``, ``file``, ``command`` belongs to ``kind``.

    ``exits``: it ends by itself once it has written the checkpoint that it was asked for.
    """

    kind: RequestKind
    signal: str = ""
    file: str = ""
    text: str = ""
    command: tuple[str, ...] = ()
    exits: bool = False


@dataclass(frozen=True)
class Files:
    """What a checkpoint is, and how it is seen to be complete.

    Attributes
    ----------
    patterns
        Relative to the working directory; each has to match. Files or folders.
    settle
        Seconds without a change in size and time.
    marker
        A file that the program writes when a checkpoint is complete.
    log
        A line of the log that says so.
    copy
        Copies are kept in the run directory, since the program writes over its files.
    delete
        The program's own files are deleted once they are older than the checkpoints to keep.
    digest
        Files are read in full, and compared with their digest before they are used.
    patience
        Seconds that a checkpoint may take after it was asked for; None for the launcher's ``--grace``.
    """

    patterns: tuple[str, ...]
    settle: float = 2.0
    marker: str | None = None
    log: re.Pattern[str] | None = None
    copy: bool = False
    delete: bool = False
    digest: bool = True
    patience: float | None = None

    @property
    def numbered(self) -> bool:
        """Whether names carry the step."""
        return "{step}" in self.patterns[0]


@dataclass(frozen=True)
class Start:
    """How a command line becomes that of a start, or of a restart.

    ``command`` replaces it, else words are exchanged by ``replace``, and ``append`` follows in either case. ``prepare``
    is run once before, on the launcher's node. ``in_place`` puts the files back where the program wrote them.
    """

    command: tuple[str, ...] = ()
    replace: tuple[tuple[str, str], ...] = ()
    append: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    prepare: tuple[str, ...] = ()
    in_place: bool = False


@dataclass(frozen=True)
class ProgressLog:
    """How progress is told. ``log`` is a file, None for the program's output; a step is a number over ``unit``."""

    step: re.Pattern[str]
    log: str | None = None
    steps: re.Pattern[str] | None = None
    finished: re.Pattern[str] | None = None
    unit: float | None = None

    @property
    def number(self) -> str:
        """A regular expression for a step in a file's name."""
        return WHOLE if self.unit is None else DECIMAL

    def to_step(self, text: str) -> int:
        """Return the step that a text means.

        Raises
        ------
        ValueError
            When it is no number.
        """
        return int(text) if self.unit is None else round(float(text) / self.unit)


@dataclass(frozen=True)
class Processes:
    """Which numbers of processes the program takes (None: any), and whether it restarts at another one."""

    allowed: tuple[int, ...] | None = None
    text: str = "any"
    change: bool = True


OF_START = ("command", "replace", "append", "environment", "prepare")
"""Keys that say how a command line is made."""


@dataclass(frozen=True)
class Foreign:
    """A program that writes restart files of its own."""

    name: str
    source: str
    request: Request
    files: Files
    start: Start
    restart: Start
    progress: ProgressLog
    processes: Processes


def parse(content: Mapping[str, Any], source: str) -> Foreign:
    """Return the description that a TOML file holds.

    Raises
    ------
    ForeignError
        For the first thing that is wrong; names file and key.
    """
    top = Table(source, "", content).only("name", "description", "checkpoint", "progress", "start", "restart", "sizes")
    name = top.text("name") or "the program"
    checkpoint = top.table("checkpoint").only(
        "request", "signal", "file", "text", "exits", "command",
        "files", "marker", "log", "settle", "copy", "delete", "digest", "patience",
    )  # fmt: skip
    progress = top.table("progress").only("step", "unit", "log", "steps", "finished")
    start = top.table("start").only(*OF_START)
    restart = top.table("restart").only(*OF_START, "in_place")
    sizes = top.table("sizes").only("processes", "change")
    top.text("description")
    told = _progress(progress)
    request, files = _request(checkpoint), _files(checkpoint)
    if request.exits and told.finished is None:
        progress.refuse(
            "finished", "is missing: a program that ends when it was asked for a checkpoint needs a line of its log "
            "that tells that it is done"
        )  # fmt: skip
    again = _start(restart, (*VARIABLES, *OF_CHECKPOINT))
    if again == Start():
        restart.refuse(
            "command", "is missing: say how the program goes on, by command, replace, append, environment or in_place"
        )
    return Foreign(name, source, request, files, _start(start, VARIABLES), again, told, _processes(sizes))


def _request(table: Table) -> Request:
    kind = table.choice("request", KINDS)
    for other in KINDS[:3]:
        if other in table and other != kind:
            table.refuse(other, f"belongs to request = {other!r}, but request is {kind!r}: leave out one of the two")
    for key, wanted in (("text", "file"), ("exits", "")):
        if key in table and (kind == "interval" or (wanted and kind != wanted)):
            table.refuse(key, f"means nothing with request = {kind!r}: leave it out")
    exits = table.flag("exits", False)
    if kind == "signal":
        return Request("signal", signal=table.choice("signal", SIGNALS), exits=exits)
    if kind == "file":
        file = table.text("file")
        if file is None:
            table.refuse("file", "is missing: name the file that asks for a checkpoint when it is there")
        _check(table, "file", (file,), VARIABLES)
        return Request("file", file=file, text=table.text("text") or "", exits=exits)
    if kind == "command":
        command = table.words("command")
        if command is None:
            table.refuse("command", "is missing: write the command that asks, as a list of words")
        _check(table, "command", command, (*VARIABLES, "step"))
        return Request("command", command=command, exits=exits)
    return Request("interval")


def _files(table: Table) -> Files:
    patterns, marker, log = table.words("files"), table.text("marker"), table.regex("log")
    if patterns is None:
        table.refuse("files", "is missing: name the program's restart files, as in files = [\"restart.{step}\"]")
    if len({"{step}" in each for each in patterns}) > 1:
        table.refuse("files", "has {step} in one name and not in another: write it in all of them or in none")
    numbered = "{step}" in patterns[0]
    for key, each in [*(("files", each) for each in patterns), *([("marker", marker)] if marker else [])]:
        if problem := pattern_problem(each):
            table.refuse(key, problem)
        if ("{step}" in each) != numbered:
            table.refuse(key, "has to hold {step} if files does, and only then")
    if log is not None and numbered and "step" not in log.groupindex:
        table.refuse("log", "needs a group (?P<step>…) that tells which of the files is meant")
    settle = table.number("settle")
    copy, delete = table.flag("copy", not numbered), table.flag("delete", False)
    outside = next((each for each in patterns if each.startswith("/") or ".." in each.split("/")), None)
    if copy and outside is not None:
        table.refuse("files", f"names {outside!r} outside of the working directory: set copy = false")
    if delete and not numbered:
        table.refuse("delete", "means nothing for files without {step}: the program writes over them")
    return Files(
        patterns, 2.0 if settle is None else settle, marker, log, copy, delete, table.flag("digest", True),
        table.number("patience", least=1.0),
    )  # fmt: skip


def _start(table: Table, variables: tuple[str, ...]) -> Start:
    made = Start(
        table.words("command") or (), table.pairs("replace"), table.words("append") or (), table.pairs("environment"),
        table.words("prepare") or (), "checkpoint" in variables and table.flag("in_place", False),
    )  # fmt: skip
    if made.command and made.replace:
        table.refuse("replace", "means nothing beside command, which replaces all words")
    for key in ("command", "append", "prepare"):
        _check(table, key, getattr(made, key), variables)
    for key in ("replace", "environment"):
        _check(table, key, [value for _, value in getattr(made, key)], variables)
    return made


def _progress(table: Table) -> ProgressLog:
    step = table.regex("step", group="step")
    if step is None:
        table.refuse("step", "is missing: a regular expression with a group, as in '^Step (\\d+)'")
    unit = table.number("unit")
    if unit == 0.0:
        table.refuse("unit", "is 0: write what one step counts for")
    made = ProgressLog(
        step, table.text("log"), table.regex("steps", group="steps"), table.regex("finished"), unit
    )
    return made


def _processes(table: Table) -> Processes:
    text, change = table.text("processes"), table.flag("change", True)
    if text is None:
        return Processes(change=change)
    try:
        return Processes(parse_sizes(text), text, change)
    except SizesError as error:
        raise ForeignError(f"{table.source}: sizes.processes: {error}") from None


def _check(table: Table, key: str, words: tuple[str, ...] | list[str], variables: tuple[str, ...]) -> None:
    for word in words:
        if problem := unknown(word, variables):
            table.refuse(key, problem)
