"""What can be wrong with a description, or with the program that it describes."""

from __future__ import annotations

from ..engines.engine import EngineError


class ForeignError(EngineError):
    """The program can't be run as its description says; the text names the file and the key, and what to do."""
