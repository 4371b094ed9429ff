"""What a malleable program raises."""

from __future__ import annotations


class Error(Exception):
    """A mistake in how the program uses dmr, or a state that it can't go on from.

    The text says what was wrong, where, and what to do; it is shown without a traceback.
    """


class Released(BaseException):
    """Unwinds a program that leaves at a safe point, its state saved, so that another size can follow.

    A `BaseException`, so that ``except Exception`` in the program doesn't stop it; ``finally`` and
    context managers run as usual. `dmr.malleable` turns it into exit status 0.
    """
