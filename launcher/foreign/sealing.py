"""Checkpoints that seem complete are read, copied and recorded by a thread, so that the launcher goes on meanwhile."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from .catalogue import Catalogue, Changed, Part, Record
from .description import Files
from .scan import Complete


@dataclass(frozen=True)
class Sealed:
    """What came of one: its record, or why there is none; ``changed`` when it was not complete after all."""

    complete: Complete
    record: Record | None = None
    changed: bool = False
    error: str | None = None


class Sealer:
    """Seals one checkpoint at a time.

    Parameters
    ----------
    generation, ranks
        Who wrote them.
    """

    def __init__(self, catalogue: Catalogue, files: Files, generation: int, ranks: int) -> None:
        self._catalogue, self._files = catalogue, files
        self._generation, self._ranks = generation, ranks
        self._thread: threading.Thread | None = None
        self._sealed: Sealed | None = None

    @property
    def busy(self) -> bool:
        return self._thread is not None

    def begin(self, complete: Complete, step: int, seconds: float) -> None:
        """Begin with a checkpoint that took so many seconds until now."""
        self._sealed = None
        self._thread = threading.Thread(
            target=self._seal, args=(complete, step, seconds), name="dmr-seal", daemon=True
        )
        self._thread.start()

    def done(self) -> Sealed | None:
        """Return the result once, None while there is none."""
        if self._thread is None or self._thread.is_alive():
            return None
        self._thread = None
        return self._sealed

    def _seal(self, complete: Complete, step: int, seconds: float) -> None:
        began = time.monotonic()
        try:
            name = self._catalogue.free_name(step, self._generation)
            parts: tuple[Part, ...] = self._catalogue.seal(
                complete.found, name, digest=self._files.digest, copy=self._files.copy
            )
        except Changed:
            self._sealed = Sealed(complete, changed=True)
        except OSError as error:
            self._sealed = Sealed(complete, error=f"{error.filename or complete.found.roots[0]}: {error.strerror}")
        else:
            record = Record(
                name, step, complete.found.bytes, seconds + time.monotonic() - began, time.time(), self._generation,
                self._ranks, complete.found.roots, parts,
            )  # fmt: skip
            self._sealed = Sealed(complete, record)
