"""NumPy dtypes as JSON data, and as the type that stands for them in the HDF5 file."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from ..errors import Damaged, Unsupported

ML_DTYPES = (
    "bfloat16",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
)
_PLAIN = re.compile(r"[<>|]([?bhilqefdgFDGiufcVSU]\d*|b1|[mM]8(\[[0-9a-zA-Z/]+\])?)")


def check(array: object, name: str) -> np.ndarray[Any, Any]:
    """Return the array when it can be kept bit for bit.

    Raises
    ------
    Unsupported
        For anything that is no plain `numpy.ndarray` of plain data; the text says what to do instead.
    """
    if type(array) is not np.ndarray:
        if isinstance(array, np.ma.MaskedArray):
            hint = "save its .data and its .mask as two arrays"
        elif isinstance(array, np.ndarray):
            hint = "save array.view(numpy.ndarray), and what the class adds as a value"
        else:
            hint = "use numpy.asarray(...)"
        raise Unsupported(f"array {name!r} is a {type(array).__module__}.{type(array).__qualname__}: {hint}")
    to_json(array.dtype, name)
    return array


def to_json(dtype: np.dtype[Any], name: str = "") -> Any:
    """Return a dtype as JSON data.

    Raises
    ------
    Unsupported
        For dtypes that hold references to Python objects.
    """
    if dtype.hasobject:
        raise Unsupported(
            f"array {name!r} has dtype {dtype}, which holds Python objects: use a plain dtype "
            f"(numbers, 'S', 'U', datetime64, structs of these), or a value instead of an array"
        )
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"base": to_json(base, name), "shape": list(shape)}
    if dtype.fields is not None:
        fields = [dtype.fields[each] for each in dtype.names or ()]
        return {
            "names": list(dtype.names or ()),
            "formats": [to_json(each[0], name) for each in fields],
            "offsets": [each[1] for each in fields],
            "itemsize": dtype.itemsize,
            "aligned": bool(dtype.isalignedstruct),
        }
    if dtype.name in ML_DTYPES:
        return dtype.name
    if not _PLAIN.fullmatch(dtype.str) or np.dtype(dtype.str) != dtype:
        raise Unsupported(f"array {name!r} has dtype {dtype!r}, which is not one of NumPy's plain ones")
    return dtype.str


def from_json(data: Any) -> np.dtype[Any]:
    """Return the dtype that `to_json` described.

    Raises
    ------
    Damaged
        When the description is malformed.
    Unsupported
        When it is one of ml_dtypes and that package is not installed.
    """
    try:
        if isinstance(data, dict) and "base" in data:
            return np.dtype((from_json(data["base"]), tuple(data["shape"])))
        if isinstance(data, dict):
            spec = {
                "names": data["names"],
                "formats": [from_json(each) for each in data["formats"]],
                "offsets": data["offsets"],
                "itemsize": data["itemsize"],
            }
            return np.dtype(spec, align=bool(data["aligned"]))  # type: ignore[call-overload, no-any-return]
        if data in ML_DTYPES:
            return _ml_dtype(data)
        if _PLAIN.fullmatch(data):
            return np.dtype(data)
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"the dtype {data!r} is malformed ({error})") from None
    raise Damaged(f"the dtype {data!r} is unknown")


def from_text(text: str) -> np.dtype[Any]:
    """Return the dtype that a user wrote, ``f4``, ``float32``, ``>i8`` or ``bfloat16``.

    Raises
    ------
    Unsupported
        When it is none, or not of plain numbers or text.
    """
    if text in ML_DTYPES:
        return _ml_dtype(text)
    try:
        found = np.dtype(text)
        if found.fields is None:
            to_json(found)
            return found
    except TypeError:
        pass
    raise Unsupported(f"{text!r} is no dtype: write it as NumPy does, for instance float32, f4 or >i8")


def storage(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the dtype that stands for one element in the HDF5 file, and axes to append to the shape.

    The bytes of an element are the same in both. Types that HDF5 lacks are kept as ones that it has: dates as
    ``int64``, ``U`` as code points in ``uint32``, ml_dtypes as unsigned bits, and structs with such
    fields, with overlapping or with no fields as opaque bytes.
    """
    if dtype.kind in "mM":
        return np.dtype(dtype.str[0] + "i8"), ()
    if dtype.kind == "U":
        width = dtype.itemsize // 4
        return (np.dtype(dtype.str[0] + "u4"), (width,)) if width else (np.dtype("u1"), (0,))
    if dtype.name in ML_DTYPES:
        return np.dtype(f"u{dtype.itemsize}"), ()
    if dtype.itemsize == 0:
        return np.dtype("u1"), (0,)
    if dtype.kind == "V" and dtype.fields is not None and not _in_hdf5(dtype):
        return np.dtype(f"V{dtype.itemsize}"), ()
    return dtype, ()


def _in_hdf5(dtype: np.dtype[Any]) -> bool:
    if dtype.subdtype is not None:
        return math.prod(dtype.subdtype[1]) > 0 and _in_hdf5(dtype.subdtype[0])
    if dtype.fields is not None:
        ends = 0
        for name in dtype.names or ():
            field, offset = dtype.fields[name][:2]
            if offset < ends or not name.isascii() or not _in_hdf5(field):
                return False
            ends = offset + field.itemsize
        return bool(dtype.names)
    return dtype.kind not in "mMU" and dtype.name not in ML_DTYPES and dtype.itemsize > 0


def _ml_dtype(name: str) -> np.dtype[Any]:
    try:
        import ml_dtypes  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise Unsupported(f"the dtype {name} needs the package ml_dtypes: pip install ml_dtypes") from None
    return np.dtype(getattr(ml_dtypes, name))
