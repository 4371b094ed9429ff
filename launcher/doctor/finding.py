"""One line of the doctor's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "note", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """What was looked at, what was found, and what to do about it.

    ``note``: not there, and not needed. ``warn``: works, but not well. ``fail``: something that dmr is for won't work.
    """

    area: str
    what: str
    verdict: Verdict
    found: str
    advice: str = ""
