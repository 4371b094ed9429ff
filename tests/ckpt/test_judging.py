"""What is damage, and what says nothing of a checkpoint: only damage is noted beside it."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

from dmr import ckpt
from dmr.ckpt import ArrayItem, Block, CheckpointError, Damaged, StorageError, Store
from dmr.ckpt.commit import mark_bad, read_bad
from dmr.ckpt.storage import manifest, opening
from dmr.launcher.cli.ckpt import ls, verify

WHOLE = np.arange(4000.0)
STATE = {"u": ArrayItem(WHOLE, Block(), WHOLE.shape)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Store(tmp_path, compress="zlib").save(1, STATE).path


def run(path: Path) -> tuple[int, str]:
    found = CliRunner().invoke(verify, [str(path)])
    assert not found.exception or isinstance(found.exception, (SystemExit, click.ClickException)), found.exception
    return found.exit_code, found.output


def no_package(path: Path, patch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("zstandard")
    found = Store(path.parent, compress="zstd").save(2, STATE).path
    patch.setitem(sys.modules, "zstandard", None)
    return found


def newer(path: Path, patch: pytest.MonkeyPatch) -> Path:
    with patch.context() as late:
        late.setattr(manifest, "PLAIN", manifest.VERSION + 1)
        return Store(path.parent).save(2, STATE).path


def refused(number: int) -> Callable[[Path, pytest.MonkeyPatch], Path]:
    def refuse(path: Path, patch: pytest.MonkeyPatch) -> Path:
        patch.setattr(opening, "open_locked", fail)
        patch.setattr("dmr.ckpt.reader.open_locked", fail)
        return path

    def fail(path: Path) -> int:
        raise OSError(number, os.strerror(number), str(path))

    return refuse


def stale(path: Path, patch: pytest.MonkeyPatch, *, last: bool = False) -> Path:
    """The file can be opened; reading fails, in HDF5 or of the last piece."""
    preadv = os.preadv
    reads: list[int] = []

    def fail(file: int, buffers: Any, offset: int) -> int:
        reads.append(offset)
        if len(reads) == after:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return preadv(file, buffers, offset)

    after = sys.maxsize
    patch.setattr(os, "preadv", fail)
    with ckpt.open(path) as file:
        file.verify()
    after = len(reads) if last else 3
    reads.clear()
    return path


CASES = [no_package, newer, refused(errno.EACCES), refused(errno.ESTALE), refused(errno.ENOENT), stale]


@pytest.mark.parametrize("case", CASES)
def test_what_is_no_damage_is_not_noted(path: Path, monkeypatch: pytest.MonkeyPatch, case: Any) -> None:
    made = case(path, monkeypatch)
    status, said = run(made)
    assert status == 1 and "BAD" not in said and "can't be" in said, said
    assert read_bad(made) is None


def test_a_piece_that_can_not_be_read_is_no_damage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = f"{os.strerror(errno.ESTALE)}.*{path.name}"
    with ckpt.open(stale(path, monkeypatch, last=True)) as file, pytest.raises(StorageError, match=said):
        file.verify()


def test_an_error_holds_nothing_of_hdf5(path: Path) -> None:
    os.truncate(path, 3000)
    with pytest.raises(Damaged, match="HDF5 can't read it") as found:
        ckpt.open(path)
    assert found.value.__context__ is None


def test_damage_is_noted_and_taken_back(path: Path) -> None:
    with ckpt.open(path) as file:
        place = int(file._content.chunks[0, 0])
    clean = path.read_bytes()
    path.write_bytes(clean[:place] + bytes([clean[place] ^ 1]) + clean[place + 1 :])
    assert run(path)[0] == 1 and read_bad(path)
    path.write_bytes(clean)
    assert run(path)[0] == 0 and read_bad(path) is None


def test_a_listing_opens_no_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmr.ckpt.storage.h5file.read_content", lambda path: pytest.fail("it was opened"))
    found = CliRunner().invoke(ls, [str(path.parent)])
    assert found.exit_code == 0 and path.name in found.output and "RAW" not in found.output


# -- files that go while they are open


def test_a_file_that_was_removed_while_it_is_open_is_good(path: Path) -> None:
    with ckpt.open(path) as file:
        path.unlink()
        assert file.verify() == [] and (file.read("u") == WHOLE).all()


def test_a_file_that_is_replaced_while_it_is_opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Store(path.parent / "other").save(1, {"v": STATE["u"]}).path
    original, done = opening._lock, []

    def late(file: int) -> bool:
        if not done:
            done.append(file)
            os.replace(other, path)
        return original(file)

    monkeypatch.setattr(opening, "_lock", late)
    with ckpt.open(path) as file:
        assert list(file) == ["v"] and file.verify() == []
    monkeypatch.setattr(opening, "_lock", lambda file: path.unlink(missing_ok=True) or True)
    with pytest.raises(FileNotFoundError):
        ckpt.open(path)


def test_a_file_that_a_program_has_taken_to_write_over_is_not_read(path: Path) -> None:
    """It stays locked until it has another name, and has nothing of its content then."""
    handle = os.open(path, os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    seen: list[type[BaseException]] = []

    def look() -> None:
        try:
            ckpt.open(path).close()
        except (OSError, CheckpointError) as error:
            seen.append(type(error))

    thread = threading.Thread(target=look)
    thread.start()
    os.rename(path, path.with_name("spare"))
    os.pwrite(handle, bytes(8), 0)
    os.close(handle)
    thread.join()
    assert seen == [FileNotFoundError]


def test_a_mark_on_a_read_only_file_system_stays(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark_bad(path, "for a test")

    def refuse(*of: Any, **more: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "unlink", refuse)
    status, said = run(path)
    assert status == 0 and "good" in said and read_bad(path) == "for a test"
