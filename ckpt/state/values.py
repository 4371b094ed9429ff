"""Python values as strict JSON and back, without loss and without executing anything."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np

from ..errors import Damaged, Unsupported


def encode(value: object, where: str = "value") -> Any:
    """Return ``value`` as strict JSON data.

    None, bool, int of any size, float (NaN and infinities too), str, bytes, list, tuple, dict with str keys and
    NumPy scalars are kept as they are, nested as deep as one likes.

    Raises
    ------
    Unsupported
        For any other type; the text names the place inside of the value.
    """
    if value is None or isinstance(value, (bool, str)) and type(value) in (bool, str):
        return value
    kind = type(value)
    if kind is int:
        return value
    if kind is float:
        assert isinstance(value, float)
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, np.generic) and value.dtype.kind in "biufcSUmM":
        return {"$numpy": [value.dtype.str, base64.b64encode(value.tobytes()).decode()]}
    if kind is list:
        assert isinstance(value, list)
        return [encode(each, f"{where}[{index}]") for index, each in enumerate(value)]
    if kind is tuple:
        assert isinstance(value, tuple)
        return {"$tuple": [encode(each, f"{where}[{index}]") for index, each in enumerate(value)]}
    if kind is dict:
        assert isinstance(value, dict)
        for key in value:
            if type(key) is not str:
                raise Unsupported(f"{where} has the key {key!r}: keys have to be text, since the value is kept as JSON")
        found = {key: encode(each, f"{where}[{key!r}]") for key, each in value.items()}
        return {"$dict": found} if any(key.startswith("$") for key in found) else found
    raise Unsupported(
        f"{where} is of type {kind.__module__}.{kind.__qualname__}, which can't be kept as JSON: "
        f"use numbers, text, bytes, lists, tuples and dicts, or an array"
    )


def decode(data: Any) -> Any:
    """Return the value that `encode` turned into ``data``.

    Raises
    ------
    Damaged
        When the data is not what `encode` makes.
    """
    if isinstance(data, list):
        return [decode(each) for each in data]
    if not isinstance(data, dict):
        return data
    if len(data) != 1 or not (tag := next(iter(data))).startswith("$"):
        return {key: decode(each) for key, each in data.items()}
    content = data[tag]
    try:
        match tag:
            case "$float":
                return float(content)
            case "$bytes":
                return base64.b64decode(content, validate=True)
            case "$tuple":
                return tuple(decode(each) for each in content)
            case "$dict":
                return {key: decode(each) for key, each in content.items()}
            case "$numpy":
                dtype = np.dtype(str(content[0]))
                return np.frombuffer(base64.b64decode(content[1], validate=True), dtype)[0]
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise Damaged(f"the value {tag}: {str(content)[:80]} is malformed ({error})") from None
    raise Damaged(f"the value has the unknown tag {tag!r}")


def canonical(data: Any) -> bytes:
    """Return JSON data as bytes that are equal when the data is."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
