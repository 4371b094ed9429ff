"""What is handed over to be saved: checked on each rank, then agreed upon by all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..comm.group import Group, same_everywhere
from ..comm.trouble import Trouble
from ..errors import CheckpointError, Mismatch, Unsupported
from ..layouts.layout import layout_problem
from ..storage import h5file
from ..storage.codec import Codec
from ..storage.filters import choose
from ..storage.manifest import ArrayEntry, digest
from ..transfer.held import Held
from ..transfer.plan import elements_per_piece
from . import dtypes, rng, values
from .groups import AnyItem, GroupItem, ParticlesItem, PerRankItem, RaggedItem, StreamItem, check_group, expand
from .items import ArrayItem, RngItem, ValueItem

State = Mapping[str, AnyItem]
"""What a checkpoint holds, by name."""

_GROUPS = (RaggedItem, ParticlesItem, PerRankItem, StreamItem)


@dataclass(eq=False)
class Described:
    """A state as this rank sees it, checked; the lists are in the order of names."""

    entries: list[ArrayEntry] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    rngs: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, Any] = field(default_factory=dict)
    info: Any = None

    @property
    def local_bytes(self) -> int:
        """Bytes of this rank's arrays."""
        return sum(each.bytes for each in self.held)


def describe(group: Group, step: int, items: State, info: Any, codec: Codec | None = None) -> Described:
    """Check a state, and that all ranks hand over the same. Collective.

    Parameters
    ----------
    codec
        What arrays are to be compressed with.

    Raises
    ------
    Unsupported, Mismatch
        On every rank; with the name of the item, the rank, and what to do.
    """
    trouble = Trouble()
    groups: dict[str, GroupItem] = {}
    plain: dict[str, ArrayItem | ValueItem | RngItem] = {}
    labels: list[tuple[str, bytes]] = []
    with trouble:
        for name in sorted(items):
            item = items[name]
            if not isinstance(name, str) or not name:
                raise Unsupported(f"{name!r} is no name of an item: use text, of at least one character")
            if isinstance(item, _GROUPS):
                groups[name] = item
                labels.append((f"item {name!r} (kind, dtypes)", check_group(name, item)[0].encode()))
            elif isinstance(item, (ArrayItem, ValueItem, RngItem)):
                plain[name] = item
            else:
                raise Unsupported(f"item {name!r} is a {type(item).__name__}: use one of the items of dmr.ckpt")
    group.agree(trouble.error, "describing the state")
    found = Described()
    if groups or group.size > 1:
        # Ranks that go different ways from here on would wait for each other.
        _same_names(group, [f"{type(items[name]).__name__} {name!r}" for name in sorted(items)])
        _same_content(group, labels)
    if groups:
        arrays, found.groups = expand(group, groups)
        for name in arrays:
            if name in plain:
                raise Unsupported(f"the name {name!r} is taken by a part of item {name.rpartition(':')[0]!r}")
        plain.update(arrays)
    with trouble:
        _describe_plain(found, plain, info, group, codec)
    group.agree(trouble.error, "describing the state")
    if group.size > 1:
        _check_agreement(group, step, found, trouble)
    return found


def _describe_plain(
    found: Described,
    items: Mapping[str, ArrayItem | ValueItem | RngItem],
    info: Any,
    group: Group,
    codec: Codec | None,
) -> None:
    found.info = values.encode(info, "info")
    first = chunk = 0
    for name in sorted(items):
        item = items[name]
        if isinstance(item, ValueItem):
            found.values[name] = values.encode(item.value, f"value {name!r}")
        elif isinstance(item, RngItem):
            found.rngs[name] = rng.state_of(item.generator, name)
        else:
            local = dtypes.check(item.local, name)
            if problem := layout_problem(item.layout):
                raise Mismatch(f"array {name!r}: {problem}")
            shape = tuple(int(n) for n in item.shape)
            packed = choose(codec, shape, local.dtype, chunk)
            piece = elements_per_piece(local.dtype.itemsize) if packed is None else packed.elements
            entry = ArrayEntry(
                name, h5file.dataset_name(name), shape, local.dtype, item.layout, 0, piece, first, packed
            )
            try:
                held = Held(name, shape, item.layout, group.size, group.rank, local, piece, writing=True, row=entry.row)
            except CheckpointError as error:
                said = str(error)
                raise type(error)(said if said.startswith("array ") else f"array {name!r}: {said}") from None
            found.held.append(held)
            found.entries.append(entry)
            first += entry.pieces
            chunk += 0 if packed is None else entry.pieces


def _check_agreement(group: Group, step: int, described: Described, trouble: Trouble) -> None:
    whole = b""
    with trouble:
        arrays = [entry.to_json() for entry in described.entries]
        whole = values.canonical([step, described.info, arrays, described.values, described.rngs])
    group.agree(trouble.error, "describing the state")
    if not all(same_everywhere(group, [digest(whole)])):
        labels = [("the step", str(step).encode()), ("the info", values.canonical(described.info))]
        for entry in described.entries:
            labels.append((f"array {entry.name!r} (shape, dtype, layout)", values.canonical(entry.to_json())))
        labels += [(f"value {name!r}", values.canonical(each)) for name, each in described.values.items()]
        labels += [(f"random generator {name!r}", values.canonical(each)) for name, each in described.rngs.items()]
        _same_content(group, labels)
    copies = [each for each in described.held if each.everywhere and each.bytes]
    digests: list[int] = []
    with trouble:
        digests = [digest(each.whole) for each in copies]
    group.agree(trouble.error, "comparing replicated arrays")
    _same_numbers(group, [f"the content of the replicated array {each.name!r}" for each in copies], digests)


def _same_content(group: Group, labels: list[tuple[str, bytes]]) -> None:
    """Raise on every rank when a content differs. Collective; every rank has the same labels."""
    _same_numbers(group, [what for what, _ in labels], [digest(content) for _, content in labels])


def _same_numbers(group: Group, labels: list[str], numbers: list[int]) -> None:
    same = same_everywhere(group, numbers)
    if all(same):
        return
    place = same.index(False)
    texts = group.allgather(str(numbers[place]).encode())
    other = next(rank for rank, text in enumerate(texts) if text != texts[0])
    error = Mismatch(f"{labels[place]} differs between ranks: rank {other} has not what rank 0 has")
    error.rank = other
    raise error


def _same_names(group: Group, names: list[str]) -> None:
    """Raise on every rank when ranks have different items. Collective."""
    if all(same_everywhere(group, [digest(json.dumps(names).encode())])):
        return
    lists = [json.loads(each) for each in group.allgather(json.dumps(names).encode())]
    other = next(rank for rank, each in enumerate(lists) if each != lists[0])
    more = sorted(set(lists[other]) - set(lists[0])) + sorted(set(lists[0]) - set(lists[other]))
    error = Mismatch(f"ranks hand over different items: rank {other} and rank 0 differ in {', '.join(more[:5])}")
    error.rank = other
    raise error
