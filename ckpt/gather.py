"""Saving: pieces are gathered from the ranks' memory, digested and written by their owners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .assembly import Assembly
from .drivers import Output
from .exchange import entries, pack, rows_header
from .group import Group
from .held import Held, cuts
from .manifest import Manifest, digest
from .parts import cut
from .plan import ArrayPlan, Rounds, plan, rounds
from .trouble import Trouble

Bytes = npt.NDArray[np.uint8]
SMALL = 256 << 10
"""Pieces of less bytes are written from where they are."""


def save_pieces(
    group: Group, held: Sequence[Held], output: Output | None, manifest: Manifest, trouble: Trouble
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """Write all pieces; return the numbers and the digests of those that this rank owns. Collective.

    Parameters
    ----------
    held
        The arrays, in the order of the manifest.
    output
        None when this rank could not open the file; it takes part in the exchange all the same.
    trouble
        Where local errors are kept.
    """
    plans = plan([each.moved for each in held], group.size)
    digests = np.zeros(manifest.pieces, np.uint64)
    first = [entry.first for entry in manifest.arrays]
    schedule = rounds(plans, group.size)
    for number in range(len(schedule)):
        for array, piece, data in _gather_round(group, held, plans, schedule, number, output, trouble):
            with trouble:
                if output is not None:
                    digests[first[array] + piece] = digest(data)
                    output.write(array, piece * plans[array].per_piece * plans[array].itemsize, data, later=True)
    with trouble:
        for array, (each, its) in enumerate(zip(held, plans, strict=True)):
            if output is None:
                break
            for piece in its.own(group.rank):
                data = _own_piece(each, its, piece, output)
                digests[first[array] + piece] = digest(data)
                output.write(array, piece * its.per_piece * its.itemsize, data)
    owners = np.concatenate([np.zeros(0, np.int64), *(each.owners for each in plans)])
    mine = np.flatnonzero(owners == group.rank)
    return mine, digests[mine]


def _own_piece(each: Held, its: ArrayPlan, piece: int, output: Output) -> Bytes:
    lo, hi = its.span(piece)
    memory = each.direct(lo, hi)
    size = (hi - lo) * its.itemsize
    if memory is not None and (not output.bounces or size < SMALL):
        return memory
    data = output.take(size)
    if memory is not None:
        data[:] = memory
        return data
    assembly = Assembly(each, its, piece, data)
    assembly.add_own()
    assembly.check()
    return data


def _gather_round(
    group: Group,
    held: Sequence[Held],
    plans: Sequence[ArrayPlan],
    schedule: Rounds,
    number: int,
    output: Output | None,
    trouble: Trouble,
) -> list[tuple[int, int, Bytes]]:
    outgoing: dict[int, list[npt.NDArray[Any]]] = {}
    mine, candidates = entries(held, schedule, number, group.rank)
    with trouble:
        for array, piece, owner in candidates:
            if owner == group.rank:
                continue
            each, its = held[array], plans[array]
            sources = outgoing.setdefault(owner, [])
            if each.known:
                sources.extend(each.take(index, o) for _, _, index, o in cuts(its, piece, each.parts(each.rank)))
                continue
            (part,) = each.parts(each.rank)
            for box in its.boxes(piece):
                overlap = cut(part, box)
                sources.extend(rows_header(overlap))
                if overlap is not None:
                    sources.append(each.take(0, overlap))
    sizes = np.zeros(group.size, np.int64)
    for owner, sources in outgoing.items():
        sizes[owner] = sum(source.nbytes for source in sources)
    expected = group.counts(sizes)
    sent = {owner: np.empty(sizes[owner], np.uint8) for owner in outgoing if sizes[owner]}
    received = {rank: np.empty(count, np.uint8) for rank, count in enumerate(expected.tolist()) if count}
    with trouble:
        for owner, data in sent.items():
            pack(data, outgoing[owner])
    group.exchange(sent, received)
    found: list[tuple[int, int, Bytes]] = []
    with trouble:
        places = dict.fromkeys(received, 0)
        for array, piece in mine:
            each, its = held[array], plans[array]
            lo, hi = its.span(piece)
            size = (hi - lo) * its.itemsize
            data = output.take(size) if output is not None else np.empty(size, np.uint8)
            assembly = Assembly(each, its, piece, data)
            assembly.add_own()
            for rank, source in received.items():
                places[rank] = assembly.add(rank, source, places[rank])
            assembly.check()
            found.append((array, piece, data))
    return found
