"""Numbers as words, the same in the page, the text and the advice."""

from __future__ import annotations

import math

from ...resize.words import count as count
from ...resize.words import nodes as nodes
from ..cli import format_size, format_time


def hours(value: float | None) -> str:
    """Return node-hours with three figures."""
    return "-" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def share(value: float | None) -> str:
    """Return a share as per cent."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.0%}"


def seconds(value: float | None, *, sign: bool = False) -> str:
    """Return a duration as users write it, with a sign where that matters."""
    if value is None or not math.isfinite(value):
        return "-"
    text = format_time(abs(value))
    signed = f"{'−' if value < 0 else '+'}{text}" if sign and text != "0.0" else text
    return signed if ":" in text else f"{signed} s"


def size(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else format_size(value)


def number(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:.3g}"


def list_of(words: list[str]) -> str:
    """Return ``a``, ``a and b``, ``a, b and c``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
