"""Words with variables in braces, and patterns of file names. Nothing here is ever read by a shell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

VARIABLES = ("ranks", "nodes", "generation", "run_dir", "folder")
"""What every word may hold."""
OF_CHECKPOINT = ("checkpoint", "step")
"""What the words of a restart may hold beside these."""

_BRACES = re.compile(r"\{\{|\}\}|\{([a-z_]*)\}|[{}]")


def unknown(word: str, allowed: Iterable[str]) -> str | None:
    """Return what is wrong with the braces of a word, None when nothing is."""
    names = list(allowed)
    for match in _BRACES.finditer(word):
        if match[0] not in ("{{", "}}") and match[1] not in names:
            known = ", ".join(f"{{{name}}}" for name in names)
            return f"has {match[0]!r} in {word!r}; known here: {known}; a brace itself is written twice"
    return None


def fill(word: str, values: Mapping[str, str]) -> str:
    """Put values into the braces of a word that was found good by `unknown`."""
    return _BRACES.sub(lambda match: match[0][0] if match[0] in ("{{", "}}") else values[match[1]], word)


def pattern_problem(text: str) -> str | None:
    """Return what is wrong with a pattern of file names, None when nothing is."""
    if "**" in text or "[" in text:
        return f"is {text!r}: only *, ? and {{step}} stand for something else in it"
    return unknown(text, ("step",))


def to_glob(text: str) -> str:
    """Return the pattern for `glob`."""
    return text.replace("{step}", "*")


def to_regex(text: str, number: str) -> re.Pattern[str]:
    """Return the pattern as a regular expression with a group ``step``, where it has one."""
    seen = False
    made = ""
    for piece in re.split(r"(\{step\}|\*|\?)", text):
        if piece == "{step}":
            made += "(?P=step)" if seen else f"(?P<step>{number})"
            seen = True
        else:
            made += {"*": "[^/]*", "?": "[^/]"}.get(piece) or re.escape(piece)
    return re.compile(made)
