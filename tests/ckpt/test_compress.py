"""Compression: what is kept small comes back to the bit, HDF5 itself reads it, and what is damaged is found."""

from __future__ import annotations

import copy
import fcntl
import json
import math
import operator
import os
import random
import subprocess
import sys
import tracemalloc
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmr import ckpt
from dmr.ckpt import ArrayItem, Block, Damaged, Replicated, StorageError, Store, UnknownVersion, Unsupported, ValueItem
from dmr.ckpt.storage import filters
from dmr.ckpt.storage.chunks import check_table, empty_table
from dmr.ckpt.storage.codec import Codec, decompress, parse, shuffle, unshuffle
from dmr.ckpt.storage.compressed import CompressedArray
from dmr.ckpt.storage.filters import Filter, choose
from dmr.ckpt.storage.h5file import read_content
from dmr.ckpt.transfer import plan
from dmr.ckpt.transfer.pieces import Pieces
from dmr.errors import Error
from dmr.settings import settings as chosen_settings


def have(name: str) -> bool:
    try:
        __import__(name)
    except ImportError:
        return False
    return True


CODECS = ["zlib", *(["zstd"] if have("zstandard") else [])]
GRID = np.sin(np.linspace(0, 9, 300))[:, None] * np.linspace(1, 2, 70).round(3)
CUBE = np.arange(3 * 50 * 90, dtype="i4").reshape(3, 50, 90) // 11
NOISE = np.random.default_rng(1).integers(0, 256, 30_001, np.uint8)


def state(shift: float = 0) -> dict[str, Any]:
    return {
        "grid": ArrayItem(GRID + shift, Block(axes=(0, 1)), GRID.shape),
        "cube": ArrayItem(CUBE, Block(axis=1), CUBE.shape),
        "noise": ArrayItem(NOISE, Replicated(), NOISE.shape),
        "few": ArrayItem(np.arange(5.0), Block(), (5,)),
        "none": ArrayItem(np.zeros((0, 4)), Block(), (0, 4)),
        "scalar": ArrayItem(np.array(3.5), Replicated(), ()),
        "k": ValueItem({"a": 1}),
    }


def check(loaded: Any, shift: float = 0) -> None:
    for name, item in state(shift).items():
        if isinstance(item, ArrayItem):
            found = loaded.array(name)
            assert found.dtype == item.local.dtype and found.tobytes() == item.local.tobytes(), name


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PIECE", 4096)


@pytest.fixture(params=CODECS)
def codec(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# -- there and back


def test_there_and_back(tmp_path: Path, codec: str) -> None:
    with Store(tmp_path, compress=codec) as store:
        saved = store.save(4, state())
        assert saved.bytes == saved.path.stat().st_size < saved.raw_bytes and saved.compress_seconds > 0
        loaded = store.load_newest()
        assert loaded is not None and loaded.raw_bytes == saved.raw_bytes
        check(loaded)
        with ckpt.open(saved.path) as file:
            assert file.verify() == [] and file.manifest.version == 2
            assert loaded.read_bytes == sum(map(file.stored_bytes, file))
            packed = {each.name for each in file.manifest.arrays if each.filter is not None}
            assert packed == {"grid", "cube", "noise"}
            assert file.stored_bytes("noise") > NOISE.nbytes, "what does not get smaller is kept as it is, and padded"
            assert file.stored_bytes("cube") < CUBE.nbytes / 4


def test_hdf5_alone_reads_it(tmp_path: Path, codec: str) -> None:
    import h5py

    if codec == "zstd":
        pytest.importorskip("hdf5plugin")
    with Store(tmp_path, compress=codec) as store:
        path = store.save(1, state()).path
    with h5py.File(path, "r") as file:
        assert file["arrays/grid"].chunks is not None and file["arrays/few"].chunks is None
        for name, item in state().items():
            if isinstance(item, ArrayItem):
                assert file[f"arrays/{name}"][()].tobytes() == item.local.tobytes(), name
        assert (file["arrays/cube"][1, 7:31, ::5] == CUBE[1, 7:31, ::5]).all()


def test_nothing_to_compress_is_a_file_of_version_1(tmp_path: Path, codec: str) -> None:
    items = {name: state()[name] for name in ("few", "none", "scalar", "k")}
    with Store(tmp_path / "a", compress=codec) as one, Store(tmp_path / "b") as other:
        assert one.save(1, items).path.read_bytes() == other.save(1, items).path.read_bytes()


def test_a_file_that_is_not_kept_is_written_over(tmp_path: Path, codec: str) -> None:
    store, fresh = Store(tmp_path / "a", compress=codec, keep=1), Store(tmp_path / "b", compress=codec, recycle=False)
    small = {"grid": ArrayItem(np.ones(7000), Block(), (7000,))}
    inodes = []
    for step, items in enumerate([state(), state(0.1), small, state(0.2), small, state(0.3)]):
        path = store.save(step, items).path
        inodes.append(path.stat().st_ino)
        assert path.read_bytes() == fresh.save(step, items).path.read_bytes(), "nothing of the old content is left"
    assert len(set(inodes)) == 2


def test_in_the_background_and_in_two_levels(tmp_path: Path, codec: str) -> None:
    node = tmp_path / "node"
    node.mkdir(mode=0o700)
    with Store(tmp_path / "shared", fast_dir=node, compress=codec) as store:
        saved = store.save(1, state())
        assert saved.path.parent == store.fast
        store.save_later(2, state(0.5))
        assert store.wait() is not None
        drained = store.drained
        assert drained is not None and drained.raw_bytes > drained.bytes and drained.path.parent == store.folder
        check(store.load_newest(), 0.5)
    with Store(tmp_path / "shared") as store:
        check(store.load_newest(), 0.5)


def test_threads_make_the_same_file(tmp_path: Path, codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = []
    for threads in (1, 3):
        monkeypatch.setattr(os, "sched_getaffinity", lambda process, threads=threads: set(range(threads)))
        with Store(tmp_path / str(threads), compress=codec) as store:
            files.append(store.save(1, state()).path.read_bytes())
            check(store.load_newest())
    assert files[0] == files[1]


def test_a_disk_that_is_too_small_for_what_is_left_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Small:
        f_bavail, f_frsize = 10, 4096

    monkeypatch.setattr(os, "statvfs", lambda path: Small)
    with Store(tmp_path, compress="zlib") as store:
        assert store.save(1, {"cube": state()["cube"]}).raw_bytes > 10 * 4096
        with pytest.raises(StorageError, match="the checkpoint needs 1 MiB"):
            store.save(1, state())


# -- looking into a file


@pytest.fixture(scope="module")
def cube(tmp_path_factory: pytest.TempPathFactory) -> Path:
    before, plan.PIECE = plan.PIECE, 4096
    with Store(tmp_path_factory.mktemp("cube"), compress="zlib") as store:
        path = store.save(1, state()).path
    plan.PIECE = before
    return path


def one_index(extent: int) -> st.SearchStrategy[Any]:
    bound = st.none() | st.integers(-extent - 2, extent + 2)
    step = st.none() | st.integers(-4, 4).filter(bool)
    return st.integers(-extent, extent - 1) | st.builds(slice, bound, bound, step)


indices = st.tuples(*map(one_index, CUBE.shape)).flatmap(
    lambda full: st.sampled_from(
        [full, full[:1], full[:2], (..., full[2]), (full[0], ..., full[2]), (None, *full), (full[0], None, ...)]
        + [full[0]]
    )
)


@given(indices)
@settings(max_examples=150, deadline=None)
def test_any_index_of_an_array_that_is_not_in_memory(cube: Path, index: Any) -> None:
    with ckpt.open(cube) as file:
        found, expected = file["cube"][index], CUBE[index]
        assert np.shape(found) == np.shape(expected) and (found == expected).all()


def test_only_the_pieces_that_are_looked_at_are_read(cube: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ckpt.open(cube) as file:
        array = file["cube"]
        assert (
            isinstance(array, CompressedArray) and array.nbytes == CUBE.nbytes and array.ndim == 3 and len(array) == 3
        )
        read = []
        original = os.preadv
        monkeypatch.setattr(os, "preadv", lambda *args: read.append(args) or original(*args))
        assert (array[1, 20] == CUBE[1, 20]).all() and (array[1, 21] == CUBE[1, 21]).all()
        assert len(read) == 1, "both are of one piece, and that is kept"
        with pytest.raises(IndexError, match="out of bounds for axis 1"):
            array[0, 50]
        assert len(read) == 1
        assert (array - 1 == CUBE - 1).all() and array.sum() == CUBE.sum() and (array[[2, 0]] == CUBE[[2, 0]]).all()
        assert (np.asarray(array) == CUBE).all() and (array[array > 5] == CUBE[CUBE > 5]).all()


def test_names_of_others_read_nothing(cube: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ckpt.open(cube) as file:
        array = file["cube"]
        with monkeypatch.context() as patch:
            patch.setattr(os, "preadv", lambda *of: pytest.fail("it was read"))
            for name in ("_repr_html_", "_ipython_display_", "__dataframe__", "chunks", "to_numpy", "values", "_last"):
                assert not hasattr(array, name), name
            assert array.size == CUBE.size and "compressed array" in repr(array)
        assert (array.T == CUBE.T).all() and array.max() == CUBE.max() and array.tolist() == CUBE.tolist()


def test_it_is_read_only_and_copies_are_not(cube: Path) -> None:
    with ckpt.open(cube) as file:
        array: Any = file["cube"]
        for made in (np.array(array), np.array(array, copy=True), np.array(array, "f8"), copy.deepcopy(array)):
            made += 1
            assert (made == CUBE + 1).all()
        assert not np.asarray(array).flags.writeable and np.asarray(array, "f4").dtype == "f4"
        for wrong in (lambda: np.add(CUBE, 1, out=array), lambda: operator.iadd(array, 1), lambda: CUBE.sum(out=array)):
            with pytest.raises((ValueError, TypeError), match="read only|return arrays must be"):
                wrong()
        with pytest.raises(ValueError, match="read-only"):
            array.fill(0)
        with pytest.raises(TypeError):
            array[0] = 0
        kept = np.add(CUBE, 1, where=array > 3, out=np.zeros_like(CUBE))
        assert (kept == np.where(CUBE > 3, CUBE + 1, 0)).all()
        with pytest.raises(ValueError, match="ambiguous"):
            bool(array)
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        with pytest.raises(ValueError, match="copy"):
            np.array(array, copy=False)


def test_it_outlives_the_file_that_it_is_of(cube: Path, tmp_path: Path) -> None:
    path = tmp_path / cube.name
    path.write_bytes(cube.read_bytes())
    with ckpt.open(path) as file:
        arrays: list[Any] = [file["cube"], file["few"]]
    assert (arrays[0][1, 3:5] == CUBE[1, 3:5]).all() and arrays[1].tolist() == list(range(5))
    with open(path, "r+b") as stream:
        with pytest.raises(BlockingIOError):
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        arrays.clear()
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with pytest.raises(ValueError, match="is closed"):
        file["cube"]
    with pytest.raises(ValueError, match="is closed"):
        file.read("few")


# -- damage


def flip(path: Path, at: int, bit: int = 0) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1 << bit
    path.write_bytes(raw)


def test_a_flipped_bit_is_named_by_place(tmp_path: Path, codec: str) -> None:
    with Store(tmp_path, compress=codec) as store:
        path = store.save(1, state()).path
        content = read_content(path)
        entry = next(each for each in content.manifest.arrays if each.name == "cube")
        assert entry.filter is not None
        flip(path, int(content.chunks[entry.filter.first + 2, 0]) + 9)
        with pytest.raises(Damaged, match="array 'cube' is damaged: elements 1800 to 2699 in C order, comp"):
            store.load(1)
        with ckpt.open(path) as file:
            (problem,) = file.verify()
            assert problem.array == "cube" and (file["cube"][1:] == CUBE[1:]).all()
            with pytest.raises(Damaged):
                file["cube"][0].sum()


def test_every_flip_and_every_cut_is_found(tmp_path: Path, codec: str) -> None:
    """Anywhere in what is stored of the arrays, in the places of the pieces, digests, manifest and seal."""
    import h5py

    dice = random.Random(7)
    path = Store(tmp_path, compress=codec).save(1, {name: state()[name] for name in ("cube", "few", "noise")}).path
    clean = path.read_bytes()
    content = read_content(path)
    guarded = [(offset, offset + count) for offset, count in content.chunks[:, :2].tolist()]
    with h5py.File(path, "r") as file:
        for data in (file[name] for name in ("chunks", "manifest", "digests", "seal", "arrays/few")):
            guarded.append((data.id.get_offset(), data.id.get_offset() + data.size * data.dtype.itemsize))
    for number in range(300):
        begin, end = dice.choice(guarded[-5:] if number % 3 == 0 else guarded)
        at, bit = dice.randrange(begin, end), dice.randrange(8)
        path.write_bytes(clean)
        flip(path, at, bit)
        # A version that is later by one bit is known before the seal is judged.
        with pytest.raises((Damaged, UnknownVersion)) as found:
            Store(tmp_path).load(1)
        assert found.type is Damaged or b'"version": 2' not in path.read_bytes()
    for _ in range(40):
        path.write_bytes(clean)
        os.truncate(path, dice.randrange(len(clean)))
        with pytest.raises(Damaged):
            Store(tmp_path).load(1)
    path.write_bytes(clean)
    assert Store(tmp_path).load(1).array("cube").tobytes() == CUBE.tobytes()


def test_the_structure_is_compared_with_the_manifest(tmp_path: Path) -> None:
    import h5py

    path = Store(tmp_path, compress="zlib").save(1, state()).path
    with h5py.File(path, "r+") as file:
        # HDF5 puts that piece elsewhere, since it is larger now, and its own structure says so.
        file["arrays/cube"][0, :10] = np.random.default_rng(1).integers(0, 1 << 30, (10, 90))
    with ckpt.open(path) as file:
        (problem,) = file.verify()
        assert "dataset of array 'cube' has" in problem.text
        assert (file.read("cube") == CUBE).all()


@pytest.mark.parametrize(
    ("column", "value"),
    [(0, 1 << 40), (0, (1 << 64) - 1), (1, 0), (1, 4096), (1, 1 << 40), (1, (1 << 64) - 1), (2, 1), (2, 3), (2, 9)],
)
def test_places_that_lie_are_refused_before_anything_is_read(cube: Path, column: int, value: int) -> None:
    content = read_content(cube)
    entry = next(each for each in content.manifest.arrays if each.name == "cube")
    assert entry.filter is not None
    table = content.chunks.copy()
    table[entry.filter.first + 3, column] = value
    with pytest.raises(Damaged, match="array 'cube': the place of piece 3 can't be right"):
        check_table(cube, content.manifest, table, content.size)
    with pytest.raises(Damaged, match="compressed pieces"):
        check_table(cube, content.manifest, empty_table(), content.size)


def test_a_filter_that_lies_is_refused(cube: Path) -> None:
    entry = next(each for each in read_content(cube).manifest.arrays if each.name == "cube")
    good = entry.to_json()
    assert type(entry).from_json(good) == entry
    for key, value in [
        ("chunk", [1, 9]),
        ("chunk", [3, 9, 90]),
        ("chunk", [1, 51, 90]),
        ("chunk", [1, 0, 90]),
        ("shuffle", 8),
    ]:
        with pytest.raises(Damaged):
            type(entry).from_json({**good, "filter": {**good["filter"], key: value}})
    assert type(entry).from_json({**good, "filter": {**good["filter"], "level": -7}}).filter is not None
    with pytest.raises(Unsupported, match="'lzma' is unknown.*update dmr"):
        type(entry).from_json({**good, "filter": {**good["filter"], "codec": "lzma"}})
    huge = replace(entry, shape=(1, 1 << 33)).to_json()
    with pytest.raises(Damaged):
        type(entry).from_json({**huge, "piece": 1 << 33, "filter": {**huge["filter"], "chunk": [1, 1 << 33]}})


def test_a_bomb_takes_no_memory(codec: str) -> None:
    bomb = np.frombuffer(Codec(codec).compress(np.zeros(200 << 20, np.uint8)), np.uint8)  # type: ignore[arg-type]
    tracemalloc.start()
    with pytest.raises(ValueError, match="with 4096 bytes"):
        decompress(codec, bomb, 4096)  # type: ignore[arg-type]
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@given(st.binary(min_size=1, max_size=200), st.integers(0, 300), st.sampled_from(CODECS))
def test_any_bytes_are_decompressed_to_the_size_or_refused(data: bytes, size: int, codec: Any) -> None:
    found = np.frombuffer(Codec(codec).compress(np.frombuffer(data, np.uint8)), np.uint8)
    assert decompress(codec, found, len(data)).tobytes() == data
    for wrong in (np.frombuffer(data, np.uint8), np.append(found, np.uint8(0)), found[:-1]):
        try:
            assert len(decompress(codec, wrong, size)) == size
        except ValueError:
            pass
        else:
            assert wrong is not found[:-1] and len(wrong) != len(found) + 1


# -- pieces


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4).map(tuple), st.sampled_from(["u1", "<f8", "V7", "U3"]))
def test_pieces_are_boxes_and_about_equal(shape: tuple[int, ...], kind: str) -> None:
    dtype = np.dtype(kind)
    found = choose(Codec("zlib"), shape, dtype, 0)
    if math.prod(shape) * dtype.itemsize < filters.SMALLEST:
        assert found is None
        return
    assert found is not None and found.fits(shape, dtype)
    assert found.elements * dtype.itemsize <= plan.PIECE
    pieces = Pieces(math.prod(shape), found.elements, found.row(shape))
    whole = np.arange(math.prod(shape)).reshape(shape)
    for piece in range(len(pieces)):
        lo, hi = pieces.span(piece)
        assert pieces.at(lo) == pieces.at(hi - 1) == piece and 0 < hi - lo <= found.elements
        assert [each.tolist() for each in pieces.spans(np.array([piece]))] == [[lo], [hi]]
        assert len(plan.window(shape, lo, hi)) == 1, "a box"
    spans = [pieces.span(piece) for piece in range(len(pieces))]
    assert spans[-1][1] == whole.size == sum(hi - lo for lo, hi in spans)
    assert pieces.within(0, whole.size) == range(len(pieces)) and not pieces.within(3, 3)


@given(st.integers(1, 70), st.integers(0, 50), st.integers(0, 50))
def test_shuffle_is_that_of_hdf5(unit: int, count: int, kept: int) -> None:
    data = np.random.default_rng(count).integers(0, 256, unit * count, np.uint8)
    found = shuffle(data, unit)
    assert found.tobytes() == data.reshape(-1, unit).T.tobytes()
    into = np.empty(min(kept, count) * unit, np.uint8)
    unshuffle(found, unit, into)
    assert into.tobytes() == data[: len(into)].tobytes()


def test_a_piece_that_is_cut_short_is_padded_and_that_is_checked() -> None:
    made = Filter(Codec("zlib"), 8, (1, 100))
    data = np.arange(60.0).view(np.uint8)
    stored, mask = made.pack(data, 800)
    into = np.empty(480, np.uint8)
    made.unpack(stored, mask, 800, into)
    assert (into == data).all()
    with pytest.raises(ValueError, match="beyond the end"):
        made.unpack(stored, mask, 800, into[:-8])
    with pytest.raises(ValueError, match="with 808 bytes"):
        made.unpack(stored, mask, 808, into)
    raw = np.random.default_rng(1).integers(0, 256, 480, np.uint8)
    stored, mask = Filter(Codec("zlib"), 1, (480,)).pack(raw, 480)
    assert (mask, stored.tobytes()) == (1, raw.tobytes()) and not np.shares_memory(stored, raw)


# -- choosing


def test_what_there_is_and_what_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert parse(None) is parse("none") is None
    assert str(parse("zlib")) == "zlib:1" and str(parse("zlib:9")) == "zlib:9"
    for wrong in ("gzip", "zlib:0", "zlib:10", "zstd:23", "zlib:", "", "zlib:1:2", "ZLIB"):
        with pytest.raises(Unsupported, match="there is no compression"):
            parse(wrong)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(Unsupported, match="pip install zstandard; or use zlib"):
        Store(tmp_path, compress="zstd")


def test_without_the_package_a_file_is_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("zstandard")
    with Store(tmp_path, compress="zstd") as store:
        path = store.save(1, state()).path
        monkeypatch.setitem(sys.modules, "zstandard", None)
        with pytest.raises(Unsupported, match="pip install"):
            store.load_newest()
        assert store.list()[0].bad is None
        with ckpt.open(path) as file:
            assert file.read("few").tolist() == [0, 1, 2, 3, 4]
            with pytest.raises(Unsupported, match="pip install"):
                file.read("cube")


def test_the_launcher_wins_over_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen_settings(compress="zlib:3").compress == "zlib:3"
    monkeypatch.setenv("DMR_COMPRESS", "none")
    assert chosen_settings(compress="zlib:3").compress is None
    monkeypatch.setenv("DMR_COMPRESS", "zlib:30")
    with pytest.raises(Error, match="compress='zlib:30': there is no compression"):
        chosen_settings()


# -- tools


def dmr(*arguments: object) -> subprocess.CompletedProcess[str]:
    body = (
        f"import sys; sys.argv = ['dmr', *{list(map(str, arguments))!r}]; from dmr.launcher.cli.dmr import main; main()"
    )
    command = [sys.executable, "-c", body]
    return subprocess.run(command, timeout=60, capture_output=True, text=True, check=False)


def test_tools(cube: Path, tmp_path: Path) -> None:
    shown = dmr("ckpt", "show", cube, "--stats").stdout
    assert "uncompressed" in shown and "zlib:1" in shown and "STORED" in shown
    found = json.loads(dmr("ckpt", "show", cube, "--json").stdout)
    assert found["raw_bytes"] > found["bytes"] and found["arrays"][0]["compression"] == "zlib:1"
    listed = dmr("ckpt", "ls", cube.parent, "--raw").stdout.splitlines()
    assert listed[0].split()[:4] == ["STEP", "GEN", "SIZE", "RAW"]
    (entry,) = json.loads(dmr("ckpt", "ls", cube.parent, "--raw", "--json").stdout)
    assert entry["raw_bytes"] == found["raw_bytes"]
    assert dmr("ckpt", "verify", cube).returncode == 0

    plain = dmr("ckpt", "convert", cube, "--to", tmp_path / "plain", "--compress", "none", "--json")
    path = Path(json.loads(plain.stdout)["path"])
    with ckpt.open(path) as file:
        assert file.manifest.version == 1 and (file["cube"] == CUBE).all()
    assert "the content is the same" in dmr("ckpt", "diff", path, cube).stdout
    assert "uncompressed" in dmr("ckpt", "convert", path, "--to", tmp_path / "small", "--compress", "zlib:9").stdout
    again = next((tmp_path / "small").glob("*.h5"))
    assert "the content is the same" in dmr("ckpt", "diff", again, cube).stdout
    kept = dmr("ckpt", "convert", again, "--to", tmp_path / "kept", "--dtype", "grid=float32", "--json")
    with ckpt.open(json.loads(kept.stdout)["path"]) as file:
        filters_kept = {each.name: each.filter and str(each.filter.codec) for each in file.manifest.arrays}
        assert filters_kept["grid"] == filters_kept["cube"] == "zlib:9" and filters_kept["few"] is None
        assert (file.read("grid") == GRID.astype("f4")).all()
    assert dmr("ckpt", "export", cube, tmp_path / "cube.npy", "--array", "cube").returncode == 0
    assert (np.load(tmp_path / "cube.npy") == CUBE).all()
    wrong = dmr("ckpt", "convert", cube, "--to", tmp_path / "x", "--compress", "lzma")
    assert wrong.returncode != 0 and "there is no compression 'lzma'" in wrong.stderr


def test_verify_without_the_package_judges_nothing(tmp_path: Path) -> None:
    pytest.importorskip("zstandard")
    with Store(tmp_path, compress="zstd") as store:
        path = store.save(1, state()).path
    body = (
        f"import sys; sys.modules['zstandard'] = None; sys.argv = ['dmr', 'ckpt', 'verify', {str(path)!r}]; "
        "from dmr.launcher.cli.dmr import main; main()"
    )
    found = subprocess.run([sys.executable, "-c", body], timeout=60, capture_output=True, text=True, check=False)
    assert found.returncode == 1 and "can't be checked" in found.stdout and "pip install zstandard" in found.stdout
    assert Store(tmp_path).list()[0].bad is None


def test_other_tools_decompress_what_was_compressed_here() -> None:
    data = np.arange(1000.0).view(np.uint8)
    assert zlib.decompress(Codec("zlib", 6).compress(data)) == data.tobytes()


# -- on ranks


def test_any_array_from_any_number_of_ranks_to_any_other(on_ranks: Any, tmp_path: Path) -> None:
    import h5py

    drivers = "direct,mpio" if h5py.get_config().mpi or "yes" in on_ranks(1, "has_mpio.py").stdout else "direct"
    out = json.loads(on_ranks(4, "compress.py", tmp_path, 16, ",".join(CODECS), drivers, timeout=120).stdout)
    assert out == {"arrays": 112, "rounds": 16}
