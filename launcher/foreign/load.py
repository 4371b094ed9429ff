"""Descriptions as files: a TOML file of the user's, or a profile that comes with this package."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .description import Foreign, parse
from .errors import ForeignError

ASKING = ("request", "signal", "file", "text", "command", "exits")
"""Keys that say how the program is asked."""

PROFILES = Path(__file__).parent / "profiles"


def profiles() -> tuple[str, ...]:
    """Return the names of the profiles that come along."""
    return tuple(sorted(path.stem for path in PROFILES.glob("*.toml")))


def read(choice: str) -> dict[str, Any]:
    """Return the description that ``--app`` means, as data for ``run.json``.

    Parameters
    ----------
    choice
        A file's path, or a profile's name. A file with ``profile = "NAME"`` begins as that profile, and
        its own keys replace the profile's one by one.

    Raises
    ------
    ForeignError
        When it can't be read, or is not right.
    """
    path = Path(choice)
    if choice in profiles() and not path.is_file():
        path = PROFILES / f"{choice}.toml"
    elif not path.is_file() and path.suffix != ".toml":
        raise ForeignError(f"--app {choice}: no such file, and no profile of that name: {', '.join(profiles())}")
    content = _toml(path)
    base = content.pop("profile", None)
    if base is not None:
        if base not in profiles():
            raise ForeignError(f"{path}: profile is {base!r}: write one of {', '.join(profiles())}")
        content = _over(_toml(PROFILES / f"{base}.toml"), content)
    found = {"source": str(path), "description": content}
    described(found)
    return found


def described(found: Mapping[str, Any]) -> Foreign:
    """Return the description kept in ``run.json``.

    Raises
    ------
    ForeignError
        When it is not right.
    """
    return parse(found["description"], str(found["source"]))


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ForeignError(f"--app {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ForeignError(f"--app {path}: this is no text file; a description is TOML") from None
    except tomllib.TOMLDecodeError as error:
        raise ForeignError(f"{path} is no TOML: {error}") from None


def _table(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = content.get(key)
    return found if isinstance(found, Mapping) else {}


def _over(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    if "request" in _table(own, "checkpoint"):  # another way to ask, which the keys of the profile's don't belong to
        merged["checkpoint"] = {key: value for key, value in _table(base, "checkpoint").items() if key not in ASKING}
    for key, value in own.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = {**merged[key], **value} if both else value
    return merged
