"""Of which program, input and machine a run is: what a model of it is kept under."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...resize.phases.knowledge import Key

if TYPE_CHECKING:
    from ..timeline.sources import Sources

ENV_INPUT = "DMR_INPUT_CLASS"
_INTERPRETER = re.compile(r"(python|perl|ruby|julia|Rscript|bash|sh|env|node)[\d.]*$")
LONGEST = 80


def program_of(command: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the program's name and its arguments; the script's where an interpreter runs one."""
    words = list(command)
    name = os.path.basename(words.pop(0)) if words else ""
    if not _INTERPRETER.match(name):
        return name, tuple(words)
    while words:
        word = words.pop(0)
        if word in ("-m", "-c"):
            inner = words.pop(0) if words else ""
            if word == "-c":
                inner = f"{name} -c {hashlib.sha256(inner.encode()).hexdigest()[:8]}"
            return inner, tuple(words)
        if word in ("-W", "-X", "-r", "-e"):
            words[:1] = []
        elif not word.startswith("-") and "=" not in word.split("/")[0]:
            return os.path.basename(word), tuple(words)
    return name, ()


def input_of(arguments: Sequence[str]) -> str:
    """Return the class of an input that nobody named: the arguments as they are, a digest where they are long."""
    text = shlex.join(arguments)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 9]}…{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def key_for(
    command: Sequence[str], machine: str, events: Sequence[Mapping[str, Any]] = (), chosen: str | None = None
) -> Key:
    """Return the key of a run.

    Parameters
    ----------
    events
        Its ledger: the program may name the class of its input by ``run.note("input", name="…")``.
    chosen
        The class that the user named.
    """
    program, arguments = program_of(command)
    noted = [
        str(event["data"]["name"])
        for event in events
        if event.get("event") == "note" and event.get("note") == "input" and "name" in (event.get("data") or {})
    ]
    return Key(program, chosen or (noted[-1] if noted else input_of(arguments)), machine)


def key_of(sources: Sources, machine: str = "") -> Key:
    """Return the key of a run that was read."""
    command = sources.options.command if sources.options is not None else ()
    chosen = sources.options.input_class if sources.options is not None else None
    recorded = sources.options.machine if sources.options is not None else ""
    return key_for(command, recorded or machine, sources.events, chosen)
