"""Two levels: a folder of the node, and the shared one that it is copied to."""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmr.ckpt.twolevel.drain
from dmr.ckpt import ArrayItem, Block, Fenced, KeepEverySteps, KeepLast, Loaded, NotDrained, StorageError, Store, Writer
from dmr.ckpt.twolevel.fast import expand, find, refusal

SHAPE = (4000,)


def items(step: int) -> dict[str, Any]:
    return {"u": ArrayItem(np.random.default_rng(step).random(SHAPE), Block(), SHAPE)}


def is_step(loaded: Loaded | None, step: int) -> bool:
    assert loaded is not None
    same = loaded.array("u").tobytes() == np.random.default_rng(step).random(SHAPE).tobytes()
    return loaded.step == step and same


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    folder = tmp_path / "node"
    folder.mkdir(mode=0o700)
    return folder


def left(node: Path) -> list[str]:
    return sorted(each.name for each in node.rglob("step-*.h5"))


def files(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.glob("step-*"))


def slow_down(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    copy = dmr.ckpt.twolevel.drain.copy_bytes

    def later(*args: Any) -> None:
        time.sleep(seconds)
        copy(*args)

    monkeypatch.setattr(dmr.ckpt.twolevel.drain, "copy_bytes", later)


def fail_with(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    def fail(*args: Any) -> None:
        raise error

    monkeypatch.setattr(dmr.ckpt.twolevel.drain, "copy_bytes", fail)


def test_a_save_goes_to_the_node_and_is_copied(shared: Path, node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_down(monkeypatch, 0.3)
    with Store(shared, fast_dir=node) as store:
        assert store.load_newest() is None and store.fast is not None
        saved = store.save(1, items(1))
        assert saved.path.parent == store.fast and store.saving and files(shared) == []
        assert [(each.step, each.fast) for each in store.list()] == [(1, True)]
        assert find(shared)[0] == store.fast
        assert store.wait() is None and not store.saving
        assert store.drained is not None and store.drained.path == shared / saved.path.name
        assert store.drained.bytes == saved.bytes
        assert filecmp.cmp(saved.path, store.drained.path, shallow=False)
        for folder in (store.fast, shared):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        for path in (saved.path, store.drained.path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for step in (2, 3, 4):
            store.save(step, items(step))
        assert [each.step for each in store.list() if each.fast] == [4]
    assert [path.name[:18] for path in sorted(shared.iterdir()) if path.suffix == ".h5"] == [
        f"step-{step:012d}-"[:18] for step in (3, 4)
    ]
    assert list(node.iterdir()) == [] and find(shared) == (None, None)
    with Store(shared) as store:
        assert is_step(store.load_newest(), 4)


def test_in_the_background_too(shared: Path, node: Path) -> None:
    with Store(shared, fast_dir=node, keep=KeepLast(1) | KeepEverySteps(2)) as store:
        for step in range(1, 6):
            store.save_later(step, items(step))
        saved = store.wait()
        assert saved is not None and saved.path.parent == store.fast and store.drained.step == 5
        assert is_step(store.load(4), 4)
    assert [each.step for each in Store(shared).list()] == [5, 4, 2, 1]


def test_levels_for_those_who_leave(shared: Path, node: Path) -> None:
    with Store(shared, fast_dir=node) as store:
        store.save(1, items(1))
        saved = store.save(2, items(2), level="shared")
        assert saved.path.parent == shared and left(node) == []
        store.save(3, items(3), level="fast")
        assert not store.saving
    assert left(node) == ["step-000000000003-g0000.h5"], "it is nowhere else"
    with Store(shared) as elsewhere:
        assert is_step(elsewhere.load_newest(), 2)
    with Store(shared, fast_dir=node) as store:
        loaded = store.load_newest()
        assert loaded.path.parent == store.fast and is_step(loaded, 3)
    assert left(node) == [] and is_step(Store(shared).load_newest(), 3), "what was loaded is copied"


def test_an_error_surfaces_at_the_next_call(shared: Path, node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(shared, fast_dir=node) as store:
        store.save(1, items(1))
        store.wait()
        with monkeypatch.context() as patched:
            fail_with(patched, OSError(28, "No space left on device"))
            store.save(2, items(2))
            with pytest.raises(NotDrained, match=r"step-000000000002-g0000.h5 is on this node alone.*No space left"):
                store.save(3, items(3))
            assert not list(shared.glob(".staging-*/step-*"))
            assert [(each.step, each.fast) for each in store.list()] == [(2, True), (1, False)]
            assert is_step(store.load_newest(), 2)
            with pytest.raises(NotDrained):
                store.wait()
        store.save(3, items(3))
    assert [each.step for each in Store(shared).list()] == [3, 1] and left(node) == []


def test_what_could_not_be_copied_stays_on_the_node(shared: Path, node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        fail_with(patched, OSError(122, "Disk quota exceeded"))
        store = Store(shared, fast_dir=node)
        store.save(1, items(1))
        with pytest.raises(NotDrained, match="Disk quota exceeded"):
            store.close()
    assert left(node) == ["step-000000000001-g0000.h5"] and files(shared) == []
    with Store(shared, fast_dir=node) as store:
        assert is_step(store.load_newest(), 1)
    assert left(node) == [] and is_step(Store(shared).load_newest(), 1)


def flip(path: Path) -> None:
    with open(path, "r+b") as stream:
        stream.seek(path.stat().st_size // 2)
        (byte,) = stream.read(1)
        stream.seek(-1, 1)
        stream.write(bytes([byte ^ 4]))


def test_damage_on_the_node_is_passed_over_and_not_copied(
    shared: Path, node: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(shared, fast_dir=node) as store:
        store.save(1, items(1))
        store.wait()
        flip(store.save(2, items(2), level="fast").path)
        assert is_step(store.load_newest(), 1)
        assert "passing over" in caplog.text and store.list()[0].bad
        slow_down(monkeypatch, 0.2)
        flip(store.save(3, items(3)).path)
        with pytest.raises(NotDrained, match="is damaged"):
            store.wait()
        assert files(shared) == ["step-000000000001-g0000.h5"]
        assert is_step(store.load_newest(), 1)


def test_the_same_one_in_the_shared_folder_serves(shared: Path, node: Path) -> None:
    with Store(shared, fast_dir=node) as store:
        flip_me = store.save(1, items(1)).path
        store.wait()
        flip(flip_me)
        loaded = store.load_newest()
        assert loaded.path.parent == shared and is_step(loaded, 1)


def test_another_run_at_the_same_path_sees_nothing_of_it(shared: Path, node: Path) -> None:
    with Store(shared, fast_dir=node) as store:
        store.save(7, items(7), level="fast")
    assert len(list(node.iterdir())) == 1
    copy = shared.with_name("copied")
    shutil.copytree(shared, copy)
    with Store(copy, fast_dir=node) as store:
        assert store.load_newest() is None
    assert left(node) == ["step-000000000007-g0000.h5"], "it is nowhere else"
    shutil.rmtree(shared)
    with Store(shared, fast_dir=node) as store:
        assert store.load_newest() is None
        assert left(node) == [], "what nobody can load any more is removed"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a file system")
def test_the_state_of_a_run_whose_file_system_is_away_is_left_alone(tmp_path: Path, node: Path) -> None:
    place = tmp_path / "scratch"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=False).returncode:
        pytest.skip("tmpfs can't be mounted here")
    with Store(place / "checkpoints", fast_dir=node) as store:
        store.save(7, items(7), level="fast")
    subprocess.run(["umount", "-l", place], check=True)
    with Store(tmp_path / "other", fast_dir=node) as store:
        store.save(1, items(1))
    assert left(node) == ["step-000000000007-g0000.h5"]


def test_what_others_hold_is_not_removed(shared: Path, node: Path) -> None:
    with Store(shared, fast_dir=node) as first:
        first.save(1, items(1))
        first.wait()
        assert first.fast is not None
        with Store(shared.with_name("other"), fast_dir=node) as other, Store(shared, fast_dir=node) as second:
            assert other.fast != first.fast == second.fast
        assert first.fast.is_dir()
        first.save(2, items(2))
    assert list(node.iterdir()) == []


def writer(shared: Path, generation: int, lost: list[int] | None = None) -> Writer:
    def check() -> None:
        if lost:
            raise Fenced(f"generation {lost[0]} has taken over")

    return Writer("run", generation, f"token-{generation}", shared / f".staging-{generation:04d}", check)


def test_a_late_generation_copies_nothing(shared: Path, node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[int] = []
    slow_down(monkeypatch, 0.2)
    with Store(shared, fast_dir=node, writer=writer(shared, 1, lost)) as store:
        store.save(1, items(1))
        lost.append(2)
        with pytest.raises(Fenced, match="generation 2 has taken over"):
            store.wait()
    assert files(shared) == []
    lost.clear()
    first = Store(shared, fast_dir=node, writer=writer(shared, 1, lost))
    first.save(1, items(1))
    while not (shared / ".staging-0001").exists():
        time.sleep(0.01)
    # What a later generation does before it starts; it comes between the check and the rename.
    (shared / ".staging-0001").rename(shared / ".fenced-0001-x")
    with pytest.raises(Fenced, match="has taken its staging folder"):
        first.wait()
    first.close()
    assert files(shared) == []


def test_a_later_generation_fences_the_earlier_one_on_the_node(shared: Path, node: Path) -> None:
    first = Store(shared, fast_dir=node, writer=writer(shared, 1))
    first.save(1, items(1))
    first.wait()
    commit = dmr.ckpt.commit.Staging.commit
    second: list[Store] = []

    def overtaken(staging: Any, temporary: Path, final: Path) -> None:
        second.append(Store(shared, fast_dir=node, writer=writer(shared, 2)))
        dmr.ckpt.commit.Staging.commit = commit  # type: ignore[method-assign]
        commit(staging, temporary, final)

    dmr.ckpt.commit.Staging.commit = overtaken  # type: ignore[method-assign]
    try:
        with pytest.raises(Fenced):
            first.save(2, items(2))
    finally:
        dmr.ckpt.commit.Staging.commit = commit  # type: ignore[method-assign]
    assert is_step(second[0].load_newest(), 1)
    second[0].save(2, items(2))
    second[0].close()
    first.close()
    assert [(each.generation, each.step) for each in Store(shared).list()] == [(2, 2), (1, 1)]
    assert list(node.iterdir()) == []


def test_folders_that_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    for name, mode in {"own": 0o755, "group": 0o775, "sticky": 0o1777, "open": 0o777}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
    assert [refusal(tmp_path / name) for name in ("own", "group", "sticky")] == [None] * 3
    assert refusal(Path("/dev/shm")) is None
    said = {name: str(refusal(tmp_path / name)) for name in ("file", "open", "missing")}
    assert "is no folder" in said["file"] and "not sticky (mode 0777)" in said["open"]
    assert "No such file" in said["missing"] and "begins with /" in str(refusal(Path("relative")))
    if os.geteuid() == 0:
        os.chown(tmp_path / "own", 65534, 65534)
        assert "belongs to another user (uid 65534)" in str(refusal(tmp_path / "own"))
    for name in ("open", "missing", "$NO_SUCH_VARIABLE"):
        caplog.clear()
        with Store(tmp_path / "checkpoints", fast_dir=tmp_path / name) as store:
            assert store.fast is None and store.save(1, items(1)).path.parent == tmp_path / "checkpoints"
            store.save(2, items(2))
        assert caplog.text.count("the shared folder alone") == 1
    assert list((tmp_path / "open").iterdir()) == []


def test_a_planted_folder_is_not_used(shared: Path, node: Path, tmp_path: Path) -> None:
    with Store(shared, fast_dir=node) as store:
        store.save(1, items(1), level="fast")
        assert store.fast is not None
        name = store.fast
    other = tmp_path / "other"
    shutil.move(name, other)
    name.symlink_to(other)
    with Store(shared, fast_dir=node) as store:
        assert store.fast is None and store.load_newest() is None
    name.unlink()
    name.mkdir(mode=0o755)
    with Store(shared, fast_dir=node) as store:
        assert store.fast is None


def test_variables_are_those_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRATCH_OF_JOB", "/local/4711")
    assert expand("$SCRATCH_OF_JOB/fast") == Path("/local/4711/fast")


def test_without_room_on_the_node_nothing_is_lost(
    shared: Path, node: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(shared, fast_dir=node) as store:
        store.save(1, items(1))
        full = store.fast
        monkeypatch.setattr(dmr.ckpt.save, "describe_space", lambda path, *_: "full" if path.parent == full else None)
        for step in (2, 3):
            assert store.save(step, items(step)).path.parent == shared
            assert is_step(store.load_newest(), step) and left(node) == []
        assert caplog.text.count("saving to the shared folder instead") == 1
        monkeypatch.undo()
        assert store.save(4, items(4)).path.parent == store.fast


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small file system")
def test_a_full_file_system_on_the_node(shared: Path, node: Path, on_ranks: Any) -> None:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=0700", "tmpfs", node], check=False)
    if mounted.returncode:
        pytest.skip("tmpfs can't be mounted here")
    try:
        found = on_ranks(3, "fast.py", shared, node, "fill")
    finally:
        subprocess.run(["umount", "-l", node], check=True)
    assert found.stderr.count("saving to the shared folder instead") == 1, found.stderr
    said = json.loads(found.stdout)
    assert said["shared"] > 2 and said["fast"] > 2


@pytest.mark.parametrize("victim", [0, 1])
def test_ranks_are_killed_before_the_copy_is_done(on_ranks: Any, shared: Path, node: Path, victim: int) -> None:
    ended = on_ranks(3, "fast.py", shared, node, "die", victim, check=False, timeout=30)
    assert ended.returncode != 0
    assert [each.step for each in Store(shared).list()] == [1] and left(node) == ["step-000000000002-g0000.h5"]
    on_ranks(2, "fast.py", shared, node, "load", 2)
    assert [each.step for each in Store(shared).list()] == [2, 1] and list(node.iterdir()) == []


def test_ranks_of_several_nodes_save_to_the_shared_folder(on_ranks: Any, shared: Path, node: Path) -> None:
    found = on_ranks(3, "fast.py", shared, node, "nodes")
    assert found.stderr.count("the ranks are on several nodes") == 1
    assert found.stderr.count("is not the same folder for all ranks") == 1


def test_errors_of_the_shared_folder_alone_are_errors(
    shared: Path, node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(shared, fast_dir=node) as store:
        monkeypatch.setattr(dmr.ckpt.save, "describe_space", lambda *_: "full")
        with pytest.raises(StorageError, match="full"):
            store.save(1, items(1))
