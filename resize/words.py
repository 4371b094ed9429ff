"""Words that many sentences of the project have in common."""

from __future__ import annotations


def count(number: int, word: str, plural: str = "") -> str:
    """Return ``1 node``, ``2 nodes``, ``1 query``, ``2 queries``.

    Parameters
    ----------
    plural
        Where it is not ``word`` with an s, or ``ies`` for a ``y`` behind a consonant.
    """
    if number == 1:
        return f"1 {word}"
    if not plural:
        plural = f"{word[:-1]}ies" if word.endswith("y") and word[-2:-1] not in "aeiou" else f"{word}s"
    return f"{number} {plural}"


def nodes(number: int) -> str:
    """Return ``1 node``, ``2 nodes``."""
    return count(number, "node")


def span(least: int, most: int) -> str:
    """Return ``2 nodes``, ``2 to 8 nodes``."""
    return nodes(most) if least == most else f"{least} to {nodes(most)}"


def how_to_install(extra: str) -> str:
    """Return the command that brings an extra of this project, which is on no package index yet."""
    return f"pip install '.[{extra}]' in the checkout of dmr"
