"""One process, without MPI: what is saved comes back, and what is damaged is found."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmr import ckpt
from dmr.ckpt import (
    ArrayItem,
    Block,
    Damaged,
    Fenced,
    Mismatch,
    Replicated,
    RngItem,
    StorageError,
    Store,
    UnknownVersion,
    Unsupported,
    ValueItem,
    Writer,
    describe_difference,
)
from dmr.ckpt.storage import h5file, manifest
from dmr.ckpt.transfer import plan
from dmr.launcher.run.rundir import RunDir


def state(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "u": ArrayItem(rng.random((300, 40)), Block(axes=(0, 1)), (300, 40)),
        "t": ArrayItem(rng.integers(0, 99, 5000), Replicated(), (5000,)),
        "k": ValueItem({"seed": seed}),
        "noise": RngItem(rng),
    }


def check(loaded: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    assert loaded.array("u").tobytes() == rng.random((300, 40)).tobytes()
    assert loaded.array("t").tobytes() == rng.integers(0, 99, 5000).tobytes()
    assert loaded.value("k") == {"seed": seed}
    assert loaded.rng("noise").random() == rng.random()


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PIECE", 4096)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "checkpoints", keep=3)


def test_nothing_there(store: Store) -> None:
    assert store.load_newest() is None
    assert store.list() == []


def test_there_and_back(store: Store) -> None:
    saved = store.save(4, state(1), info={"why": "test"})
    assert saved.path.name == "step-000000000004-g0000.h5"
    assert saved.bytes == saved.path.stat().st_size
    assert os.stat(store.folder).st_mode & 0o777 == 0o700
    loaded = store.load_newest()
    assert loaded is not None
    assert (loaded.step, loaded.path, loaded.info, loaded.bytes) == (4, saved.path, {"why": "test"}, saved.bytes)
    assert loaded.names == ("t", "u", "k", "noise")
    check(loaded, 1)
    assert [each.name for each in store.folder.iterdir() if each.is_file()] == [saved.path.name]


def test_other_programs_see_the_whole_arrays(store: Store) -> None:
    import h5py

    saved = store.save(4, state(1))
    with h5py.File(saved.path, "r") as file:
        assert (file["arrays/u"][()] == np.random.default_rng(1).random((300, 40))).all()
        assert json.loads(file["manifest"][()])["format"] == "dmr-checkpoint"


def test_the_newest_is_that_of_the_last_generation(store: Store, tmp_path: Path) -> None:
    for generation, step in [(2, 50), (1, 90), (2, 60)]:
        staging = tmp_path / "checkpoints" / f".staging-{generation:04d}"
        with Store(store.folder, keep=9, writer=Writer("run", generation, "x", staging)) as other:
            other.save(step, state(step))
    assert [(each.generation, each.step) for each in store.list()] == [(2, 60), (2, 50), (1, 90)]
    os.utime(store.list()[-1].path, (2e9, 2e9))
    loaded = store.load_newest()
    assert loaded is not None and loaded.step == 60
    check(store.load(90), 90)
    with pytest.raises(Mismatch, match="no checkpoint of step 7; the steps it holds: 50, 60, 90"):
        store.load(7)


def test_only_the_newest_are_kept(store: Store) -> None:
    for step in range(6):
        store.save(step, state(step))
    assert [each.step for each in store.list()] == [5, 4, 3]


def test_the_same_step_again_replaces_it(store: Store) -> None:
    store.save(1, state(1))
    store.save(1, state(2))
    check(store.load_newest(), 2)


def test_some_arrays_only(store: Store) -> None:
    store.save(1, state(1))
    loaded = store.load(1, arrays=["t"])
    assert loaded.read_bytes == 5000 * 8
    check(loaded, 1)
    with pytest.raises(Mismatch, match="no array 'w'; it holds 't', 'u'"):
        store.load(1, arrays=["w"])


def test_wrong_names_and_kinds_are_named(store: Store) -> None:
    store.save(1, state(1))
    loaded = store.load(1)
    with pytest.raises(Mismatch, match="no array 'w'; it holds 't', 'u', 'k', 'noise'"):
        loaded.array("w")
    with pytest.raises(Mismatch, match="'k' was saved as value, and the program asks for it as array"):
        loaded.array("k")
    text = describe_difference("u", loaded.specs["u"], (300, 41), np.dtype("f4"))
    assert text == "array 'u': saved as float64 (300, 40), the program declares float32 (300, 41)"
    assert describe_difference("u", loaded.specs["u"], (300, 40), np.dtype("f8")) is None


def test_wrong_local_shape_is_named(store: Store) -> None:
    with pytest.raises(Mismatch, match=r"'u': this rank's part has shape \(3,\).*gives it \(4,\)"):
        store.save(1, {"u": ArrayItem(np.zeros(3), Block(), (4,))})


def test_bad_items_are_refused(store: Store) -> None:
    with pytest.raises(Unsupported, match="'u' is a int"):
        store.save(1, {"u": 3})  # type: ignore[dict-item]
    with pytest.raises(Unsupported, match="is no name of an item"):
        store.save(1, {"": ValueItem(3)})
    assert store.list() == []


# -- files that are written over


def inode(path: Path) -> int:
    return path.stat().st_ino


def test_a_file_that_is_not_kept_is_written_over(store: Store) -> None:
    inodes = [inode(store.save(step, state(step)).path) for step in range(4)]
    (spare,) = store.folder.glob(".staging-*/spare")
    assert inode(spare) == inodes[0]
    fresh = Store(store.folder.with_name("fresh"))
    small = {"u": ArrayItem(np.ones(7000), Block(), (7000,))}
    for step, items in [(4, state(4)), (5, small), (6, state(6)), (7, state(7)), (8, small)]:
        path = store.save(step, items).path
        assert inode(path) == inodes[(step - 4) % 4]
        assert path.read_bytes() == fresh.save(step, items).path.read_bytes(), "nothing of the old content is left"
    assert [each.step for each in store.list()] == [8, 7, 6]
    store.close()
    assert not list(store.folder.glob(".staging-*"))


def test_what_somebody_reads_or_has_linked_is_not_written_over(store: Store, tmp_path: Path) -> None:
    import h5py

    saved = [store.save(step, state(step)).path for step in range(3)]
    link = tmp_path / "mine.h5"
    os.link(saved[1], link)
    with ckpt.open(saved[0]) as file:
        u = file["u"]
    store.save(3, state(3))
    assert not list(store.folder.glob(".staging-*/spare")) and not saved[0].exists()
    store.save(4, state(4))
    assert not list(store.folder.glob(".staging-*/spare")) and not saved[1].exists()
    with h5py.File(saved[2], "r"):
        store.save(5, state(5))
        assert not list(store.folder.glob(".staging-*/spare"))
    store.save(6, state(6))
    assert list(store.folder.glob(".staging-*/spare"))
    for step in range(7, 12):
        store.save(step, state(step))
    assert u.tobytes() == np.random.default_rng(0).random((300, 40)).tobytes()
    check(store.load(link), 1)


def test_without_recycling_no_space_is_kept(tmp_path: Path) -> None:
    store = Store(tmp_path, keep=1, recycle=False)
    for step in range(3):
        store.save(step, state(step))
        assert not list(store.folder.glob(".staging-*/spare"))


# -- damage


def two(store: Store) -> Path:
    store.save(1, state(1))
    return store.save(2, state(2)).path


def flip(path: Path, at: int, bit: int = 0) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1 << bit
    path.write_bytes(raw)


def falls_back(store: Store, caplog: pytest.LogCaptureFixture) -> str:
    with caplog.at_level(logging.WARNING, "dmr.ckpt"):
        loaded = store.load_newest()
    assert loaded is not None and loaded.step == 1
    check(loaded, 1)
    (newest, _) = store.list()
    assert newest.step == 2 and newest.bad is not None
    assert newest.bad in caplog.text
    return newest.bad


def test_a_flipped_bit_of_data_is_named_by_place(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    path = two(store)
    entry = next(each for each in h5file.read_content(path).manifest.arrays if each.name == "u")
    flip(path, entry.offset + 8 * 600 + 3, 5)
    bad = falls_back(store, caplog)
    assert "array 'u' is damaged: elements 512 to 1023 in C order" in bad and path.name in bad


@pytest.mark.parametrize("where", ["manifest", "digests", "seal"])
def test_a_flipped_bit_of_the_manifest_is_found(store: Store, caplog: pytest.LogCaptureFixture, where: str) -> None:
    import h5py

    path = two(store)
    with h5py.File(path, "r") as file:
        at = file[where].id.get_offset()
    flip(path, at + 1)
    assert "seal" in falls_back(store, caplog)


@pytest.mark.parametrize("left", [0, 1, 100, 4096, -1])
def test_a_truncated_file_is_found(store: Store, caplog: pytest.LogCaptureFixture, left: int) -> None:
    path = two(store)
    os.truncate(path, left if left >= 0 else path.stat().st_size - 1)
    falls_back(store, caplog)


def test_a_file_cut_short_while_it_is_read_is_damage(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = two(store)
    real = sys.modules["dmr.ckpt.load"].read_content

    def cut_after(which: Path) -> Any:
        found = real(which)
        if which == path:
            os.truncate(path, found.manifest.arrays[0].offset + 100)
        return found

    monkeypatch.setattr("dmr.ckpt.load.read_content", cut_after)
    assert "cut short" in falls_back(store, caplog)


def test_a_foreign_file_is_found(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    import h5py

    path = two(store)
    with h5py.File(path, "w") as file:
        file["x"] = 3
    falls_back(store, caplog)


def test_a_bad_one_is_kept_and_not_tried_again(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    path = two(store)
    flip(path, h5file.read_content(path).manifest.arrays[0].offset)
    falls_back(store, caplog)
    falls_back(store, caplog)
    for step in (3, 4, 5):
        store.save(step, state(step))
    assert [each.step for each in store.list()] == [5, 4, 3, 2]
    check(store.load_newest(), 5)


def test_a_repaired_one_is_tried_again(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    path = two(store)
    at = h5file.read_content(path).manifest.arrays[0].offset
    flip(path, at)
    falls_back(store, caplog)
    flip(path, at)
    check(store.load_newest(), 2)


def test_none_good_is_no_fresh_start(store: Store) -> None:
    path = store.save(1, state(1)).path
    os.truncate(path, 100)
    with pytest.raises(Damaged, match="holds no good checkpoint"):
        store.load_newest()


def test_a_newer_format_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.save(1, state(1))
    monkeypatch.setattr(manifest, "PLAIN", 99)
    store.save(2, state(2))
    monkeypatch.undo()
    with pytest.raises(UnknownVersion, match="version 99.*update dmr"):
        store.load_newest()


def test_a_newer_format_with_another_seal_is_not_damage(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "PLAIN", manifest.VERSION + 1)
    monkeypatch.setattr("dmr.ckpt.save.seal", lambda *of: bytes(16))
    path = store.save(2, state(2)).path
    monkeypatch.undo()
    with pytest.raises(UnknownVersion, match="update dmr"):
        store.load_newest()
    with pytest.raises(UnknownVersion, match=f"{path.name}.*update dmr"):
        ckpt.open(path)
    assert store.list()[0].bad is None


def test_unreadable_is_not_damage(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    two(store)

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("dmr.ckpt.load.read_content", refuse)
    with pytest.raises(StorageError, match="Permission denied"):
        store.load_newest()
    assert all(each.bad is None for each in store.list())


# -- commit and fencing


def writer(run: RunDir, generation: int) -> Writer:
    def check() -> None:
        if max(run.leases()) > generation:
            raise Fenced(f"generation {max(run.leases())} has the lease")

    return Writer("run", generation, "token", run.staging(generation), check)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir.create(tmp_path / "run", {"run": "run"})
    assert made.take_lease(1, {})
    return made


def test_a_late_generation_is_refused(run: RunDir) -> None:
    old = Store(run.checkpoints, writer=writer(run, 1))
    old.save(1, state(1))
    assert run.take_lease(2, {})
    with pytest.raises(Fenced, match="generation 2 has the lease"):
        old.save(2, state(2))
    with Store(run.checkpoints, writer=writer(run, 2)) as new:
        new.save(2, state(3))
        check(new.load_newest(), 3)
    assert {each.name for each in run.checkpoints.iterdir()} == {
        "step-000000000001-g0001.h5",
        "step-000000000002-g0002.h5",
        ".staging-0001",
    }


@pytest.mark.parametrize("moment", ["lay_out", "open_output", "sync_file", "check", "rename"])
def test_fenced_at_any_moment_of_a_save(run: RunDir, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    old = Store(run.checkpoints, writer=writer(run, 1))
    old.save(1, state(1))
    module, name = {
        "lay_out": (h5file, "lay_out"),
        "open_output": (sys.modules["dmr.ckpt.save"], "open_output"),
        "sync_file": (sys.modules["dmr.ckpt.save"], "sync_file"),
        "check": (sys.modules["dmr.ckpt.commit"], "sync_folder"),
        "rename": (os, "rename"),
    }[moment]
    original = getattr(module, name)

    def fence_first(*args: Any, **options: Any) -> Any:
        if not (name == "rename" and ".fenced" in str(args[1])):
            run.take_lease(2, {})
        return original(*args, **options)

    monkeypatch.setattr(module, name, fence_first)
    with pytest.raises(Fenced):
        old.save(2, state(2))
    monkeypatch.undo()
    assert [each.step for each in old.list()] == [1]
    check(old.load_newest(), 1)


def test_a_failed_save_leaves_the_others(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.save(1, state(1))

    def full(*args: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StorageError, match="No space left on device"):
        store.save(2, state(2))
    monkeypatch.undo()
    check(store.load_newest(), 1)
    assert list(store.folder.glob(".staging-*/*")) == []
    store.save(2, state(2))
    check(store.load_newest(), 2)


def test_a_disk_that_is_too_small_is_told_before(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    class Small:
        f_bavail, f_frsize = 1, 4096

    monkeypatch.setattr(os, "statvfs", lambda path: Small)
    with pytest.raises(StorageError, match="0 MiB free, and the checkpoint needs 1 MiB"):
        store.save(1, state(1))


def test_leftovers_of_dead_processes_go(store: Store) -> None:
    body = (
        "import os, numpy, dmr.ckpt.save\nfrom dmr.ckpt import *\n"
        "dmr.ckpt.save.sync_file = lambda path: os._exit(9)\n"
        f"Store({str(store.folder)!r}).save(1, {{'u': ArrayItem(numpy.zeros(9), Block(), (9,))}})"
    )
    assert subprocess.run([sys.executable, "-c", body], timeout=30, check=False).returncode == 9
    assert len(list(store.folder.glob(".staging-own-*"))) == 1
    store.save(1, state(1))
    store.close()
    assert [each.name for each in store.folder.iterdir()] == ["step-000000000001-g0000.h5"]


def test_no_mpi_and_no_hdf5_before_they_are_needed() -> None:
    body = "import sys, dmr.ckpt; print(sorted({'mpi4py', 'h5py'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", body], timeout=30, capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_unknown_driver(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="no driver 'posix'"):
        Store(tmp_path, driver="posix")  # type: ignore[arg-type]


def test_mpio_without_parallel_h5py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import h5py

    class Config:
        mpi = False

    monkeypatch.setattr(h5py, "get_config", Config)
    with pytest.raises(Unsupported, match="use the driver 'direct'"):
        Store(tmp_path, driver="mpio")


def test_mpio_is_closed_on_all_ranks_whatever_goes_wrong_on_one() -> None:
    from dmr.ckpt.storage.mpio import MpioFile

    class Part:
        closed = 0

        def close(self) -> None:
            self.closed += 1
            raise OSError(5, "Input/output error")

    file = MpioFile.__new__(MpioFile)
    file._open, file._plain, file._file = {}, Part(), Part()  # type: ignore[assignment]
    with pytest.raises(OSError, match="Input/output"):
        file.close()
    assert file._file.closed == 1
