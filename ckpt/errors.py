"""What can go wrong with a checkpoint, as one family of exceptions."""

from __future__ import annotations


class CheckpointError(Exception):
    """A checkpoint can't be saved or loaded; the text says what, where and what to do.

    Raised with the same type and text on every rank of a collective call; ``rank`` is the one on which
    the trouble arose, None where it concerns all.
    """

    rank: int | None = None


class Mismatch(CheckpointError):
    """What is asked for is not what was saved, or ranks disagree on what is to be saved."""


class Damaged(CheckpointError):
    """A file is cut short, altered, or no checkpoint at all."""


class UnknownVersion(CheckpointError):
    """The file is of a newer format than this version reads."""


class Fenced(CheckpointError):
    """A later generation has taken over: this one may not commit any more."""


class Unsupported(CheckpointError):
    """A kind of data, driver or layout that can't be used here; the text names what to use instead."""


class StorageError(CheckpointError):
    """The file system refused: disk full, quota, permission, a folder that vanished."""


class NotDrained(StorageError):
    """A checkpoint is whole, but on this node alone: it could not be copied to the shared folder."""


KINDS: dict[str, type[CheckpointError]] = {
    kind.__name__: kind
    for kind in (CheckpointError, Mismatch, Damaged, UnknownVersion, Fenced, Unsupported, StorageError, NotDrained)
}
