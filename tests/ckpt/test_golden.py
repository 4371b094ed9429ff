"""Files of each version of the format load for ever, with this package and with a reader made from the document."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

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


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_loads(path: Path) -> None:
    with Store(path.parent) as store:
        loaded = store.load(path, layouts={"indices": Indices(np.arange(12))})
        assert (loaded.step, loaded.generation, loaded.info) == (77, 0, {"golden": 1})
        for name, whole in MADE.content().items():
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
    """Uses h5py for three datasets, and what docs/format.md says for the rest; nothing of dmr."""
    import h5py
    import xxhash

    with h5py.File(path, "r") as file:
        text = bytes(file["manifest"][()])
        digests = file["digests"][()]
        sealed = bytes(file["seal"][()].tobytes())
        datasets = {name: (data.id.get_offset(), data.shape) for name, data in file["arrays"].items()}
    assert xxhash.xxh3_128_digest(len(text).to_bytes(8, "little") + text + digests.astype("<u8").tobytes()) == sealed
    manifest = json.loads(text)
    assert manifest["format"] == "dmr-checkpoint" and manifest["version"] == 1
    raw = path.read_bytes()
    expected = MADE.content()
    number = 0
    for entry in manifest["arrays"]:
        data = raw[entry["offset"] : entry["offset"] + entry["bytes"]]
        if entry["bytes"]:
            assert datasets[entry["dataset"]][0] == entry["offset"]
        size = entry["bytes"] // max(int(np.prod(entry["shape"])), 1) * entry["piece"]
        assert entry["first"] == number
        for begin in range(0, len(data), size or 1):
            assert xxhash.xxh3_64_intdigest(data[begin : begin + size]) == digests[number]
            number += 1
        if entry["name"] in expected:
            assert data == expected[entry["name"]].tobytes()
    assert number == len(digests)


def test_there_is_one_for_today() -> None:
    from dmr.ckpt import manifest

    assert GOLDEN / f"format-{manifest.VERSION}.h5" in FILES
