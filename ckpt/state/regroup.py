"""State that is more than one array, loaded on any number of ranks."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from ..comm.group import Group
from ..comm.trouble import Trouble
from ..errors import Damaged, Mismatch
from ..layouts.irregular import Counts
from ..layouts.layout import Block, Layout, Replicated, split
from ..storage.manifest import Manifest
from . import rng
from .groups import RULES, Rule, all_ids_checksum, rule_name

Array = npt.NDArray[Any]
Place = Callable[[Array, Mapping[str, Array]], Array]
ROUND_BYTES = 16 << 20

log = logging.getLogger("dmr.ckpt")


class Source(Protocol):
    """Where arrays come from: an open checkpoint."""

    @property
    def manifest(self) -> Manifest: ...

    @property
    def group(self) -> Group: ...

    def array(self, name: str, layout: Layout | None = None) -> Array: ...


@dataclass(frozen=True, eq=False)
class RaggedPart:
    """Some rows of uneven length: the global number of the first, the count of values of each, the values."""

    first_row: int
    counts: npt.NDArray[np.int64]
    values: Array


@dataclass(frozen=True, eq=False)
class ParticlesPart:
    """Some particles: their ids, and their columns by name."""

    ids: Array
    columns: dict[str, Array]


def read_ahead(manifest: Manifest, ranks: int) -> dict[str, Layout]:
    """Return the layouts in which arrays are read at first; without those that depend on the content of others."""
    found = {each.name: each.layout.at(ranks) for each in manifest.arrays}
    for name, entry in manifest.groups.items():
        if entry["kind"] == "ragged":
            found[f"{name}:offsets"] = _with_end(_default_rows(entry, manifest, ranks))
            del found[f"{name}:values"]
        elif entry["kind"] == "per-rank":
            found[f"{name}:parts"] = _parts_layout(manifest, name, entry["rule"], ranks)
    return found


# -- rows of uneven length


def ragged(source: Source, name: str, by: Literal["rows", "values"] | None) -> RaggedPart:
    """Return this rank's rows. Collective. See `Loaded.ragged`."""
    offsets_name, manifest, group = f"{name}:offsets", source.manifest, source.group
    entry = manifest.groups[name]
    if by not in (None, "rows", "values"):
        raise Mismatch(f"ragged {name!r}: by={by!r} is to be 'rows' or 'values'")
    rows = _default_rows(entry, manifest, group.size)
    if by is not None:
        rows = _block_rows(entry, group.size)
    if by == "values":
        starts = source.array(offsets_name, _with_end(rows))[: rows.counts[group.rank]]
        total = _shape(manifest, f"{name}:values")[0]
        targets = np.array([-(-total * part // group.size) for part in range(1, group.size)], np.int64)
        below = _sums(group, np.searchsorted(starts, targets))
        bounds = [0, *below.tolist(), sum(entry["rows"])]
        rows = Counts(tuple(np.diff(bounds).tolist()))
    offsets = source.array(offsets_name, _with_end(rows))
    lengths = _lengths(source, name, offsets)
    last = group.rank == group.size - 1
    end = sum(lengths.counts[: group.rank + 1])
    starts = offsets[:-1] if last else offsets
    counts = np.diff(np.concatenate([starts, [end]]))
    values = source.array(f"{name}:values", lengths)
    return RaggedPart(sum(rows.counts[: group.rank]), counts, values)


def ragged_values(source: Source, name: str, offsets: Array) -> Layout:
    """Return the layout of the values that goes with rows that have been read. Collective."""
    return _lengths(source, name, offsets)


def _lengths(source: Source, name: str, offsets: Array) -> Counts:
    """Return how many values each rank has, from the offsets of its rows (the last has the end too). Collective."""
    group = source.group
    total = _shape(source.manifest, f"{name}:values")[0]
    last = group.rank == group.size - 1
    mine = int(offsets[0]) if len(offsets) > last else -1
    firsts = [int(np.frombuffer(each, np.int64)[0]) for each in group.allgather(np.array([mine]).tobytes())]
    lengths = []
    end = total
    for first in reversed(firsts):
        begin = end if first < 0 else first
        lengths.append(end - begin)
        end = begin
    if end != 0 or min(lengths) < 0:
        raise Damaged(f"ragged {name!r}: its offsets don't fit its {total} values")
    return Counts(tuple(reversed(lengths)))


def _default_rows(entry: Mapping[str, Any], manifest: Manifest, ranks: int) -> Counts:
    return Counts(tuple(entry["rows"])) if len(entry["rows"]) == ranks else _block_rows(entry, ranks)


def _block_rows(entry: Mapping[str, Any], ranks: int) -> Counts:
    return Counts(tuple(np.diff(split(sum(entry["rows"]), ranks)).tolist()))


def _with_end(rows: Counts) -> Counts:
    return Counts((*rows.counts[:-1], rows.counts[-1] + 1))


# -- particles


def particles(
    source: Source, name: str, by: Literal["stored", "id", "weight"] | Place, weight: str | None
) -> ParticlesPart:
    """Return this rank's particles. Collective. See `Loaded.particles`."""
    group, entry = source.group, source.manifest.groups[name]
    ids = source.array(f"{name}:id")
    columns = {key: source.array(f"{name}:{key}") for key in entry["columns"]}
    if by != "stored":
        trouble = Trouble()
        places = np.zeros(0, np.int64)
        # Those that communicate are outside of the guard: their input is checked before.
        if by == "id":
            places = _places_by_id(group, ids)
        elif by == "weight":
            places = _places_by_weight(group, name, columns, weight, trouble)
        else:
            with trouble:
                places = _places_by_function(group, name, ids, columns, by)
        group.agree(trouble.error, f"placing the particles {name!r}")
        ids, columns = _send(group, ids, columns, places)
        if by != "weight":
            order = np.argsort(ids, kind="stable")
            ids, columns = ids[order], {key: each[order] for key, each in columns.items()}
    count = int(_sums(group, np.array([len(ids)]))[0])
    if count != entry["count"] or all_ids_checksum(group, ids) != entry["checksum"]:
        raise Damaged(
            f"particles {name!r}: {entry['count']} were saved and {count} are there, or their ids are not the same"
        )
    return ParticlesPart(ids, columns)


def _places_by_id(group: Group, ids: Array) -> npt.NDArray[np.int64]:
    """Return a rank for each particle, so that ranks have blocks of the sorted ids, by `Block`'s rule.

    The bounds between ranks are found by bisection over all 64-bit numbers, with all ranks' counts.
    """
    sign = np.uint64(1 << 63) if ids.dtype.kind == "i" else np.uint64(0)
    keys = np.sort(ids.view(np.uint64) ^ sign)
    total = int(_sums(group, np.array([len(ids)]))[0])
    targets = np.array(split(total, group.size)[1:-1], np.int64)
    # The least key with `target` keys below it: all keys below go to the ranks before.
    low, high = [0] * len(targets), [1 << 64] * len(targets)
    for _ in range(64):
        middle = [(one + other) // 2 for one, other in zip(low, high, strict=True)]
        below = _sums(group, np.searchsorted(keys, np.array(middle, np.uint64)))
        for place, (count, target) in enumerate(zip(below.tolist(), targets.tolist(), strict=True)):
            if count >= target:
                high[place] = middle[place]
            else:
                low[place] = middle[place]
    bounds = np.array([min(each, (1 << 64) - 1) for each in high], np.uint64)
    return np.searchsorted(bounds, ids.view(np.uint64) ^ sign, side="right").astype(np.int64)


def _places_by_weight(
    group: Group, name: str, columns: Mapping[str, Array], weight: str | None, trouble: Trouble
) -> npt.NDArray[np.int64]:
    """Return a rank for each particle, so that ranks have runs of the stored order of about the same weight."""
    weights = np.zeros(0)
    with trouble:
        if (
            weight is None
            or weight not in columns
            or columns[weight].ndim != 1
            or columns[weight].dtype.kind not in "biuf"
        ):
            raise Mismatch(f"particles {name!r}: weight={weight!r} is no column of one number a particle")
        weights = columns[weight].astype(np.float64)
        if not (weights >= 0).all():
            raise Mismatch(f"particles {name!r}: the column {weight!r} has weights that are negative or NaN")
    group.agree(trouble.error, f"placing the particles {name!r}")
    sums = np.frombuffer(b"".join(group.allgather(np.array([weights.sum()]).tobytes())), np.float64)
    before, total = float(sums[: group.rank].sum()), float(sums.sum())
    middles = before + np.cumsum(weights) - weights / 2
    return np.minimum(middles * group.size / (total or 1.0), group.size - 1).astype(np.int64)


def _places_by_function(
    group: Group, name: str, ids: Array, columns: Mapping[str, Array], place: Place
) -> npt.NDArray[np.int64]:
    found = np.asarray(place(ids, columns))
    if found.shape != ids.shape or found.dtype.kind not in "iu":
        raise Mismatch(f"particles {name!r}: the function returned {found.dtype} {found.shape}, not a rank for each")
    if found.size and not 0 <= found.min() <= found.max() < group.size:
        raise Mismatch(
            f"particles {name!r}: the function returned ranks {found.min()} to {found.max()} of {group.size}"
        )
    return found.astype(np.int64)


def _send(
    group: Group, ids: Array, columns: Mapping[str, Array], places: npt.NDArray[np.int64]
) -> tuple[Array, dict[str, Array]]:
    """Send each particle to its rank, in bounded rounds; they arrive in the order of ranks. Collective."""
    if group.size == 1:
        return ids, dict(columns)
    fields = {"": ids, **columns}
    width = sum(each.dtype.itemsize * int(np.prod(each.shape[1:], dtype=np.int64)) for each in fields.values())
    chunk = max(ROUND_BYTES // max(width, 1), 1)
    needed = (len(ids) + chunk - 1) // chunk
    rounds = max(int(np.frombuffer(each, np.int64)[0]) for each in group.allgather(np.array([needed]).tobytes()))
    arrived: dict[str, list[list[Array]]] = {key: [[] for _ in range(group.size)] for key in fields}
    for number in range(rounds):
        here = slice(number * chunk, (number + 1) * chunk)
        order = np.argsort(places[here], kind="stable")
        counts = np.bincount(places[here], minlength=group.size).astype(np.int64)
        expected = group.counts(counts)
        ends = np.cumsum(counts)
        for key, each in fields.items():
            row = each.dtype.itemsize * int(np.prod(each.shape[1:], dtype=np.int64))
            if not row:
                for rank in range(group.size):
                    arrived[key][rank].append(np.empty((int(expected[rank]), *each.shape[1:]), each.dtype))
                continue
            raw = np.ascontiguousarray(each[here]).view(np.uint8).reshape(-1, row)[order]
            sent = {
                rank: raw[ends[rank] - counts[rank] : ends[rank]].reshape(-1)
                for rank in range(group.size)
                if counts[rank] and rank != group.rank
            }
            received = {
                rank: np.empty(int(expected[rank]) * row, np.uint8)
                for rank in range(group.size)
                if expected[rank] and rank != group.rank
            }
            group.exchange(sent, received)
            received[group.rank] = raw[ends[group.rank] - counts[group.rank] : ends[group.rank]].reshape(-1)
            for rank, data in received.items():
                arrived[key][rank].append(data.view(each.dtype).reshape(-1, *each.shape[1:]))
    joined = {
        key: np.concatenate(
            [np.empty((0, *each.shape[1:]), each.dtype), *(part for rank in arrived[key] for part in rank)]
        )
        for key, each in fields.items()
    }
    return joined.pop(""), joined


# -- what each rank has of its own


def per_rank(source: Source, name: str, rule: Rule | None) -> Array:
    """Return what this rank gets of what each rank had. Collective. See `Loaded.per_rank`."""
    group, manifest = source.group, source.manifest
    entry = manifest.groups[name]
    kept = entry["rule"]
    chosen = kept if rule is None else rule_name(name, rule)
    if chosen == "function" and rule is None and manifest.ranks != group.size:
        raise Mismatch(
            f"per-rank {name!r} was saved on {manifest.ranks} ranks with a function as its rule: give the function to "
            f"the load on {group.size}"
        )
    parts = source.array(f"{name}:parts", _parts_layout(manifest, name, chosen, group.size))
    if manifest.ranks == group.size or chosen == "concat":
        found = parts
    else:
        counts = _old_counts(manifest, name)
        if chosen == "function":
            assert callable(rule)
            trouble = Trouble()
            found = parts
            with trouble:
                found = np.asarray(rule(_cut(parts, counts), group.rank, group.size))
            group.agree(trouble.error, f"the rule of per-rank {name!r}")
        elif chosen == "sum":
            here = _deal(len(counts), group.size)[group.rank]
            pieces = _cut(parts, [counts[old] for old in here])
            found = (
                sum(pieces[1:], pieces[0].copy()) if pieces else np.zeros((counts[0], *parts.shape[1:]), parts.dtype)
            )
        else:
            found = np.empty((counts[0], *parts.shape[1:]), parts.dtype)
            if group.rank == 0:
                found[...] = parts[: counts[0]]
            group.bcast_into(found.reshape(-1).view(np.uint8), 0)
    return found.reshape(()) if entry["scalar"] and found.shape == (1,) else found


def _parts_layout(manifest: Manifest, name: str, rule: str, ranks: int) -> Layout:
    counts = _old_counts(manifest, name)
    if len(counts) == ranks:
        return Counts(tuple(counts))
    if rule == "concat":
        return Block()
    if rule not in RULES:
        return Replicated()
    return Counts(tuple(sum(counts[old] for old in each) for each in _deal(len(counts), ranks)))


def _old_counts(manifest: Manifest, name: str) -> Sequence[int]:
    layout = next(each.layout for each in manifest.arrays if each.name == f"{name}:parts")
    if not isinstance(layout, Counts):
        raise Damaged(f"per-rank {name!r} is not in one part for each rank")
    return layout.counts


def _deal(old: int, new: int) -> list[range]:
    """Return which old ranks go to each new one: runs when there are fewer, else one each, spread out."""
    if new <= old:
        bounds = split(old, new)
        return [range(bounds[rank], bounds[rank + 1]) for rank in range(new)]
    homes = {rank * new // old: rank for rank in range(old)}
    return [range(homes[rank], homes[rank] + 1) if rank in homes else range(0) for rank in range(new)]


def _cut(parts: Array, counts: Sequence[int]) -> list[Array]:
    ends = np.cumsum(counts).tolist()
    return [parts[end - count : end] for end, count in zip(ends, counts, strict=True)]


def stream(source: Source, name: str) -> np.random.Generator:
    """Return this rank's generator. Collective. See `Loaded.stream`."""
    group, manifest = source.group, source.manifest
    seed = int(manifest.groups[name]["seed"])
    if manifest.ranks == group.size:
        state = source.array(f"{name}:state")
        try:
            return rng.generator_from(json.loads(state.tobytes()))
        except ValueError as error:
            raise Damaged(f"the state of the random generator {name!r} is malformed ({error})") from None
    if group.rank == 0:
        log.warning(
            "random generator %r: it was saved on %d ranks with a stream for each; the streams of %d ranks are derived "
            "anew from the seed %d",
            name,
            manifest.ranks,
            group.size,
            seed,
        )
    sequence = np.random.SeedSequence(seed, spawn_key=(manifest.step, group.size, group.rank))
    return np.random.Generator(getattr(np.random, manifest.groups[name]["bits"])(sequence))


def _shape(manifest: Manifest, name: str) -> tuple[int, ...]:
    return next(each.shape for each in manifest.arrays if each.name == name)


def _sums(group: Group, numbers: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the sum of each number over all ranks. Collective."""
    parts = group.allgather(numbers.astype(np.int64).tobytes())
    total: npt.NDArray[np.int64] = np.array([np.frombuffer(each, np.int64) for each in parts]).sum(axis=0)
    return total
