"""A table of a TOML file, read key by key; every complaint names the file, the key and what is to be written."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from .errors import ForeignError


class Table:
    """One table of a description.

    Parameters
    ----------
    source
        The file, for messages.
    name
        The table's name in it, "" for the top.
    content
        What TOML gave; anything but a table is refused.

    Raises
    ------
    ForeignError
        From every method, for a value that is not as it has to be.
    """

    def __init__(self, source: str, name: str, content: Any) -> None:
        self.source, self.name = source, name
        if not isinstance(content, Mapping):
            raise ForeignError(f"{source}: {name} has to be a table: write [{name}] and its keys below it")
        self._content = content

    def __contains__(self, key: str) -> bool:
        return key in self._content

    def refuse(self, key: str, what: str) -> NoReturn:
        """Complain of one key."""
        raise ForeignError(f"{self.source}: {f'{self.name}.' if self.name else ''}{key} {what}")

    def only(self, *known: str) -> Table:
        """Complain of a key that is none of these, before one that is missing for it is complained of."""
        for key in self._content:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"; did you mean {near[0]}?" if near else f"; known here: {', '.join(sorted(known))}"
                self.refuse(key, f"is not known{hint}")
        return self

    def _get(self, key: str) -> Any:
        return self._content.get(key)

    def table(self, key: str) -> Table:
        """Return a table within this one, empty where there is none."""
        found = self._get(key)
        return Table(self.source, key, {} if found is None else found)

    def text(self, key: str) -> str | None:
        found = self._get(key)
        if found is not None and (not isinstance(found, str) or not found):
            self.refuse(key, f"is {found!r}, and has to be a text: {key} = \"…\"")
        return found

    def choice(self, key: str, allowed: tuple[str, ...]) -> str:
        found = self._get(key)
        if found not in allowed:
            said = "is missing" if found is None else f"is {found!r}"
            self.refuse(key, f"{said}: write one of {', '.join(map(repr, allowed))}")
        return str(found)

    def flag(self, key: str, default: bool) -> bool:
        found = self._get(key)
        if found is None:
            return default
        if not isinstance(found, bool):
            self.refuse(key, f"is {found!r}, and has to be true or false")
        return found

    def number(self, key: str, *, least: float = 0.0) -> float | None:
        found = self._get(key)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, (int, float)) or not found >= least:
            self.refuse(key, f"is {found!r}, and has to be a number from {least:g} up")
        return float(found)

    def words(self, key: str) -> tuple[str, ...] | None:
        """Return a list of words, as of a command line; no shell ever reads them."""
        found = self._get(key)
        if found is None:
            return None
        if not isinstance(found, list) or not found or not all(isinstance(each, str) and each for each in found):
            self.refuse(key, f"is {found!r}, and has to be a list of words: {key} = [\"…\", \"…\"]")
        return tuple(found)

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        found = self._get(key)
        if found is None:
            return ()
        if not isinstance(found, Mapping) or not all(isinstance(each, str) for each in found.values()):
            self.refuse(key, f"is {found!r}, and has to name texts: {key} = {{ \"…\" = \"…\" }}")
        return tuple((str(name), value) for name, value in found.items())

    def regex(self, key: str, *, group: str | None = None) -> re.Pattern[str] | None:
        """Return a regular expression; one with a ``group`` has a group of that name, or else one group at least."""
        text = self.text(key)
        if text is None:
            return None
        try:
            found = re.compile(text)
        except re.error as error:
            self.refuse(key, f"is no regular expression: {error}; in TOML write it between single quotes")
        if group is not None and group not in found.groupindex and found.groups != 1:
            self.refuse(key, f"needs one group around the number, as in '^Step (\\d+)', or one named (?P<{group}>…)")
        return found
