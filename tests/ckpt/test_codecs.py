"""Values, generators and dtypes: there and back without loss, and nothing else."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmr.ckpt import Damaged, Unsupported
from dmr.ckpt.state import dtypes, rng, values
from dmr.ckpt.storage.h5file import dataset_name
from dmr.ckpt.storage.manifest import Manifest

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.lists(inner).map(tuple),
    max_leaves=20,
)


def same(one: object, other: object) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, float) and isinstance(other, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other) or (one != one and other != other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))  # type: ignore[arg-type]
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return one == other


@given(plain)
def test_values_come_back(value: object) -> None:
    text = json.dumps(values.encode(value), allow_nan=False)
    assert same(values.decode(json.loads(text)), value)


@pytest.mark.parametrize(
    "value",
    [np.float32(1.5), np.int64(-3), np.bool_(True), np.complex128(1 - 2j), np.datetime64("2024-02-29")],
)
def test_numpy_scalars_come_back(value: np.generic) -> None:
    found = values.decode(json.loads(json.dumps(values.encode(value))))
    assert type(found) is type(value) and found == value and found.dtype == value.dtype


@pytest.mark.parametrize(
    ("value", "where"),
    [({"a": [1, object()]}, r"value\['a'\]\[1\]"), ({1: 2}, "key 1"), (np.zeros(3), "an array"), ({1, 2}, "set")],
)
def test_other_values_are_refused_by_place(value: object, where: str) -> None:
    with pytest.raises(Unsupported, match=where):
        values.encode(value)


@pytest.mark.parametrize(
    "data",
    [
        {"$pickle": "x"},
        {"$bytes": "!"},
        {"$numpy": ["O", "AA"]},
        {"$numpy": ["f8", ""]},
        {"$float": "x"},
        {"$tuple": 3},
    ],
)
def test_malformed_values_are_damage(data: object) -> None:
    with pytest.raises(Damaged):
        values.decode(data)


@given(st.sampled_from(rng.BIT_GENERATORS), st.integers(0, 2**64), st.integers(0, 700))
def test_generators_go_on_where_they_stood(name: str, seed: int, drawn: int) -> None:
    one = np.random.Generator(getattr(np.random, name)(seed))
    one.random(drawn)
    one.integers(0, 5, dtype=np.uint16)  # leaves half a word behind
    other = rng.generator_from(json.loads(json.dumps(rng.state_of(one))))
    assert (one.random(50) == other.random(50)).all()
    assert (one.integers(0, 9, 50, np.uint8) == other.integers(0, 9, 50, np.uint8)).all()
    assert (one.standard_normal(50) == other.standard_normal(50)).all()


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"bit_generator": "os.system"},
        {"bit_generator": "PCG64", "state": 3},
        {"bit_generator": "MT19937", "state": {"key": [1], "pos": 0}},
    ],
)
def test_malformed_generators_are_damage(state: dict) -> None:
    with pytest.raises(Damaged):
        rng.generator_from(state)


def test_legacy_generators_are_refused() -> None:
    with pytest.raises(Unsupported, match="default_rng"):
        rng.state_of(np.random.RandomState(1))  # type: ignore[arg-type]


NESTED = np.dtype([("x", "<f4"), ("in", [("d", "<M8[us]"), ("v", ">u2", (2, 3))]), ("name", "U7")])
DTYPES = [
    *["?", "i1", "u1", "<i2", ">i2", "<u4", ">i8", "<f2", ">f2", "<f4", "<f8", ">f8", "g", "F", "D", "G", ">c16"],
    *["S1", "S9", "U4", ">U4", "<M8[ns]", "<M8[25s]", ">m8[D]", "m8", "V7"],
    NESTED,
    np.dtype([("a", "i1"), ("b", "f8")], align=True),
    np.dtype({"names": ["b", "a"], "formats": ["f8", "i4"], "offsets": [8, 0], "itemsize": 24}),
    np.dtype({"names": ["a", "b"], "formats": ["i4", "i2"], "offsets": [0, 2], "itemsize": 4}),
    np.dtype([("ü", "f8")]),
    np.dtype([]),
    "S0",
    "U0",
]


@pytest.mark.parametrize("dtype", list(map(np.dtype, DTYPES)), ids=str)
def test_dtypes_come_back(dtype: np.dtype) -> None:
    found = dtypes.from_json(json.loads(json.dumps(dtypes.to_json(dtype))))
    assert found == dtype and found.itemsize == dtype.itemsize and found.isalignedstruct == dtype.isalignedstruct
    stored, more = dtypes.storage(dtype)
    assert stored.itemsize * math.prod(more) == dtype.itemsize


@pytest.mark.parametrize(
    ("array", "hint"),
    [
        (np.ma.masked_array([1], [True]), r"\.mask"),
        (np.rec.array([(1, 2)]), r"view\(numpy.ndarray\)"),
        ([1, 2], "asarray"),
        (np.array([{}]), "Python objects"),
        (np.zeros(1, [("a", "O")]), "Python objects"),
    ],
)
def test_other_arrays_are_refused(array: object, hint: str) -> None:
    with pytest.raises(Unsupported, match=hint):
        dtypes.check(array, "u")


@pytest.mark.parametrize(
    "data", ["O", "|O", "f8,f8", "<f3", 7, None, {"names": ["a"]}, {"base": "<f8", "shape": [-1]}, "<M8[x y]"]
)
def test_malformed_dtypes_are_damage(data: object) -> None:
    with pytest.raises(Damaged):
        dtypes.from_json(data)


@given(st.text(st.characters()))
def test_dataset_names_are_links_of_one_part(name: str) -> None:
    found = dataset_name(name)
    assert found and "/" not in found and "\0" not in found and found not in (".", "..")
    found.encode()


@given(st.text(st.characters()), st.text(st.characters()))
def test_dataset_names_differ_when_names_do(one: str, other: str) -> None:
    assert one == other or dataset_name(one) != dataset_name(other)


GOOD = Manifest(3, 1, "run", "token", 2, None, (), {"k": 1}, {}, {"dust": {"kind": "particles", "columns": ["x"]}})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("step", math.inf), ("step", None), ("ranks", "many"), ("arrays", 3), ("arrays", [None]), ("values", 7),
        ("groups", {"g": None}), ("groups", {"g": {}}), ("groups", {"g": {"kind": []}}),
        ("groups", {"g": {"kind": "crystal"}}), ("groups", {"g": {"kind": "particles", "columns": True}}),
        ("groups", {"g": {"kind": "particles", "columns": [1]}}), ("groups", [1]),
    ],
)  # fmt: skip
def test_malformed_manifests_are_damage(key: str, value: object) -> None:
    assert Manifest.decode(GOOD.encode()) == GOOD
    with pytest.raises(Damaged):
        Manifest.decode(json.dumps({**json.loads(GOOD.encode()), key: value}).encode())


def test_a_shape_beyond_all_numbers_is_damage() -> None:
    from dmr.ckpt import Block
    from dmr.ckpt.storage.manifest import ArrayEntry

    entry = ArrayEntry("u", "u", (2, 3), np.dtype("f8"), Block(), 4096, 512, 0)
    text = json.loads(Manifest(3, 1, "", "", 1, None, (entry,), {}, {}).encode())
    for shape in ([math.inf, 3], [2**40, 2**40], [-1, 3]):
        text["arrays"][0]["shape"] = shape
        with pytest.raises(Damaged):
            Manifest.decode(json.dumps(text).encode())
