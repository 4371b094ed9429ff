"""``dmr ckpt`` and the reader without MPI."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmr import ckpt
from dmr.ckpt import ArrayItem, Block, Box, Damaged, Mismatch, Replicated, RngItem, Store, ValueItem
from dmr.ckpt.transfer import plan

WHOLE = np.random.default_rng(3).random((120, 35, 9))


def dmr(*arguments: object) -> subprocess.CompletedProcess[str]:
    body = (
        f"import sys; sys.argv = ['dmr', *{list(map(str, arguments))!r}]; from dmr.launcher.cli.dmr import main; main()"
    )
    command = [sys.executable, "-c", body]
    return subprocess.run(command, timeout=60, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("checkpoints")
    before, plan.PIECE = plan.PIECE, 4096
    counted = np.array([3.0, np.nan, -1.0])
    with Store(made) as store:
        for step in (1, 2):
            store.save(
                step,
                {
                    "u": ArrayItem(WHOLE, Block(axes=(0, 1)), WHOLE.shape),
                    "when": ArrayItem(np.array(["2024-02-29"], "M8[D]"), Replicated(), (1,)),
                    "c": ArrayItem(counted, Replicated(), (3,)),
                    "k": ValueItem({"a": 1}),
                    "noise": RngItem(np.random.default_rng(1)),
                },
                info={"program": "x"},
            )
    plan.PIECE = before
    return made


@pytest.fixture
def path(folder: Path) -> Path:
    return Store(folder).list()[0].path


@pytest.fixture
def broken(path: Path, tmp_path: Path) -> Path:
    made = tmp_path / path.name
    raw = bytearray(path.read_bytes())
    entry = next(each for each in ckpt.open(path).manifest.arrays if each.name == "u")
    raw[entry.offset + 4096 * 3 + 17] ^= 4
    made.write_bytes(raw)
    return made


def test_open_maps_names_to_arrays(path: Path) -> None:
    with ckpt.open(path) as file:
        assert list(file) == ["c", "u", "when"] and len(file) == 3
        assert (file["u"][5:7, ::2] == WHOLE[5:7, ::2]).all() and not file["u"].flags.writeable
        assert file["when"][0] == np.datetime64("2024-02-29")
        assert file.value("k") == {"a": 1} and file.info == {"program": "x"} and file.step == 2
        assert file.rng("noise").random() == np.random.default_rng(1).random()
        assert {name: spec.kind for name, spec in file.specs.items()} == {
            "c": "array", "u": "array", "when": "array", "k": "value", "noise": "rng"
        }  # fmt: skip
        assert file.verify() == []
        with pytest.raises(Mismatch, match="no array 'w'"):
            file["w"]


def test_a_box_is_read_and_nothing_else(path: Path) -> None:
    with ckpt.open(path) as file:
        assert (file.read("u", Box((0, 3, 0), (2, 5, 9))) == WHOLE[:2, 3:5]).all()
        assert file.read("u", Box((0, 35, 0), (120, 35, 9))).shape == (120, 0, 9)
        with pytest.raises(TypeError, match=r"is no box: write Box\(\(0, 0\), \(2, 2\)\).*file\['u'\]\[0:2\]"):
            file.read("u", ((0, 0, 0), (2, 2, 2)))  # type: ignore[arg-type]
        for lo, hi in (((0, 0), (2, 2)), ((0, 0, 0), (121, 1, 1)), ((-1, 0, 0), (1, 1, 1)), ((3, 0, 0), (1, 1, 1))):
            with pytest.raises(Mismatch, match="does not lie in the array 'u' of shape"):
                file.read("u", Box(lo, hi))


@pytest.mark.parametrize("layout", ["block", Block, None, 0])
def test_what_is_no_layout_is_told_what_one_is(folder: Path, tmp_path: Path, layout: Any) -> None:
    from dmr.arrays import Array
    from dmr.errors import Error

    with Store(tmp_path) as store, pytest.raises(Mismatch, match=r"array 'u': .* is no layout.*layout=Block\(axis=0\)"):
        store.save(1, {"u": ArrayItem(WHOLE, layout, WHOLE.shape)})
    with pytest.raises(Error, match=r"array 'u': .* is no layout.*Replicated\(\)"):
        Array("u", (3, 4), np.dtype("f8"), layout, 0, 1)
    if layout is not None:
        with Store(folder) as store, pytest.raises(Mismatch, match="is no layout"):
            loaded = store.load_newest()
            assert loaded is not None
            loaded.array("u", layout)


@pytest.mark.parametrize("locking", [True, False])
def test_a_file_that_this_process_has_open_otherwise_can_be_read(path: Path, locking: bool) -> None:
    """HDF5 refuses to open a file twice with different settings for locks, which is no damage."""
    import h5py

    with h5py.File(path, "r", locking=locking) as other, ckpt.open(path) as file:
        assert (file.read("u") == other["arrays/u"][...]).all()
        assert file.verify() == []
    with ckpt.open(path) as file, h5py.File(path, "r", locking=locking) as other:
        assert (file["u"] == other["arrays/u"][...]).all()


bounds = [st.tuples(st.integers(0, n), st.integers(0, n)).map(sorted) for n in WHOLE.shape]


@given(st.tuples(*bounds))
@settings(max_examples=50, deadline=None)
def test_read_returns_any_box(folder: Path, each: tuple[list[int], ...]) -> None:
    box = Box(tuple(low for low, _ in each), tuple(high for _, high in each))
    with ckpt.open(Store(folder).list()[0].path) as file:
        assert (file.read("u", box) == WHOLE[box.slices]).all()


def test_read_verifies_what_it_returns(broken: Path) -> None:
    with ckpt.open(broken) as file:
        rows = plan.elements_per_piece(8)
        assert rows > 512  # pieces of the file are smaller than today's
        assert (file.read("u", Box((0, 0, 0), (4, 35, 9))) == WHOLE[:4]).all()
        with pytest.raises(Damaged, match="elements 1536 to 2047"):
            file.read("u")
        (problem,) = file.verify()
        assert problem.array == "u" and "elements 1536 to 2047" in problem.text


def test_verify_looks_at_the_structure_too(path: Path, tmp_path: Path) -> None:
    import h5py

    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    with h5py.File(copy, "r+") as file:
        file.move("arrays/c", "arrays/d")
    with ckpt.open(copy) as file:
        assert "dataset of array 'c' can't be read" in file.verify()[0].text


def test_ls(folder: Path) -> None:
    out = dmr("ckpt", "ls", folder).stdout.splitlines()
    assert out[0].split()[:3] == ["STEP", "GEN", "SIZE"] and [line.split()[0] for line in out[1:]] == ["2", "1"]
    found = json.loads(dmr("ckpt", "ls", folder, "--json").stdout)
    assert [each["step"] for each in found] == [2, 1]


def test_show(folder: Path) -> None:
    out = dmr("ckpt", "show", folder, "--stats").stdout
    assert "step 2, generation 0, written by 1 rank," in out and "120×35×9" in out and "block(axes=[0, 1])" in out
    found = json.loads(dmr("ckpt", "show", folder, "--step", 1, "--stats", "--json").stdout)
    assert found["step"] == 1 and found["info"] == {"program": "x"} and found["generators"] == {"noise": "PCG64"}
    assert found["arrays"][0]["stats"] == {"min": -1.0, "max": 3.0, "mean": 1.0, "nan": 1}


def test_verify(path: Path, broken: Path) -> None:
    good = dmr("ckpt", "verify", path)
    assert good.returncode == 0 and "good" in good.stdout
    bad = dmr("ckpt", "verify", broken.parent)
    assert bad.returncode == 1 and "BAD" in bad.stdout and "array 'u' is damaged" in bad.stdout
    assert "bad: array 'u' is damaged" in dmr("ckpt", "ls", broken.parent).stdout
    broken.write_bytes(path.read_bytes())
    (report,) = json.loads(dmr("ckpt", "verify", broken, "--json").stdout)
    assert report["good"] and report["problems"] == []
    assert "not known bad" in dmr("ckpt", "ls", broken.parent).stdout


def test_a_file_is_no_folder(tmp_path: Path, path: Path) -> None:
    script = tmp_path / "first.py"
    script.write_text("print()\n")
    for words in (("ls",), ("prune", "--keep", 1)):
        found = dmr("ckpt", words[0], script, *words[1:])
        assert found.returncode == 1 and "first.py is a file" in found.stderr, found
    assert path.name in dmr("ckpt", "ls", path).stdout
    assert dmr("ckpt", "show", script).returncode == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "{folder}", "--step", "9"], "no checkpoint of step 9 in"),
        (["show", "/nowhere/at/all"], "/nowhere/at/all"),
        (["show", "{folder}/notes.txt"], "no HDF5 file"),
        (["verify", "{folder}", "--step", "9"], "no checkpoint of step 9"),
    ],
)
def test_mistakes_are_one_line(folder: Path, arguments: list[str], said: str) -> None:
    (folder / "notes.txt").write_text("nothing")
    found = dmr("ckpt", *(each.replace("{folder}", str(folder)) for each in arguments))
    assert found.returncode != 0 and said in found.stderr and len(found.stderr.splitlines()) == 1
