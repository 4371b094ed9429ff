"""State that is more than one array: rows of uneven length, particles, what each rank has of its own.

Each kind is kept as arrays of its own (``name:part``) and an entry in the manifest that says how they belong together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..comm.group import Group
from ..errors import Mismatch, Unsupported
from ..layouts.irregular import Counts
from . import dtypes, rng
from .items import ArrayItem, RngItem, ValueItem

Array = npt.NDArray[Any]
RuleName = Literal["concat", "sum", "first"]
Rule = RuleName | Callable[[Sequence[Array], int, int], Array]
RULES = ("concat", "sum", "first")


@dataclass(frozen=True, eq=False)
class RaggedItem:
    """This rank's rows of uneven length (CSR): ``counts[i]`` values belong to row ``i``; rows in the order of ranks.

    Parameters
    ----------
    counts
        Number of values of each local row, shape ``(rows,)``, integers.
    values
        The values of all local rows, one row after the other, shape ``(counts.sum(), ...)``.
    """

    counts: Array
    values: Array


@dataclass(frozen=True, eq=False)
class ParticlesItem:
    """This rank's particles: a 64-bit id for each, unique over all ranks, and columns of whatever they have.

    Parameters
    ----------
    ids
        Shape ``(n,)``, ``int64`` or ``uint64``.
    columns
        By name; each of shape ``(n, ...)``. The same names and dtypes on every rank.
    """

    ids: Array
    columns: Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class PerRankItem:
    """An array that each rank has of its own, and what becomes of it when the number of ranks changes.

    Parameters
    ----------
    local
        Any shape; beyond the first axis the same on every rank.
    rule
        ``concat``: put together along the first axis and split evenly. ``sum``: old ranks are added up, each on one new
        rank, so that the total stays (new ranks without an old one get zeros). ``first``: every rank gets what rank 0
        had. Or a function ``rule(values, rank, ranks)`` of the old ranks' arrays that returns the new one of ``rank``;
        it is not kept in the file, and has to be given to the load too.
    """

    local: Array
    rule: Rule | None = None


@dataclass(frozen=True, eq=False)
class StreamItem:
    """A random generator that each rank has of its own.

    At the same number of ranks each gets its own back. At another one, fresh streams are derived by
    ``SeedSequence(seed, spawn_key=(step, ranks, rank))``, and the load says so.
    """

    generator: np.random.Generator
    seed: int


GroupItem = RaggedItem | ParticlesItem | PerRankItem | StreamItem
AnyItem = ArrayItem | ValueItem | RngItem | GroupItem


def check_group(name: str, item: GroupItem) -> tuple[str, list[int]]:
    """Check one item on this rank; return what has to be the same everywhere, and the sizes that may differ.

    Raises
    ------
    Unsupported, Mismatch
        With the name of the item and what to do.
    """
    if isinstance(item, RaggedItem):
        counts, data = dtypes.check(item.counts, name), dtypes.check(item.values, name)
        if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts.size and counts.min() < 0):
            raise Mismatch(f"ragged {name!r}: counts are to be one-dimensional, integer and not negative")
        total = int(counts.sum())
        if not data.ndim or len(data) != total:
            raise Mismatch(f"ragged {name!r}: the counts add up to {total}, and values has shape {data.shape}")
        return _signature("ragged", {"values": data}), [len(counts), total]
    if isinstance(item, ParticlesItem):
        ids = dtypes.check(item.ids, name)
        if ids.ndim != 1 or ids.dtype not in (np.int64, np.uint64):
            raise Mismatch(f"particles {name!r}: ids are to be of shape (n,) and dtype int64 or uint64")
        columns = {key: dtypes.check(each, f"{name}:{key}") for key, each in sorted(item.columns.items())}
        for key, each in columns.items():
            if not each.ndim or len(each) != len(ids):
                raise Mismatch(f"particles {name!r}: {len(ids)} ids, and column {key!r} has shape {each.shape}")
        if "id" in columns:
            raise Unsupported(f"particles {name!r}: a column can't be called 'id'")
        return _signature("particles", {"id": ids, **columns}), [len(ids)]
    if isinstance(item, PerRankItem):
        local = dtypes.check(item.local, name)
        rule = rule_name(name, item.rule)
        shape = local.shape or (1,)
        if rule in ("sum", "first"):
            return _signature(f"per-rank {rule} {shape}", {"": local}), [shape[0]]
        return _signature(f"per-rank {rule} {local.ndim}", {"": local}), [shape[0]]
    state = rng.state_of(item.generator, name)
    return f"stream {state['bit_generator']} {int(item.seed)}", [len(_stream_bytes(item))]


def rule_name(name: str, rule: Rule | None) -> str:
    """Return the name under which a rule is kept.

    Raises
    ------
    Unsupported
        When none is declared, or it is none.
    """
    if callable(rule):
        return "function"
    if rule not in RULES:
        given = "declares no rule" if rule is None else f"declares the rule {rule!r}"
        raise Unsupported(
            f"per-rank {name!r} {given}: say what becomes of it when the number of ranks changes, "
            f"'concat', 'sum', 'first' or a function"
        )
    return rule


def expand(group: Group, items: Mapping[str, GroupItem]) -> tuple[dict[str, ArrayItem], dict[str, Any]]:
    """Return the arrays that these items are kept as, and their entries in the manifest. Collective.

    The items have passed `check_group`, with the same answer on every rank.
    """
    names = sorted(items)
    mine = [size for name in names for size in check_group(name, items[name])[1]]
    sizes = np.array([np.frombuffer(each, np.int64) for each in group.allgather(np.array(mine, np.int64).tobytes())])
    arrays: dict[str, ArrayItem] = {}
    entries: dict[str, Any] = {}
    at = 0
    for name in names:
        item = items[name]
        counts = Counts(tuple(sizes[:, at].tolist()))
        total = sum(counts.counts)
        at += 1
        if isinstance(item, RaggedItem):
            lengths = Counts(tuple(sizes[:, at].tolist()))
            at += 1
            before = sum(lengths.counts[: group.rank])
            last = group.rank == group.size - 1
            offsets = before + np.concatenate([[0], np.cumsum(item.counts, dtype=np.int64)]).astype(np.int64)
            rows = Counts((*counts.counts[:-1], counts.counts[-1] + 1))
            arrays[f"{name}:offsets"] = ArrayItem(offsets if last else offsets[:-1], rows, (total + 1,))
            arrays[f"{name}:values"] = _along(item.values, lengths)
            entries[name] = {"kind": "ragged", "rows": list(counts.counts)}
        elif isinstance(item, ParticlesItem):
            arrays[f"{name}:id"] = _along(item.ids, counts)
            for key, each in item.columns.items():
                arrays[f"{name}:{key}"] = _along(each, counts)
            entries[name] = {
                "kind": "particles",
                "columns": sorted(item.columns),
                "count": total,
                "checksum": all_ids_checksum(group, item.ids),
            }
        elif isinstance(item, PerRankItem):
            local = item.local if item.local.ndim else item.local.reshape(1)
            arrays[f"{name}:parts"] = _along(local, counts)
            entries[name] = {"kind": "per-rank", "rule": rule_name(name, item.rule), "scalar": not item.local.ndim}
        else:
            arrays[f"{name}:state"] = _along(_stream_bytes(item), counts)
            entries[name] = {
                "kind": "stream",
                "seed": int(item.seed),
                "bits": rng.state_of(item.generator)["bit_generator"],
            }
    return arrays, entries


def members(name: str, entry: Mapping[str, Any]) -> list[str]:
    """Return the names of the arrays that an item is kept as."""
    parts = {"ragged": ["offsets", "values"], "per-rank": ["parts"], "stream": ["state"]}
    return [f"{name}:{part}" for part in parts.get(entry["kind"], ["id", *entry.get("columns", ())])]


def ids_checksum(ids: Array) -> int:
    """Return a 64-bit checksum of ids that does not depend on their order (sum of a mix of each, modulo 2**64).

    The mix is the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
    """
    total = 0
    for begin in range(0, len(ids), 1 << 20):
        mixed = ids[begin : begin + (1 << 20)].astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        total += int((mixed ^ (mixed >> np.uint64(31))).sum(dtype=np.uint64))
    return total % (1 << 64)


def all_ids_checksum(group: Group, ids: Array) -> int:
    """Return the checksum of the ids of all ranks. Collective."""
    each = group.allgather(ids_checksum(ids).to_bytes(8, "little"))
    return sum(int.from_bytes(one, "little") for one in each) % (1 << 64)


def _along(local: Array, counts: Counts) -> ArrayItem:
    return ArrayItem(local, counts, (sum(counts.counts), *local.shape[1:]))


def _signature(kind: str, arrays: Mapping[str, Array]) -> str:
    return json.dumps([kind, [[key, dtypes.to_json(each.dtype), each.shape[1:]] for key, each in arrays.items()]])


def _stream_bytes(item: StreamItem) -> Array:
    return np.frombuffer(json.dumps(rng.state_of(item.generator)).encode(), np.uint8)
