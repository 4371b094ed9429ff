"""``dmr ckpt diff``, ``export``, ``import``, ``prune`` and ``convert``."""

from __future__ import annotations

import json
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
    Mismatch,
    ParticlesItem,
    PerRankItem,
    RaggedItem,
    Replicated,
    RngItem,
    Store,
    Unsupported,
    ValueItem,
)
from dmr.ckpt.tools.compare import differences
from dmr.ckpt.tools.export import export
from dmr.ckpt.tools.transform import convert
from dmr.ckpt.transfer import plan

WHOLE = np.random.default_rng(3).random((200, 31))
STRUCT = np.zeros(5, np.dtype([("a", "i1"), ("b", "f8")], align=True))
STRUCT.view(np.uint8)[:] = np.arange(STRUCT.nbytes)


def dmr(*arguments: object) -> subprocess.CompletedProcess[str]:
    body = (
        f"import sys; sys.argv = ['dmr', *{list(map(str, arguments))!r}]; from dmr.launcher.cli.dmr import main; main()"
    )
    return subprocess.run([sys.executable, "-c", body], timeout=60, capture_output=True, text=True, check=False)


def state(**changed: Any) -> dict[str, Any]:
    return {
        "u": ArrayItem(WHOLE, Block(axes=(0, 1)), WHOLE.shape),
        "a/b": ArrayItem(np.arange(7), Block(), (7,)),
        "s": ArrayItem(STRUCT, Replicated(), (5,)),
        "t": ArrayItem(np.array(["é", "abc"]), Replicated(), (2,)),
        "none": ArrayItem(np.zeros((0, 3)), Block(), (0, 3)),
        "k": ValueItem({"n": 1}),
        "noise": RngItem(np.random.default_rng(1)),
        "dust": ParticlesItem(np.arange(4), {"x": np.ones((4, 3))}),
        "mesh": RaggedItem(np.array([1, 0, 2]), np.arange(3.0)),
        "own": PerRankItem(np.array(2.5), "sum"),
        **changed,
    }


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PIECE", 4096)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Store(tmp_path / "checkpoints", keep=9) as store:
        for step in (1, 2):
            store.save(step, state(), info={"p": 1})
    return tmp_path / "checkpoints"


@pytest.fixture
def path(folder: Path) -> Path:
    return Store(folder).list()[0].path


def test_diff_finds_nothing_in_the_same_content(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PIECE", 8192)  # other pieces, same content
    with Store(tmp_path / "other") as store:
        other = store.save(2, state(u=ArrayItem(WHOLE, Replicated(), WHOLE.shape)), info={"p": 1}).path
    with ckpt.open(path) as one, ckpt.open(other) as two:
        assert differences(one, two) == []
    assert dmr("ckpt", "diff", path, other).returncode == 0


def test_diff_names_what_differs(path: Path, tmp_path: Path) -> None:
    moved = WHOLE.copy()
    moved[150, 7] += 0.25
    moved[150, 9] -= 0.5
    changes = {
        "u": ArrayItem(moved, Block(), WHOLE.shape),
        "a/b": ArrayItem(np.arange(8), Block(), (8,)),
        "k": ValueItem({"n": 2}),
        "noise": RngItem(np.random.default_rng(2)),
        "new": ValueItem(1),
    }
    with Store(tmp_path / "other") as store:
        other = store.save(3, state(**changes)).path
    with ckpt.open(path) as one, ckpt.open(other) as two:
        found = {each.name: each for each in differences(one, two)}
    assert found["u"].elements == 2 and found["u"].first == (150, 7) and found["u"].largest == pytest.approx(0.5)
    assert found["a/b"].text == "int64 (7,) and int64 (8,)"
    assert found["k"].text == "{'n': 1} and {'n': 2}" and found["noise"].text == "other state"
    assert "only in" in found["new"].text and set(found) == {"u", "a/b", "k", "noise", "new", ""}
    said = dmr("ckpt", "diff", path, other)
    assert said.returncode == 1 and "u: 2 of 6200 elements differ, the first at (150, 7), by at most 0.5" in said.stdout
    assert json.loads(dmr("ckpt", "diff", path, other, "--json").stdout)["same"] is False


def test_export_to_each_kind_of_file(path: Path, tmp_path: Path) -> None:
    import h5py

    assert dmr("ckpt", "export", path, tmp_path / "u.npy", "--array", "u").returncode == 0
    assert np.load(tmp_path / "u.npy").tobytes() == WHOLE.tobytes()
    assert dmr("ckpt", "export", path, tmp_path / "all.npz").returncode == 0
    with np.load(tmp_path / "all.npz") as file:
        assert set(file.files) == {
            "u", "a/b", "s", "t", "none", "dust:id", "dust:x", "mesh:offsets", "mesh:values", "own:parts"
        }  # fmt: skip
        assert (file["t"] == ["é", "abc"]).all() and file["none"].shape == (0, 3)
    assert dmr("ckpt", "export", path.parent, tmp_path / "all.h5", "--step", "1").returncode == 0
    with h5py.File(tmp_path / "all.h5") as file:
        assert (file["u"][()] == WHOLE).all() and file["a%2Fb"].shape == (7,) and file.attrs["step"] == 1
    out = json.loads(dmr("ckpt", "export", path, str(tmp_path / "plain") + "/", "--json").stdout)
    assert len(out) == 11
    assert np.load(tmp_path / "plain" / "s.npy").tobytes() == STRUCT.tobytes()
    assert json.loads((tmp_path / "plain" / "values.json").read_text()) == {"k": {"n": 1}}


def test_export_refuses_in_one_line(path: Path, tmp_path: Path) -> None:
    (tmp_path / "there.npy").write_text("mine")
    for arguments, said in [
        ([tmp_path / "x.npy"], "takes one array"),
        ([tmp_path / "x.npy", "--array", "w"], "holds no array 'w'"),
        ([tmp_path / "there.npy", "--array", "u"], "it exists already"),
        ([tmp_path / "x.txt"], "write to .npy, .npz, .h5 or a folder"),
    ]:
        found = dmr("ckpt", "export", path, *arguments)
        assert found.returncode == 1 and said in found.stderr and len(found.stderr.splitlines()) == 1
    assert (tmp_path / "there.npy").read_text() == "mine"


def test_import_makes_a_first_checkpoint(tmp_path: Path) -> None:
    import h5py

    np.save(tmp_path / "u.npy", WHOLE)
    np.savez(tmp_path / "more.npz", v=np.arange(5), w=np.array(3.5))
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["group/x"] = np.ones((2, 2))
    files = [tmp_path / "u.npy", tmp_path / "more.npz", tmp_path / "f.h5"]
    found = dmr(
        "ckpt", "import", *files, "--to", tmp_path / "c", "--layout", "u=block:0,1", "--value", "time=12.5", "--step", 7
    )
    assert found.returncode == 0, found.stderr
    with Store(tmp_path / "c") as store:
        loaded = store.load_newest()
        assert loaded is not None and loaded.step == 7 and loaded.value("time") == 12.5
        assert loaded.specs["u"].layout == Block(axes=(0, 1)) and loaded.specs["w"].layout == Replicated()
        assert (loaded.array("u") == WHOLE).all() and (loaded.array("group/x") == 1).all() and loaded.array("w") == 3.5
    np.save(tmp_path / "o.npy", np.array([{}]), allow_pickle=True)
    for arguments, said in [
        ([tmp_path / "o.npy"], "Python objects"),
        ([tmp_path / "u.npy", "--layout", "v=block"], "no array 'v'; the files hold 'u'"),
        ([tmp_path / "u.npy", "--layout", "u=rows"], "'rows' is no layout"),
        ([tmp_path / "u.npy", "--value", "x=abc"], "is no JSON"),
    ]:
        found = dmr("ckpt", "import", *arguments, "--to", tmp_path / "d")
        assert found.returncode == 1 and said in found.stderr and len(found.stderr.splitlines()) == 1
    assert not (tmp_path / "d").exists()


def test_prune(tmp_path: Path) -> None:
    with Store(tmp_path, keep=99) as store:
        for step in (10, 20, 30, 40, 50):
            store.save(step, {"x": ValueItem(step)})
    (tmp_path / ".fenced-0001-abcd").mkdir()
    would = dmr("ckpt", "prune", tmp_path, "--keep", "1", "--keep-every-steps", "20", "--dry-run", "--stale", "--json")
    assert [Path(each).name[15:17] for each in json.loads(would.stdout)["removed"]] == ["30"]
    assert len(Store(tmp_path).list()) == 5 and (tmp_path / ".fenced-0001-abcd").exists()
    assert dmr("ckpt", "prune", tmp_path, "--keep", "1", "--keep-every-steps", "20", "--stale").returncode == 0
    assert [each.step for each in Store(tmp_path).list()] == [50, 40, 20, 10]
    assert not (tmp_path / ".fenced-0001-abcd").exists()
    assert dmr("ckpt", "prune", tmp_path).returncode == 2


def test_convert_changes_types_and_layouts_and_nothing_else(path: Path, tmp_path: Path) -> None:
    found = dmr("ckpt", "convert", path, "--to", tmp_path / "c", "--dtype", "u=float32", "--layout", "a/b=replicated")
    assert found.returncode == 0, found.stderr
    (made,) = Store(tmp_path / "c").list()
    with ckpt.open(path) as one, ckpt.open(made.path) as two:
        assert [(each.name, each.text) for each in differences(one, two)] == [
            ("u", "float64 (200, 31) and float32 (200, 31)")
        ]
        assert two.verify() == [] and two.specs["a/b"].layout == Replicated()
    with Store(tmp_path / "c") as store:
        loaded = store.load_newest()
        assert loaded is not None and (loaded.array("u") == WHOLE.astype("f4")).all()
        assert loaded.particles("dust").ids.tolist() == [0, 1, 2, 3] and loaded.per_rank("own") == 2.5
        assert loaded.ragged("mesh").counts.tolist() == [1, 0, 2]
    assert list((tmp_path / "c").glob(".*")) == []
    with ckpt.open(path) as file:
        with pytest.raises(Mismatch, match="would not keep its values"):
            convert(file, tmp_path / "d", {"u": np.dtype("i4")})
        convert(file, tmp_path / "d", {"u": np.dtype("i4")}, unsafe=True)
    said = dmr("ckpt", "convert", path, "--to", path.parent, "--dtype", "u=f4")
    assert said.returncode == 1 and "name another folder" in said.stderr
    assert "'f3' is no dtype" in dmr("ckpt", "convert", path, "--to", tmp_path / "e", "--dtype", "u=f3").stderr


def test_damage_does_not_go_on(path: Path, tmp_path: Path) -> None:
    with ckpt.open(path) as file:
        at = next(each for each in file.manifest.arrays if each.name == "u").offset + 20_000
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)
    with ckpt.open(path) as file, pytest.raises(ckpt.Damaged, match="array 'u' is damaged"):
        export(file, tmp_path / "u.npy", ["u"])
    for command in (["export", path, tmp_path / "x.npz"], ["convert", path, "--to", tmp_path / "c"]):
        found = dmr("ckpt", *command)
        assert found.returncode == 1 and "array 'u' is damaged" in found.stderr
    assert Store(tmp_path / "c").list() == []


def test_what_is_there_is_not_replaced_unless_told_to(path: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "u.npy", WHOLE)
    first = ["ckpt", "import", tmp_path / "u.npy", "--to", tmp_path / "c"]
    assert dmr(*first).returncode == 0
    before = next((tmp_path / "c").glob("step-*.h5")).read_bytes()
    np.save(tmp_path / "u.npy", WHOLE[:3])
    again = dmr(*first)
    assert again.returncode == 1 and "exists already" in again.stderr and "--force" in again.stderr
    assert next((tmp_path / "c").glob("step-*.h5")).read_bytes() == before
    assert dmr(*first, "--force").returncode == 0
    with ckpt.open(next((tmp_path / "c").glob("step-*.h5"))) as file:
        assert file["u"].shape == (3, 31)
    convert_it = ["ckpt", "convert", path, "--to", tmp_path / "d"]
    ends = [dmr(*convert_it, *more).returncode for more in ([], [], ["--force"])]
    assert ends == [0, 1, 0]


def test_files_that_can_not_be_imported_are_told_in_a_line(tmp_path: Path) -> None:
    import zipfile

    import h5py

    np.savez(tmp_path / "cut.npz", a=np.ones(3))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "cut.npz").read_bytes()[:-30])
    with zipfile.ZipFile(tmp_path / "text.npz", "w") as file:
        file.writestr("readme.txt", "hi")
    with h5py.File(tmp_path / "huge.h5", "w") as made:
        made.create_dataset("x", (10**13,), "f8", chunks=(1000,))
    with h5py.File(tmp_path / "null.h5", "w") as made:
        made["x"] = h5py.Empty("f8")
    (tmp_path / "empty.npy").touch()
    (tmp_path / "no.h5").write_text("text")
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    for name, said in (
        ("cut.npz", "can't be read"), ("text.npz", "'readme.txt' is no array"), ("huge.h5", "no memory"),
        ("null.h5", "without a shape"), ("empty.npy", "is empty"), ("no.h5", "can't be read"),
        ("objects.npy", "Python objects"),
    ):  # fmt: skip
        found = dmr("ckpt", "import", tmp_path / name, "--to", tmp_path / "c")
        assert found.returncode == 1 and said in found.stderr and found.stderr.count("\n") == 1, found.stderr


@pytest.mark.parametrize("name", ["n\0a", "n\ud800"])
def test_names_that_an_archive_would_cut_are_refused(tmp_path: Path, name: str) -> None:
    with Store(tmp_path / "c") as store:
        path = store.save(1, {name: ArrayItem(WHOLE, Block(), WHOLE.shape)}).path
    with ckpt.open(path) as file:
        with pytest.raises(Unsupported, match="can't have its name"):
            export(file, tmp_path / "all.npz")
        assert not list(tmp_path.glob("*npz*"))
        (written,) = export(file, tmp_path / "plain")
        assert (np.load(written) == WHOLE).all()
