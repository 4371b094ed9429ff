"""Where what is known of programs is kept: a file a run in the user's data folder.

Each run has a file of its own, so that runs which end at the same time never write to the same one, and no lock is
needed. A model that was imported is taken apart into its runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...resize.phases.knowledge import MOST_RUNS, Book, Entry, Key, KnowledgeError, RunRecord

ENV_FOLDER = "DMR_MODEL_DIR"


class ModelError(Exception):
    """The models can't be read or written; the text says which file, why, and what to do."""


def default_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder: ``$DMR_MODEL_DIR``, else ``dmr/model`` in the user's data folder."""
    if environ.get(ENV_FOLDER):
        return Path(environ[ENV_FOLDER])
    data = environ.get("XDG_DATA_HOME", "")
    base = Path(data) if os.path.isabs(data) else Path(os.path.expanduser("~")) / ".local" / "share"
    return base / "dmr" / "model"


@dataclass(frozen=True)
class ModelStore:
    """The models in a folder. ``damaged`` of `read` are the files that were passed over."""

    folder: Path

    @classmethod
    def default(cls) -> ModelStore:
        return cls(default_folder())

    def read(self, program: str | None = None) -> tuple[Book, tuple[str, ...]]:
        """Return what is known, of one program or of all, and what was passed over because it could not be read."""
        book, damaged = Book(), []
        for path in self._files(program):
            try:
                book = book.merged(read_file(path))
            except ModelError as error:
                damaged.append(str(error))
        return book, tuple(damaged)

    def add(self, key: Key, record: RunRecord) -> None:
        """Keep what a run taught; what was known of that run before is replaced.

        Raises
        ------
        ModelError
        """
        path = self._path(key, record.run)
        book = Book().with_run(key, record)
        with contextlib.suppress(ModelError):
            book = read_file(path).merged(book)
        _write(path, book)
        self._prune(key)

    def merge(self, book: Book) -> int:
        """Keep all runs of a book beside those that there are; returns their number."""
        count = 0
        for key, entry in book.entries.items():
            for record in entry.runs:
                self.add(key, record)
                count += 1
        return count

    def forget(self, keys: Iterable[Key]) -> int:
        """Forget all runs of some entries; returns their number."""
        gone = set(keys)
        count = 0
        for path in self._files():
            with contextlib.suppress(ModelError):
                if set(read_file(path).entries) <= gone:
                    path.unlink(missing_ok=True)
                    count += 1
        return count

    def _files(self, program: str | None = None) -> list[Path]:
        return sorted(self.folder.glob("*.json" if program is None else f"{_digest(program, 8)}-*.json"))

    def _path(self, key: Key, run: str) -> Path:
        rest = "\0".join((key.input, key.machine, run))
        return self.folder / f"{_digest(key.program, 8)}-{_digest(rest, 24)}.json"

    def _prune(self, key: Key) -> None:
        """Let the oldest runs of an entry go where there are too many."""
        if len(self._files(key.program)) <= MOST_RUNS:
            return
        entry = self.read(key.program)[0].entries.get(key, Entry(key))
        for record in entry.runs[:-MOST_RUNS]:
            self._path(key, record.run).unlink(missing_ok=True)


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def read_file(path: Path) -> Book:
    """Read a model from one file.

    Raises
    ------
    ModelError
    """
    try:
        return Book.from_json(json.loads(path.read_text()))
    except OSError as error:
        raise ModelError(f"can't read {path}: {error.strerror}") from None
    except (ValueError, KnowledgeError) as error:
        raise ModelError(f"{path}: {error}") from None


def _write(path: Path, book: Book) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as stream:
            json.dump(book.to_json(), stream)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise ModelError(
            f"can't keep the model in {path.parent}: {error.strerror}; name another folder with {ENV_FOLDER}"
        ) from None
