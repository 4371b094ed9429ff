"""The file system that a run directory is to lie on: what it can do, how fast, and whether its clock is right."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from .finding import Finding

SAMPLE = 64 << 20
LITTLE = 1 << 30
SLOW = 50e6
SLOW_SYNC = 0.25
SKEW = 5.0
LOST = frozenset({"tmpfs", "overlay", "ramfs"})
UNSHARED = frozenset({"ext4", "ext3", "xfs", "btrfs", "zfs"})


def check_files(folder: Path) -> Iterator[Finding]:
    """Try, in a folder of its own below ``folder`` that is removed again, what runs rely on."""
    kind = mounted_as(folder)
    where = f"{kind} at {folder.resolve()}"
    if kind in LOST:
        yield Finding("files", "file system", "warn", where, "it is gone with the machine: keep runs on a shared one")
    elif kind in UNSHARED:
        yield Finding("files", "file system", "note", where, "several nodes need one that they share")
    else:
        yield Finding("files", "file system", "ok", where)
    try:
        place = Path(tempfile.mkdtemp(prefix=".dmr-doctor-", dir=folder))
    except OSError as error:
        yield Finding("files", "writing", "fail", f"{folder}: {error.strerror}", "name another folder with --run-dir")
        return
    try:
        free = shutil.disk_usage(place).free
        yield Finding(
            "files", "room", "ok" if free > LITTLE else "warn", f"{free / 2**30:.1f} GiB free",
            "" if free > LITTLE else "checkpoints need room for --keep + 1 of them",
        )  # fmt: skip
        for check in (_links, _rename, _speed, _sync, _locks, _clock):
            try:
                yield check(place)
            except OSError as error:
                yield Finding("files", check.__name__.strip("_"), "fail", str(error.strerror), "choose another folder")
    finally:
        shutil.rmtree(place, ignore_errors=True)


def mounted_as(folder: Path, table: str = "/proc/self/mounts") -> str:
    """Return the type of the file system that a folder lies on."""
    best, kind = "", "unknown"
    path = str(folder.resolve())
    with contextlib.suppress(OSError):
        for line in Path(table).read_text().splitlines():
            _, where, what, *_ = line.split()
            where = where.replace("\\040", " ")
            if (path == where or path.startswith(where.rstrip("/") + "/")) and len(where) >= len(best):
                best, kind = where, what
    return kind


def _links(place: Path) -> Finding:
    (place / "a").write_text("a")
    try:
        os.link(place / "a", place / "b")
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        return Finding("files", "exclusive creation", "note", "no hard links; O_EXCL is used", "")
    try:
        os.link(place / "a", place / "b")
    except FileExistsError:
        return Finding("files", "exclusive creation", "ok", "of two that create a file, one does")
    return Finding("files", "exclusive creation", "fail", "two links of one name", "leases don't hold here")


def _rename(place: Path) -> Finding:
    (place / "new").write_text("new")
    os.replace(place / "new", place / "a")
    if (place / "a").read_text() == "new" and not (place / "new").exists():
        return Finding("files", "rename", "ok", "replaces a file at once")
    return Finding("files", "rename", "fail", "does not replace a file", "reports and checkpoints need it")


def _speed(place: Path) -> Finding:
    block = os.urandom(1 << 20)
    began = time.perf_counter()
    with open(place / "sample", "wb", buffering=0) as stream:
        for _ in range(SAMPLE >> 20):
            stream.write(block)
        os.fsync(stream.fileno())
    rate = SAMPLE / (time.perf_counter() - began)
    found = f"{rate / 1e6:.0f} MB/s by one writer"
    if rate > SLOW:
        return Finding("files", "speed", "ok", found)
    return Finding("files", "speed", "warn", found, "saves will take long: is there a faster file system (scratch)?")


def _sync(place: Path) -> Finding:
    times = []
    with open(place / "ledger", "ab", buffering=0) as stream:
        for _ in range(5):
            began = time.perf_counter()
            stream.write(b"x" * 200 + b"\n")
            os.fsync(stream.fileno())
            times.append(time.perf_counter() - began)
    worst = max(times)
    return Finding(
        "files", "sync", "ok" if worst < SLOW_SYNC else "warn", f"a durable line takes {1000 * worst:.1f} ms at most",
        "" if worst < SLOW_SYNC else "resizes wait for some of these",
    )  # fmt: skip


def _locks(place: Path) -> Finding:
    import fcntl

    with open(place / "lock", "w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            advice = "dmr needs none; for other users of HDF5: HDF5_USE_FILE_LOCKING=FALSE"
            return Finding("files", "locks", "note", "no locks here", advice)
    return Finding("files", "locks", "ok", "flock works (dmr itself needs none)")


def _clock(place: Path) -> Finding:
    (place / "now").write_text("")
    skew = os.stat(place / "now").st_mtime - time.time()
    good = abs(skew) < SKEW
    return Finding(
        "files", "clock", "ok" if good else "warn", f"{skew:+.1f} s against this machine's",
        "" if good else "times in reports will be off; dmr does not rely on them",
    )  # fmt: skip
