"""All layouts by the name under which the manifest keeps them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import Damaged, Unsupported
from .cyclic import BlockCyclic
from .indices import Indices
from .irregular import Boxes, Counts
from .layout import Block, Layout, Replicated

READERS: dict[str, Callable[[Mapping[str, Any]], Layout]] = {
    Block.kind: Block.from_json,
    BlockCyclic.kind: BlockCyclic.from_json,
    Boxes.kind: Boxes.from_json,
    Counts.kind: Counts.from_json,
    Indices.kind: Indices.from_json,
    Replicated.kind: Replicated.from_json,
}


def layout_from_json(data: Mapping[str, Any]) -> Layout:
    """Return the layout that `Layout.to_json` described.

    Raises
    ------
    Damaged
        When the kind is unknown or the description malformed.
    """
    try:
        return READERS[data["kind"]](data)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise Damaged(f"the layout {str(data)[:200]} is unknown or malformed ({error})") from None


def layout_from_text(text: str) -> Layout:
    """Return a layout that a user wrote: ``replicated``, ``block:0``, ``block:0,1`` or ``block-cyclic:64,64``.

    Raises
    ------
    Unsupported
        When it is none of these.
    """
    kind, _, rest = text.partition(":")
    try:
        numbers = tuple(int(each) for each in rest.split(",")) if rest else ()
        if kind == "replicated" and not rest:
            return Replicated()
        if kind == "block":
            return Block(axes=numbers or (0,))
        if kind == "block-cyclic" and numbers:
            return BlockCyclic(numbers)
    except ValueError:
        pass
    raise Unsupported(f"{text!r} is no layout: write replicated, block:0, block:0,1 or block-cyclic:64,64")
