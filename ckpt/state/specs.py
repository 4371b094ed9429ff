"""What a checkpoint holds, as a program asks for it."""

from __future__ import annotations

from ..storage.manifest import Manifest
from .groups import members
from .items import ArraySpec


def specs_of(manifest: Manifest) -> dict[str, ArraySpec]:
    """Return what a checkpoint holds, by name; arrays that are a part of something else are not named."""
    inner = {part for name, entry in manifest.groups.items() for part in members(name, entry)}
    found = {
        each.name: ArraySpec(each.name, "array", each.shape, each.dtype, each.layout)
        for each in manifest.arrays
        if each.name not in inner
    }
    found.update({name: ArraySpec(name, entry["kind"]) for name, entry in manifest.groups.items()})
    found.update({name: ArraySpec(name, "value") for name in manifest.values})
    found.update({name: ArraySpec(name, "rng") for name in manifest.rngs})
    return found
