"""Files in a checkpoint folder: names, staging, the rename that commits, what is kept and what is passed over."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .errors import Fenced, StorageError
from .retention import Retention
from .state.items import CheckpointInfo

NAME = re.compile(r"step-(\d{12,})-g(\d{4,})\.h5")
OWN_STAGING = re.compile(r"\.staging-own-(.+)-(\d+)-(\d+)-[0-9a-f]{8}")


@dataclass(frozen=True)
class Writer:
    """Which generation of which run writes, and how it is kept from committing when it is late.

    Parameters
    ----------
    run, generation, token
        Who writes; kept in the file.
    staging
        Folder in the same file system in which files are written before they get their name. A later
        generation renames it away, so that a late commit finds nothing to rename.
    check
        Called by rank 0 just before the rename; raises when a later generation has taken over.
    """

    run: str
    generation: int
    token: str
    staging: Path
    check: Callable[[], None] | None = None


def file_name(step: int, generation: int) -> str:
    """Return the name of a checkpoint file."""
    return f"step-{step:012d}-g{generation:04d}.h5"


def listing(folder: Path) -> list[CheckpointInfo]:
    """Return the committed checkpoints of a folder, newest (by generation, then step) first."""
    found = []
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    for entry in entries:
        if match := NAME.fullmatch(entry.name):
            with contextlib.suppress(FileNotFoundError):
                stat = entry.stat()
                path = Path(entry.path)
                found.append(
                    CheckpointInfo(
                        path, int(match[1]), int(match[2]), stat.st_size, stat.st_mtime, bad=read_bad(path, stat)
                    )
                )
    return sorted(found, key=lambda each: (each.generation, each.step), reverse=True)


def bad_path(path: Path) -> Path:
    return path.with_name(path.name + ".bad")


def read_bad(path: Path, stat: os.stat_result | None = None) -> str | None:
    """Return why a checkpoint was found bad, None when it was not, or when the file has changed since."""
    try:
        found = json.loads(bad_path(path).read_text())
        stat = stat or path.stat()
        if found["bytes"] == stat.st_size and found["mtime_ns"] == stat.st_mtime_ns:
            return str(found["reason"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def mark_bad(path: Path, reason: str) -> None:
    """Note beside a checkpoint why it is bad; quiet where that can't be written."""
    with contextlib.suppress(OSError):
        stat = path.stat()
        temporary = path.with_name(f".{path.name}.bad.{os.getpid()}")
        temporary.write_text(json.dumps({"reason": reason, "bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}))
        os.replace(temporary, bad_path(path))


def clear_bad(path: Path) -> None:
    """Take back what `mark_bad` noted; quiet where that can't be done."""
    with contextlib.suppress(OSError):
        bad_path(path).unlink(missing_ok=True)


def own_staging(folder: Path) -> Path:
    """Return a staging folder for a process without a `Writer`; the name tells whether the process is still there."""
    start = _start_time(os.getpid())
    return folder / f".staging-own-{socket.gethostname()}-{os.getpid()}-{start}-{secrets.token_hex(4)}"


class Staging:
    """Where one writer's files are before their commit. All but the path is for rank 0 alone."""

    def __init__(self, folder: Path, writer: Writer | None, path: Path) -> None:
        self.folder, self.writer, self.path = folder, writer, path
        self._made = False

    def prepare(self) -> None:
        """Make the folders.

        The check comes after the staging folder is there: a later generation takes its lease first and then renames
        the folder away, so that one of the two is always seen.

        Raises
        ------
        Fenced
            When a later generation has taken over.
        StorageError
            When the folder was there and is gone.
        """
        if not self._made:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._made = True
        elif not self.folder.is_dir():
            # Not made again: where a file system is gone, that would fill the disk below its mount point.
            raise StorageError(f"the checkpoint folder {self.folder} vanished")
        self.path.mkdir(mode=0o700, exist_ok=True)
        self._check()

    def _check(self) -> None:
        if self.writer is not None and self.writer.check is not None:
            try:
                self.writer.check()
            except Fenced:
                raise
            except Exception as error:
                raise Fenced(f"generation {self.writer.generation} may not commit any more: {error}") from error

    def commit(self, temporary: Path, final: Path) -> None:
        """Give a complete, durable file its name, durably.

        Raises
        ------
        Fenced
            When a later generation has taken over; the file is then not under its name.
        """
        sync_folder(self.path)
        self._check()
        try:
            os.rename(temporary, final)
        except FileNotFoundError as error:
            if self.writer is not None:
                raise self.fenced(error) from None
            raise StorageError(f"the staging folder {self.path} vanished during a save") from None
        sync_folder(final.parent)

    def fenced(self, error: Exception) -> Exception:
        """Return an error as what it is: a file that vanished under a fenced writer was taken away by a later one."""
        if self.writer is None or not isinstance(error, FileNotFoundError):
            return error
        return Fenced(
            f"generation {self.writer.generation} may not commit any more: a later one has taken its staging folder "
            f"{self.path} away"
        )

    @property
    def spare(self) -> Path:
        """A file that was a checkpoint; the next one is written over it, since blocks that are there are faster."""
        return self.path / "spare"

    def keep_spare(self, old: Path) -> bool:
        """Take a checkpoint out of the folder to write the next one over it; False when it is not to be touched.

        That is: when somebody reads it (who then has it locked, as HDF5 and `CheckpointFile` do), or has made a hard
        link to it.
        """
        if self.spare.exists():
            return False
        try:
            handle = os.open(old, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(handle).st_nlink != 1:
                return False
            os.rename(old, self.spare)
        except OSError:
            return False
        finally:
            os.close(handle)
        return True

    def discard(self, temporary: Path) -> None:
        """Remove what a failed save has left."""
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the staging folder if nothing but the spare file is in it."""
        with contextlib.suppress(OSError):
            self.spare.unlink(missing_ok=True)
            self.path.rmdir()

    def stale(self) -> list[Path]:
        """Return the staging folders that nobody can commit from any more.

        That is: of processes of this machine that are gone, and of generations that were fenced.
        """
        found = []
        with contextlib.suppress(OSError):
            for entry in list(os.scandir(self.folder)):
                match = OWN_STAGING.fullmatch(entry.name)
                gone = match is not None and match[1] == socket.gethostname() and _is_gone(int(match[2]), int(match[3]))
                if gone or entry.name.startswith(".fenced-"):
                    found.append(Path(entry.path))
        return found

    def reclaim(self) -> None:
        """Remove the staging folders that are `stale`."""
        for path in self.stale():
            shutil.rmtree(path, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    """Make the content of a file durable."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def publish(staging: Staging, temporary: Path, final: Path, keep: Retention, recycle: bool) -> None:
    """Commit a complete, durable file, and remove what is not kept any more.

    Raises
    ------
    Fenced
        When a later generation has taken over.
    """
    staging.commit(temporary, final)
    clear_bad(final)
    prune(staging.folder, keep, staging if recycle else None)
    staging.reclaim()


def prune(folder: Path, keep: Retention, staging: Staging | None = None) -> list[Path]:
    """Remove the good checkpoints that a rule does not keep; return what was removed. Bad ones stay for inspection.

    Parameters
    ----------
    keep
        The rule; the newest good one stays in any case.
    staging
        Where to keep one of the removed files to write the next checkpoint over it; None to keep none.
    """
    good = [each for each in listing(folder) if each.bad is None]
    stay = keep.chosen(good)
    removed = []
    for path in [each.path for each in good[1:] if each.path not in stay]:
        with contextlib.suppress(OSError):
            if staging is None or not staging.keep_spare(path):
                path.unlink()
            removed.append(path)
    return removed


def _start_time(pid: int) -> int:
    """Return when a process began, in clock ticks since boot, 0 when unknown; with its number it names one process."""
    try:
        with open(f"/proc/{pid}/stat") as stream:
            return int(stream.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def _is_gone(pid: int, start: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _start_time(pid) != start


def describe_space(folder: Path, needed: int, spare: Path) -> str | None:
    """Return what is wrong when a file of ``needed`` bytes does not fit, None when it does or that is unknown.

    Parameters
    ----------
    spare
        A file that it is written over, if there is one.
    """
    try:
        free = os.statvfs(folder)
    except OSError:
        return None
    available = free.f_bavail * free.f_frsize
    with contextlib.suppress(OSError):
        available += spare.stat().st_blocks * 512
    if needed > available:
        return f"{folder} has {available >> 20} MiB free, and the checkpoint needs {-(-needed // (1 << 20))} MiB"
    return None
