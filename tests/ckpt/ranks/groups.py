"""Ragged rows, particles, per-rank arrays and streams: saved on N ranks, loaded on M; in one start of MPI.

Argument: folder. Prints a JSON line with what was covered.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from dmr.ckpt import (
    ArrayItem,
    Block,
    CheckpointError,
    Mismatch,
    ParticlesItem,
    PerRankItem,
    RaggedItem,
    Store,
    StreamItem,
    Unsupported,
)
from dmr.ckpt.state import regroup
from dmr.ckpt.transfer import plan

plan.PIECE = 4096
regroup.ROUND_BYTES = 5000
WORLD = MPI.COMM_WORLD
ROWS, COUNT = 211, 1500
DICE = np.random.default_rng(4)
LENGTHS = DICE.integers(0, 9, ROWS) * (DICE.random(ROWS) < 0.7)
VALUES = DICE.random((LENGTHS.sum(), 2))
STARTS = np.concatenate([[0], np.cumsum(LENGTHS)])
IDS = DICE.permutation(COUNT).astype(np.uint64) ** 3 - np.uint64(5)  # spread out, with a wrap around zero
PLACES = DICE.random((COUNT, 3)).astype("f4")
MASS = DICE.random(COUNT)
TAGS = DICE.integers(0, 1000, COUNT).astype("U3")


def shares(ranks: int, count: int, seed: int) -> list[slice]:
    """Return uneven shares, some of them empty."""
    cuts = np.sort(np.random.default_rng([ranks, seed]).integers(0, count + 1, ranks - 1))
    bounds = [0, *cuts.tolist(), count]
    return [slice(begin, end) for begin, end in zip(bounds, bounds[1:], strict=False)]


def own(rank: int) -> np.ndarray:
    return np.arange(6.0).reshape(2, 3) * 10 ** np.float64(rank)


def save(folder: Path, comm: MPI.Comm) -> None:
    rows, some = shares(comm.size, ROWS, 1)[comm.rank], shares(comm.size, COUNT, 2)[comm.rank]
    generator = np.random.Generator(np.random.PCG64DXSM(comm.rank))
    generator.random(comm.rank)
    items: dict[str, Any] = {
        "mesh": RaggedItem(LENGTHS[rows], VALUES[STARTS[rows.start] : STARTS[rows.stop]]),
        "dust": ParticlesItem(IDS[some], {"x": PLACES[some], "mass": MASS[some], "tag": TAGS[some]}),
        "log": PerRankItem(np.full((comm.rank + 1, 2), comm.rank), "concat"),
        "flux": PerRankItem(own(comm.rank), "sum"),
        "clock": PerRankItem(np.array(comm.rank + 0.5), "first"),
        "best": PerRankItem(np.array(comm.rank % 3), lambda values, rank, ranks: np.max(values)),
        "noise": StreamItem(generator, seed=11),
        "u": ArrayItem(np.ones(0) if comm.rank else np.ones(1), Block(), (1,)),
    }
    with Store(folder, comm) as store:
        store.save(3, items)


def load(folder: Path, comm: MPI.Comm, writers: int) -> int:
    same = writers == comm.size
    with Store(folder, comm) as store:
        loaded = store.load_newest()
        assert {name: spec.kind for name, spec in loaded.specs.items()} == {
            "mesh": "ragged", "dust": "particles", "log": "per-rank", "flux": "per-rank", "clock": "per-rank",
            "best": "per-rank", "noise": "stream", "u": "array",
        }  # fmt: skip
        before = comm.allreduce(loaded.read_bytes)
        assert before == sum(each.bytes for each in loaded.manifest.arrays), "every byte is to be read once"

        for by in (None, "rows", "values"):
            part = loaded.ragged("mesh", by)
            parts = comm.allgather((part.first_row, len(part.counts), len(part.values)))
            assert sum(rows for _, rows, _ in parts) == ROWS and sum(values for *_, values in parts) == len(VALUES)
            begin, end = part.first_row, part.first_row + len(part.counts)
            assert (part.counts == LENGTHS[begin:end]).all()
            assert part.values.tobytes() == VALUES[STARTS[begin] : STARTS[end]].tobytes()
            if by is None and same:
                assert slice(begin, end) == shares(comm.size, ROWS, 1)[comm.rank]
                assert comm.allreduce(loaded.read_bytes) == before, "what was read ahead is handed over"
            if by == "values":
                assert max(values for *_, values in parts) <= -(-len(VALUES) // comm.size) + 2 * LENGTHS.max()

        check_particles(loaded, comm, same)
        log = loaded.per_rank("log")
        whole = np.concatenate([np.full((rank + 1, 2), rank) for rank in range(writers)])
        assert (np.concatenate(comm.allgather(log)) == whole).all()
        assert not same or (log == comm.rank).all() and len(log) == comm.rank + 1
        flux = loaded.per_rank("flux")
        assert flux.shape == (2, 3)
        assert (
            (flux == own(comm.rank)).all()
            if same
            else np.allclose(np.sum(comm.allgather(flux), axis=0), sum(own(rank) for rank in range(writers)))
        )
        clock = loaded.per_rank("clock")
        assert clock.shape == () and clock == (comm.rank + 0.5 if same else 0.5)
        if same:
            assert loaded.per_rank("best") == comm.rank % 3
        else:
            assert loaded.per_rank("best", lambda values, rank, ranks: np.max(values)) == min(writers - 1, 2)
            refuse(lambda: loaded.per_rank("best"), Mismatch, "give the function")
            refuse(
                lambda: loaded.per_rank("best", lambda values, rank, ranks: 1 / rank),
                CheckpointError,
                "the rule of per-rank",
            )
        noise = loaded.stream("noise")
        if same:
            expected = np.random.Generator(np.random.PCG64DXSM(comm.rank))
            expected.random(comm.rank)
            assert noise.random() == expected.random()
        first = comm.allgather(float(noise.random()))
        assert len(set(first)) == comm.size and type(noise.bit_generator).__name__ == "PCG64DXSM"
        refuse(lambda: loaded.particles("mesh"), Mismatch, "saved as ragged, and the program asks for it as particles")
        refuse(lambda: loaded.array("dust"), Mismatch, "saved as particles")
    return 1


def check_particles(loaded: Any, comm: MPI.Comm, same: bool) -> None:
    def check(part: Any) -> list[int]:
        number = {int(one): place for place, one in enumerate(IDS)}
        where = [number[int(one)] for one in part.ids]
        assert (part.columns["x"] == PLACES[where]).all() and part.columns["x"].dtype == np.float32
        assert (part.columns["mass"] == MASS[where]).all() and (part.columns["tag"] == TAGS[where]).all()
        everywhere = comm.allgather(where)
        assert sorted(sum(everywhere, [])) == list(range(COUNT))
        return where

    stored = check(loaded.particles("dust"))
    assert stored == sorted(stored)
    if same:
        some = shares(comm.size, COUNT, 2)[comm.rank]
        assert stored == list(range(some.start, some.stop))
    by_id = loaded.particles("dust", by="id")
    check(by_id)
    ordered = np.sort(IDS)
    bounds = [rank * (COUNT // comm.size) + min(rank, COUNT % comm.size) for rank in range(comm.size + 1)]
    assert (by_id.ids == ordered[bounds[comm.rank] : bounds[comm.rank + 1]]).all()
    by_weight = loaded.particles("dust", by="weight", weight="mass")
    runs = check(by_weight)
    assert runs == sorted(runs)
    assert abs(by_weight.columns["mass"].sum() - MASS.sum() / comm.size) <= 1
    slabs = loaded.particles("dust", by=lambda ids, columns: (columns["x"][:, 0] * comm.size).astype(int))
    check(slabs)
    assert (slabs.ids[:-1] < slabs.ids[1:]).all()
    assert ((slabs.columns["x"][:, 0] * comm.size).astype(int) == comm.rank).all()
    refuse(lambda: loaded.particles("dust", by=lambda ids, columns: ids * 0 + 99), Mismatch, "ranks 99 to 99")
    refuse(lambda: loaded.particles("dust", by=lambda ids, columns: {}["x"]), CheckpointError, "KeyError")
    refuse(lambda: loaded.particles("dust", by="weight", weight="tag"), Mismatch, "no column of one number")
    refuse(lambda: loaded.particles("dust", by="weight"), Mismatch, "no column of one number")


def refuse(call: Any, kind: type[CheckpointError], text: str) -> None:
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"not refused: {text}")


def refusals(folder: Path) -> None:
    rank = WORLD.rank
    ids = np.arange(3, dtype=np.int64) + 3 * rank
    cases: list[tuple[Any, type[CheckpointError], str]] = [
        (PerRankItem(np.zeros(2)), Unsupported, "declares no rule"),
        (PerRankItem(np.zeros(2), "mean"), Unsupported, "declares the rule 'mean'"),  # type: ignore[arg-type]
        (PerRankItem(np.zeros(2 + rank), "sum"), Mismatch, "differs between ranks"),
        (RaggedItem(np.array([1, 2]), np.zeros(2)), Mismatch, "add up to 3"),
        (RaggedItem(np.array([1, -1]), np.zeros(0)), Mismatch, "not negative"),
        (ParticlesItem(ids.astype("i4"), {}), Mismatch, "int64 or uint64"),
        (ParticlesItem(ids, {"x": np.zeros(2)}), Mismatch, "column 'x' has shape"),
        (ParticlesItem(ids, {"x": np.zeros(3, "f4" if rank == 1 else "f8")}), Mismatch, "rank 1 has not"),
        (ParticlesItem(ids, {"id": ids}), Unsupported, "can't be called 'id'"),
    ]
    with Store(folder, WORLD, deadline=20) as store:
        for item, kind, text in cases:
            refuse(lambda item=item: store.save(1, {"p": item}), kind, text)
        taken = {"p": ParticlesItem(ids, {}), "p:id": ArrayItem(np.zeros(0), Block(), (0,))}
        refuse(lambda: store.save(1, taken), Unsupported, "'p:id' is taken by a part of item 'p'")
        assert store.list() == []
        store.save(1, {"p": ParticlesItem(ids[:0], {"x": np.zeros((0, 3))}), "r": RaggedItem(ids[:0], np.zeros(0))})
        loaded = store.load_newest()
        assert len(loaded.particles("p", by="id").ids) == 0 and loaded.particles("p").columns["x"].shape == (0, 3)
        assert len(loaded.ragged("r", "values").counts) == 0


def main() -> None:
    logging.getLogger("dmr.ckpt").setLevel(logging.ERROR)
    folder = Path(sys.argv[1])
    pairs = 0
    for writers in range(1, WORLD.size + 1):
        writing = WORLD.Split(0 if WORLD.rank < writers else MPI.UNDEFINED, WORLD.rank)
        if writing != MPI.COMM_NULL:
            save(folder / str(writers), writing)
            writing.Free()
        WORLD.Barrier()
        for readers in range(1, WORLD.size + 1):
            reading = WORLD.Split(0 if WORLD.rank < readers else MPI.UNDEFINED, WORLD.rank)
            if reading != MPI.COMM_NULL:
                pairs += load(folder / str(writers), reading, writers)
                reading.Free()
            WORLD.Barrier()
    refusals(folder / "refused")
    if WORLD.rank == 0:
        print(json.dumps({"pairs": pairs}))


main()
