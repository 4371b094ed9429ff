"""Block-cyclic, irregular and indexed arrays: saved on N ranks, loaded on M in every layout; in one start of MPI.

Arguments: folder, drivers (comma-separated), and whose memory the ranks see: of "all", of "some" as on two nodes, of
"few" at most, of "none". Prints a JSON line with what was covered.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from dmr.ckpt import (
    ArrayItem,
    Block,
    BlockCyclic,
    Box,
    Boxes,
    CheckpointError,
    Counts,
    Indices,
    Mismatch,
    Replicated,
    Store,
)
from dmr.ckpt.comm.group import Group
from dmr.ckpt.transfer import plan, shared
from dmr.ckpt.transfer.held import local_shape

# Small pieces and rounds, so that small arrays have many.
plan.PIECE = 4096
plan.ROUND = 2 * 4096
WORLD = MPI.COMM_WORLD
SHAPE = (37, 110)
WHOLE = np.random.default_rng(1).random(SHAPE)
TALL = np.random.default_rng(2).integers(0, 1 << 40, (2000, 3))


def dice(*seed: int) -> np.random.Generator:
    return np.random.default_rng(list(seed))


def split_boxes(box: Box, rolls: np.random.Generator) -> list[Box]:
    """Cut a box in two again and again, at random."""
    axis = int(rolls.integers(len(box.lo)))
    if box.size < 150 or box.shape[axis] < 2:
        return [box]
    at = int(rolls.integers(box.lo[axis] + 1, box.hi[axis]))
    low, high = list(box.hi), list(box.lo)
    low[axis] = high[axis] = at
    return split_boxes(Box(box.lo, tuple(low)), rolls) + split_boxes(Box(tuple(high), box.hi), rolls)


def layouts(ranks: int, rank: int) -> dict[str, tuple[np.ndarray, Any]]:
    """Return global array and layout, by name."""
    rolls = dice(ranks)
    boxes = split_boxes(Box((0, 0), SHAPE), rolls)
    rolls.shuffle(boxes)  # type: ignore[arg-type]
    cuts = np.sort(rolls.integers(0, SHAPE[1] + 1, ranks - 1))
    counts = np.diff([0, *cuts, SHAPE[1]])
    owners = rolls.integers(0, ranks, len(TALL))
    mine = np.flatnonzero(owners == rank)
    ghosts = np.setdiff1d(dice(ranks, rank).integers(0, len(TALL), 300), mine)
    mixed = dice(ranks, rank, 1).permutation(np.concatenate([mine, ghosts]))
    return {
        "cyclic 2-D": (WHOLE, BlockCyclic((4, 16))),
        "cyclic small": (WHOLE, BlockCyclic((1, 3), grid=(1, ranks))),
        "cyclic axis": (WHOLE, BlockCyclic((5,), axes=(-1,))),
        "cyclic coarse": (WHOLE, BlockCyclic((64, 64))),
        "boxes": (WHOLE, Boxes(tuple(tuple(boxes[place::ranks]) for place in range(ranks)))),
        "uneven": (WHOLE, Counts(tuple(counts), axis=1)),
        "uneven rows": (TALL, Counts(tuple(np.bincount(owners, minlength=ranks)))),
        "indices": (TALL, Indices(np.concatenate([mine, ghosts]), owned=len(mine))),
        "indices mixed": (TALL, Indices(mixed, owned=np.isin(mixed, mine))),
        "indices 1-D": (TALL[:, 0].copy(), Indices(mixed.astype(np.uint32), owned=np.isin(mixed, mine))),
        "blocks": (WHOLE, Block(axes=(0, 1))),
        "copy": (WHOLE, Replicated()),
    }


def local(whole: np.ndarray, layout: Any, ranks: int, rank: int) -> np.ndarray:
    """Return what a rank holds, by plain indexing."""
    if isinstance(layout, Indices):
        return whole[layout.indices]
    if isinstance(layout, Boxes):
        return np.concatenate(
            [np.zeros(0), *(whole[box.slices].ravel() for box in layout.boxes(whole.shape, ranks)[rank])]
        )
    if isinstance(layout, BlockCyclic):
        (part,) = layout.parts(whole.shape, ranks, rank)
        axes = [np.arange(*axis) if isinstance(axis, tuple) else axis.positions(0, len(axis)) for axis in part.axes]
        found = whole[np.ix_(*axes)]
        assert found.size == sum(box.size for box in layout.boxes(whole.shape, ranks)[rank])
        return found
    return whole[layout.boxes(whole.shape, ranks)[rank][0].slices]


def main() -> None:
    folder, drivers, seen = Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3]
    if seen == "some":
        shared._node = lambda comm: comm.Split(comm.rank % 2)
    elif seen == "few":
        shared.SEEN = 2 * 3 * plan.ROUND  # of two ranks
    elif seen == "none":
        shared.FOLDER = folder / "nothing"
    made: set[Path] = set()
    path_of = shared._path

    def noted(token: np.ndarray) -> Path:
        path = path_of(token)
        made.add(path)
        return path

    shared._path = noted
    checked = 0
    for writers in range(1, WORLD.size + 1):
        writing = WORLD.Split(0 if WORLD.rank < writers else MPI.UNDEFINED, WORLD.rank)
        if writing != MPI.COMM_NULL:
            these = layouts(writers, writing.rank)
            items = {
                name: ArrayItem(local(whole, layout, writers, writing.rank), layout, whole.shape)
                for name, (whole, layout) in these.items()
            }
            for driver in drivers:
                with Store(folder / f"{writers}-{driver}", writing, driver=driver) as store:
                    store.save(1, items)
            writing.Free()
        WORLD.Barrier()
        files = [next((folder / f"{writers}-{driver}").glob("*.h5")).read_bytes() for driver in drivers]
        assert all(each == files[0] for each in files)
        for readers in range(1, WORLD.size + 1):
            reading = WORLD.Split(0 if WORLD.rank < readers else MPI.UNDEFINED, WORLD.rank)
            if reading != MPI.COMM_NULL:
                for driver in drivers:
                    checked += load(folder / f"{writers}-{driver}", driver, reading)
                reading.Free()
            WORLD.Barrier()
    refusals(folder / "refused")
    group = Group(WORLD)
    found = shared.shared(group, 3 * plan.ROUND)
    group.free()
    assert made or seen == "none"
    assert found.everywhere == (seen == "all") and found.anywhere == (seen != "none")
    assert len(found.of) == {"all": WORLD.size, "some": WORLD.size // 2, "few": 2, "none": 1}[seen]
    # Of these ranks alone, since others use that folder; and when all groups of them are through.
    WORLD.Barrier()
    leftovers = sum(WORLD.allgather([str(path) for path in made if path.exists()]), [])
    if WORLD.rank == 0:
        print(json.dumps({"arrays": checked, "drivers": drivers, "leftovers": leftovers}))


def load(folder: Path, driver: str, comm: MPI.Comm) -> int:
    wanted = layouts(comm.size, comm.rank)
    names = list(wanted)
    checked = 0
    with Store(folder, comm, driver=driver) as store:
        # In the saved layouts, or what they become
        loaded = store.load_newest()
        total = comm.allreduce(loaded.read_bytes)
        assert total == sum(whole.nbytes for whole, _ in wanted.values()), "every byte is to be read once"
        for name in names:
            whole = wanted[name][0]
            layout = loaded.specs[name].layout.at(comm.size)
            expected = local(whole, layout, comm.size, comm.rank)
            found = loaded.array(name)
            assert found.shape == local_shape(layout, whole.shape, comm.size, comm.rank)
            assert found.tobytes() == expected.tobytes(), (name, comm.size)
            checked += 1
        # Each in the layout of another one of the same global array
        for name, other in zip(names, names[1:] + names[:1], strict=True):
            whole, layout = wanted[name][0], wanted[other][1]
            if whole.shape == wanted[other][0].shape:
                found = loaded.array(name, layout)
                assert found.tobytes() == local(whole, layout, comm.size, comm.rank).tobytes(), (name, other, comm.size)
                checked += 1
        # This number of ranks' own lists and boxes, at once
        loaded = store.load_newest({name: layout for name, (_, layout) in wanted.items()})
        for name, (whole, layout) in wanted.items():
            assert loaded.array(name, layout).tobytes() == local(whole, layout, comm.size, comm.rank).tobytes()
            checked += 1
    return checked


def refusals(folder: Path) -> None:
    """What does not cover an array once is refused, by name, on every rank."""
    rank, size = WORLD.rank, WORLD.size
    rows = np.arange(rank * 10, rank * 10 + 10)
    many = np.arange(rank * 3000, rank * 3000 + 3000)  # of many rounds
    half = Box((0, 0), (20, 110))
    cases = [
        (Indices(rows[rank == 1 :]), (size * 10, 3), "row 10 is owned by no rank"),
        (Indices(rows - (rank == 1)), (size * 10, 3), "row 9 is owned by two ranks"),
        (Indices(np.append(many, 2999) if rank == 2 else many), (size * 3000, 3), "row 2999 is owned by two ranks"),
        (Indices(np.delete(many, 1500) if rank == 3 else many), (size * 3000, 3), "row 10500 is owned by no rank"),
        (Indices(rows), (size * 10 - 1, 3), f"rank {size - 1}: array 'u': Indices has"),
        (Indices(np.where(rows == 15, 14, rows)), (size * 10, 3), "rank 1: array 'u': Indices has 14 twice"),
        (Boxes(((half,), *(() for _ in range(size - 1)))), SHAPE, "hold 2200 of the 4070 elements"),
        (Boxes(((half, half),) + ((),) * (size - 1)), SHAPE, "overlap"),
        (Boxes(((half,),)), SHAPE, "boxes of 1 ranks, and there are"),
        (Counts((5,) * size), SHAPE, "numbers with sum"),
        (Block(axis=0), (size * 10, 3), "this rank's part has shape"),
    ]
    with Store(folder, WORLD, deadline=20) as store:
        for layout, shape, text in cases:
            data = np.zeros((len(layout.indices), 3) if isinstance(layout, Indices) else 7)
            try:
                store.save(1, {"u": ArrayItem(data, layout, shape)})
            except Mismatch as error:
                told = str(error)
            except CheckpointError as error:
                raise AssertionError(f"{layout}: {error!r}") from error
            else:
                raise AssertionError(f"{layout} was not refused")
            assert text in told and "array 'u'" in told, (text, told)
            assert len(set(WORLD.allgather(told))) == 1
        assert store.list() == []
        (box,) = Block().boxes(SHAPE, size)[rank]
        partial = Boxes(((half,), *(() for _ in range(size - 1))), partial=True)
        store.save(0, {"u": ArrayItem(WHOLE[box.slices], Block(), SHAPE)})
        store.save(1, {"u": ArrayItem(WHOLE[half.slices].ravel() if rank == 0 else np.zeros(0), partial, SHAPE)})
        whole = store.load_newest().array("u", Replicated())
        assert (whole[half.slices] == WHOLE[half.slices]).all() and (whole[20:] == 0).all()


main()
