"""State of NumPy's random generators as JSON data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import Damaged, Unsupported

BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


def state_of(generator: np.random.Generator, name: str = "rng") -> dict[str, Any]:
    """Return the whole state of a generator as JSON data.

    Raises
    ------
    Unsupported
        When it is no `numpy.random.Generator`, or one with a foreign bit generator.
    """
    if not isinstance(generator, np.random.Generator):
        raise Unsupported(
            f"{name!r} is a {type(generator).__name__}: use a numpy.random.Generator, "
            f"for instance numpy.random.default_rng(seed)"
        )
    state = generator.bit_generator.state
    if state["bit_generator"] not in BIT_GENERATORS:
        raise Unsupported(
            f"{name!r} uses the bit generator {state['bit_generator']}: only {', '.join(BIT_GENERATORS)} can be kept"
        )
    found: dict[str, Any] = _plain(state)
    return found


def generator_from(state: Mapping[str, Any]) -> np.random.Generator:
    """Return a generator that goes on where the one of `state_of` stood.

    Raises
    ------
    Damaged
        When the state is malformed, or of a bit generator that is not in `BIT_GENERATORS`.
    """
    try:
        name = state["bit_generator"]
        if name not in BIT_GENERATORS:
            raise ValueError(f"bit generator {name!r}")
        bits = getattr(np.random, name)(0)
        bits.state = _arrays(state, bits.state)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Damaged(f"the state of a random generator is malformed ({error})") from None
    return np.random.Generator(bits)


def _plain(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _plain(each) for key, each in data.items()}
    if isinstance(data, np.ndarray):
        return [int(each) for each in data]
    return data if isinstance(data, str) else int(data)


def _arrays(data: Any, model: Any) -> Any:
    if isinstance(model, dict):
        return {key: _arrays(data[key], each) for key, each in model.items()}
    if isinstance(model, np.ndarray):
        found = np.array(data, model.dtype)
        if found.shape != model.shape:
            raise ValueError(f"shape {found.shape} for {model.shape}")
        return found
    return data
