"""Files of each version of the format load for ever, with this package and with a reader made from the document."""

from __future__ import annotations

import importlib.util
import json
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from dmr import ckpt
from dmr.ckpt import Indices, Store

GOLDEN = Path(__file__).parent / "golden"
FILES = sorted(GOLDEN.glob("format-*.h5"))


def made() -> ModuleType:
    spec = importlib.util.spec_from_file_location("golden_make", GOLDEN / "make.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MADE = made()


def version(path: Path) -> int:
    if "zstd" in path.name:
        pytest.importorskip("zstandard")
    return int(path.stem.split("-")[1])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_loads(path: Path) -> None:
    expected_content = MADE.content(version(path))
    with Store(path.parent) as store:
        loaded = store.load(path, layouts={"indices": Indices(np.arange(12))})
        assert (loaded.step, loaded.generation, loaded.info) == (77, 0, {"golden": 1})
        for name, whole in expected_content.items():
            found = loaded.array(name)
            expected = whole if name != "boxes" else None
            if expected is None:  # one after the other, as the layout on one rank has them
                (boxes,) = loaded.specs[name].layout.at(1).boxes(whole.shape, 1)
                expected = np.concatenate([whole[box.slices].ravel() for box in boxes])
            assert found.dtype == whole.dtype and found.tobytes() == expected.tobytes(), name
        assert loaded.value("value") == MADE.VALUE
        mesh = loaded.ragged("mesh")
        assert mesh.counts.tolist() == MADE.COUNTS and mesh.values.tolist() == list(range(10))
        dust = loaded.particles("dust", by="id")
        assert dust.ids.tolist() == [0, 1, 2, 3]
        assert dust.columns["x"].tobytes() == MADE.numbers((4, 3), "<f4")[::-1].tobytes()
        assert loaded.per_rank("own").tolist() == [3.75, 3.75]
        assert isinstance(loaded.stream("stream"), np.random.Generator)
        for bits in ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"):
            assert loaded.rng(bits).random() == np.random.Generator(getattr(np.random, bits)(1)).random()
    with ckpt.open(path) as file:
        assert file.verify() == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_reader_made_from_the_document_reads_it(path: Path) -> None:
    """Uses h5py for four datasets, and what docs/format.md says for the rest; nothing of dmr."""
    import h5py
    import xxhash

    with h5py.File(path, "r") as file:
        text = bytes(file["manifest"][()])
        digests = file["digests"][()]
        chunks = file["chunks"][()] if "chunks" in file else np.zeros((0, 4), "<u8")
        sealed = bytes(file["seal"][()].tobytes())
        datasets = {name: data.id.get_offset() for name, data in file["arrays"].items() if data.chunks is None}
    content = text + digests.astype("<u8").tobytes()
    assert xxhash.xxh3_128_digest(len(text).to_bytes(8, "little") + content) == sealed
    manifest = json.loads(text)
    assert manifest["format"] == "dmr-checkpoint" and manifest["version"] == version(path)
    if len(chunks):
        assert xxhash.xxh3_128_hexdigest(chunks.astype("<u8").tobytes()) == manifest["chunks"]
    raw = path.read_bytes()
    expected = MADE.content(version(path))
    number = 0
    for entry in manifest["arrays"]:
        assert entry["first"] == number
        if "filter" in entry:
            pieces = packed_pieces(raw, entry, chunks)
        else:
            data = raw[entry["offset"] : entry["offset"] + entry["bytes"]]
            if entry["bytes"]:
                assert datasets[entry["dataset"]] == entry["offset"]
            size = entry["bytes"] // max(int(np.prod(entry["shape"])), 1) * entry["piece"]
            pieces = [data[begin : begin + size] for begin in range(0, len(data), size or 1)]
        assert len(pieces) == entry["pieces"]
        for piece in pieces:
            assert xxhash.xxh3_64_intdigest(piece) == digests[number]
            number += 1
        if entry["name"] in expected:
            assert b"".join(pieces) == expected[entry["name"]].tobytes(), entry["name"]
    assert number == len(digests)


def packed_pieces(raw: bytes, entry: dict[str, Any], chunks: np.ndarray[Any, Any]) -> list[bytes]:
    import xxhash

    packed, itemsize = entry["filter"], entry["bytes"] // int(np.prod(entry["shape"]))
    whole = itemsize * int(np.prod(packed["chunk"]))
    assert whole == itemsize * entry["piece"]
    pieces = []
    for place in np.ndindex(*(-(-n // each) for n, each in zip(entry["shape"], packed["chunk"], strict=True))):
        offset, count, mask, digest = map(int, chunks[packed["first"] + len(pieces)])
        stored = raw[offset : offset + count]
        assert xxhash.xxh3_64_intdigest(stored) == digest
        if mask == 0:
            if packed["codec"] == "zlib":
                stored = zlib.decompress(stored)
            else:
                import zstandard

                stored = zstandard.ZstdDecompressor().decompress(stored)
            if packed["shuffle"] > 1:
                stored = np.frombuffer(stored, "u1").reshape(packed["shuffle"], -1).T.tobytes()
        assert len(stored) == whole
        ends = zip(place, packed["chunk"], entry["shape"], strict=True)
        size = itemsize * int(np.prod([min(each, n - at * each) for at, each, n in ends]))
        assert not any(stored[size:])
        pieces.append(stored[:size])
    return pieces


@pytest.mark.parametrize("path", [each for each in FILES if "format-2" in each.name], ids=lambda path: path.name)
def test_other_programs_decompress_it(path: Path) -> None:
    import h5py

    if "zstd" in path.name:
        pytest.importorskip("hdf5plugin")
    with h5py.File(path, "r") as file:
        manifest = json.loads(file["manifest"][()])
        compressed = [each for each in manifest["arrays"] if "filter" in each]
        assert len(compressed) > 25
        for entry in compressed:
            if entry["name"] in MADE.content(2):
                found = file["arrays"][entry["dataset"]][()]
                assert found.tobytes() == MADE.content(2)[entry["name"]].tobytes(), entry["name"]


def test_there_is_one_for_today() -> None:
    from dmr.ckpt.storage import manifest

    assert list(GOLDEN.glob(f"format-{manifest.VERSION}-*.h5"))
