"""The ranks of ``checkpoint.py``: each way to save and load, round after round."""

from __future__ import annotations

import errno
import json
import mmap
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from checkpoint_compressed import compressed
from mpi4py import MPI

from dmr.ckpt import ArrayItem, Block, BlockCyclic, Indices, Store
from dmr.ckpt.storage.direct import IN_MEMORY, file_system

WORLD = MPI.COMM_WORLD
COLUMNS = 1024
WARM = 2
SETTLING = 7
"""Saves after which a store has something to write over, and knows which way is the faster one here."""
Way = Callable[[], float | None]


class Bench:
    """The state, and the ways to save and load it; each returns seconds, or None when the clock around it counts."""

    def __init__(self, folder: Path, mib: int) -> None:
        self.folder = folder
        self.shape = (mib * 128 // WORLD.size * WORLD.size, COLUMNS)
        (self.box,) = Block().boxes(self.shape, WORLD.size)[WORLD.rank]
        # On a page of its own, as O_DIRECT wants it.
        memory = mmap.mmap(-1, 8 * self.box.size)
        self.local = np.frombuffer(memory, np.float64).reshape(self.box.shape)
        np.random.default_rng(WORLD.rank).random(out=self.local)
        self.copy = np.zeros_like(self.local)
        self.stores: dict[str, Store] = {}
        self.step = 0

    def fresh(self, name: str) -> Path:
        """Return an empty folder."""
        path = self.folder / name.replace(" ", "-")
        if WORLD.rank == 0:
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
        WORLD.Barrier()
        return path

    def file(self) -> Path:
        return self.folder / f"file-{WORLD.rank}"

    def save_files(self) -> None:
        handle = os.open(self.file(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        left = self.local.reshape(-1).view(np.uint8).data
        while left:
            left = left[os.write(handle, left) :]
        os.fsync(handle)
        os.close(handle)

    def load_files(self) -> None:
        into = np.empty(self.local.nbytes, np.uint8)
        handle = os.open(self.file(), os.O_RDONLY)
        left = into.data
        while left:
            left = left[os.readv(handle, [left]) :]
        os.close(handle)

    def save_over(self, flags: int) -> None:
        """Write over a shared file that is there, and no more: what the device takes, without digests and commit."""
        path = self.folder / f"over-{flags}"
        if WORLD.rank == 0 and not path.exists():
            with open(path, "wb") as stream:
                os.posix_fallocate(stream.fileno(), 0, WORLD.size * self.local.nbytes)
        WORLD.Barrier()
        handle = os.open(path, os.O_WRONLY | flags)
        for begin in range(0, self.local.nbytes, 4 << 20):
            part = self.local.reshape(-1).view(np.uint8)[begin : begin + (4 << 20)]
            if os.pwrite(handle, part.data, WORLD.rank * self.local.nbytes + begin) != len(part):
                raise OSError(errno.EIO, "a write was cut short, so that its time tells nothing", path)
        os.fsync(handle)
        os.close(handle)

    def save_write_at_all(self) -> None:
        path = self.folder / "at-all"
        if WORLD.rank == 0:
            path.unlink(missing_ok=True)
        WORLD.Barrier()
        file = MPI.File.Open(WORLD, str(path), MPI.MODE_CREATE | MPI.MODE_WRONLY)
        file.Write_at_all(WORLD.rank * self.local.nbytes, self.local.reshape(-1).view(np.uint8))
        file.Sync()
        file.Close()

    def save_gather(self) -> None:
        if WORLD.rank:
            WORLD.Send(self.local.reshape(-1).view(np.uint8), 0)
            return
        whole = np.empty(self.local.nbytes * WORLD.size, np.uint8)
        whole[: self.local.nbytes] = self.local.reshape(-1).view(np.uint8)
        for rank in range(1, WORLD.size):
            WORLD.Recv(whole[rank * self.local.nbytes : (rank + 1) * self.local.nbytes], rank)
        with open(self.folder / "gathered", "wb", buffering=0) as stream:
            left = whole.data
            while left:
                left = left[stream.write(left) :]
            os.fsync(stream.fileno())

    def save_h5py(self, collective: bool) -> None:
        import h5py

        path = self.folder / f"h5py-{collective}.h5"
        with h5py.File(path, "w", driver="mpio", comm=WORLD) as file:
            data = file.create_dataset("u", self.shape, "f8")
            if collective:
                with data.collective:
                    data[self.box.slices] = self.local
            else:
                data[self.box.slices] = self.local
            file.flush()

    def store(self, name: str, **options: Any) -> Store:
        if name not in self.stores:
            self.stores[name] = Store(self.fresh(name), WORLD, keep=1, **options)
        return self.stores[name]

    def save_ours(self, name: str, **options: Any) -> None:
        self.step += 1
        self.store(name, **options).save(self.step, {"u": ArrayItem(self.local, Block(), self.shape)})

    def save_later(self) -> float:
        """Return how long the program is held up."""
        store = self.store("later")
        store.wait()
        self.step += 1
        WORLD.Barrier()
        begin = time.perf_counter()
        store.save_later(self.step, {"u": ArrayItem(self.local, Block(), self.shape)})
        return time.perf_counter() - begin

    def load_ours(self, name: str) -> None:
        loaded = self.store(name).load_newest()
        assert loaded is not None
        loaded.array("u")

    def forget(self) -> None:
        """Drop the files from the page cache."""
        paths = [self.file(), *(each.path for each in self.store("direct").list())]
        for path in paths:
            handle = os.open(path, os.O_RDONLY)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)
        WORLD.Barrier()

    def memcpy(self) -> None:
        self.copy[:] = self.local


def timed(way: Way) -> float:
    """Return how long the slowest rank takes."""
    WORLD.Barrier()
    begin = time.perf_counter()
    own = way()
    if own is not None:
        return float(WORLD.allreduce(own, MPI.MAX))
    WORLD.Barrier()
    return time.perf_counter() - begin


def peak_beyond(way: Way, state: int) -> float:
    """Return the most memory that a rank had more than before, less the state that it gained, in MiB."""
    Path("/proc/self/clear_refs").write_text("5")

    def read(key: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(key)).split()[1]) << 10

    before = read("VmRSS")
    way()
    mine = (read("VmHWM") - before - state) / (1 << 20)
    return float(WORLD.allreduce(mine, MPI.MAX))


def ways(bench: Bench, mib: int) -> dict[str, Way]:
    """Return what is to be measured, in the order in which it runs."""
    import h5py

    found: dict[str, Way] = {
        "save files": bench.save_files,
        "save direct": lambda: bench.save_ours("direct"),
        "save gather": bench.save_gather,
        "save write_at_all": bench.save_write_at_all,
    }
    if file_system(bench.folder) not in IN_MEMORY:
        found["save over, cached"] = lambda: bench.save_over(0)
        found["save over, O_DIRECT"] = lambda: bench.save_over(os.O_DIRECT)
    if h5py.get_config().mpi:
        found["save mpio"] = lambda: bench.save_ours("mpio", driver="mpio")
        found["save h5py collective"] = lambda: bench.save_h5py(True)
        found["save h5py independent"] = lambda: bench.save_h5py(False)
    found["load files"] = bench.load_files
    found["load direct"] = lambda: bench.load_ours("direct")
    found["load files cold"] = bench.load_files
    found["load direct cold"] = lambda: bench.load_ours("direct")
    found["memcpy"] = bench.memcpy
    found["async stall"] = bench.save_later
    found["save direct, new files"] = lambda: bench.save_ours("new files", recycle=False)
    return found


def resized(bench: Bench, mib: int, writers: int, readers: int) -> Way:
    """Return a load on ``readers`` of what ``writers`` wrote, with as many bytes a rank as the whole bench."""
    shape = (mib * 128 // WORLD.size * readers, COLUMNS)
    folder = bench.fresh(f"{writers} to {readers}")
    writing = WORLD.Split(0 if WORLD.rank < writers else MPI.UNDEFINED, WORLD.rank)
    if writing != MPI.COMM_NULL:
        (box,) = Block().boxes(shape, writers)[writing.rank]
        with Store(folder, writing) as store:
            store.save(1, {"u": ArrayItem(np.random.default_rng(1).random(box.shape), Block(), shape)})
        writing.Free()
    reading = WORLD.Split(0 if WORLD.rank < readers else MPI.UNDEFINED, WORLD.rank)
    store_there = Store(folder, reading) if reading != MPI.COMM_NULL else None

    def way() -> None:
        if store_there is not None:
            loaded = store_there.load_newest()
            assert loaded is not None
            loaded.array("u")

    return way


def scattered(bench: Bench, mib: int) -> dict[str, Way]:
    """Return saves and loads of layouts that are scattered over the file, of a quarter of the size."""
    side = int((mib / 4 * (1 << 17)) ** 0.5) // 64 * 64
    rows = side * side // 64
    mine = np.flatnonzero(np.random.default_rng(1).integers(0, WORLD.size, rows) == WORLD.rank)
    cases: dict[str, tuple[Any, tuple[int, ...]]] = {
        "rows": (Block(), (side, side)),
        "blocks": (Block(axes=(0, 1), grid=_grid(WORLD.size)), (side, side)),
        "cyclic": (BlockCyclic((64, 64)), (side, side)),
        "indices": (Indices(mine), (rows, 64)),
    }
    found: dict[str, Way] = {}
    for name, (layout, shape) in cases.items():
        if name == "indices":
            local = np.random.default_rng(1).random((len(mine), 64))
        else:
            (part,) = layout.parts(shape, WORLD.size, WORLD.rank)
            local = np.random.default_rng(1).random(part.shape)
        store = Store(bench.fresh(f"scattered {name}"), WORLD, keep=1)

        item = ArrayItem(local, layout, shape)

        def save(store: Store = store, item: ArrayItem = item) -> None:
            bench.step += 1
            store.save(bench.step, {"u": item})

        def load(store: Store = store, layout: Any = layout) -> None:
            loaded = store.load_newest({"u": layout})
            assert loaded is not None
            loaded.array("u", layout)

        found[f"save {name}"] = save
        found[f"load {name}"] = load
    return found


def _grid(ranks: int) -> tuple[int, int]:
    rows = next(each for each in range(int(ranks**0.5), 0, -1) if ranks % each == 0)
    return rows, ranks // rows


def small(bench: Bench) -> Way:
    """Return a save of 1000 arrays of 16 KiB."""
    shape = (64, 32)
    (box,) = Block().boxes(shape, WORLD.size)[WORLD.rank]
    items = {f"array {number}": ArrayItem(np.ones(box.shape), Block(), shape) for number in range(1000)}
    store = Store(bench.fresh("small"), WORLD, keep=1)

    def save() -> None:
        bench.step += 1
        store.save(bench.step, items)

    return save


def main() -> None:
    settings = json.loads(sys.argv[1])
    bench = Bench(Path(settings["folder"]), settings["mib"])
    only = settings["only"]
    todo = ways(bench, settings["mib"])
    for writers, readers in [(4, 2), (4, 3), (2, 4)]:
        name = f"load to {writers}to{readers}"
        if max(writers, readers) <= WORLD.size and (not only or any(each in name for each in only)):
            todo[name] = resized(bench, settings["mib"], writers, readers)
    if not only or any(each in "scattered" for each in only):
        todo.update(scattered(bench, settings["mib"]))
    smaller: dict[str, list[float]] = {}
    if "compressed" in only:
        packed, smaller = compressed(bench.fresh, settings["mib"], SETTLING)
        todo.update(packed)
    todo["small arrays"] = small(bench)
    if only:
        todo = {
            name: way
            for name, way in todo.items()
            if any(each in name for each in only) or (name.split()[-1] in SCATTERED and "scattered" in only)
        }
    if any(name.startswith("load ") for name in todo):
        bench.save_files()
    if any(name.startswith(("save direct", "load ")) for name in todo):
        for _ in range(SETTLING):
            bench.save_ours("direct")
    times: dict[str, list[float]] = {name: [] for name in todo}
    for number in range(-WARM, settings["rounds"]):
        for name, way in todo.items():
            if name.endswith(" cold"):
                bench.forget()
            elif name.startswith("load "):
                way()  # into the page cache, which unbuffered writes go around
            seconds = timed(way)
            if name == "async stall":
                bench.store("later").wait()
            if number >= 0:
                times[name].append(seconds)
    times.update(smaller)
    state = bench.local.nbytes
    if not only:
        beyond = [
            peak_beyond(lambda: bench.save_ours("direct"), 0),
            peak_beyond(lambda: bench.load_ours("direct"), state),
        ]
        times["extra memory"] = [max(beyond)]
    if WORLD.rank == 0:
        print(json.dumps(times))


SCATTERED = ("rows", "blocks", "cyclic", "indices")

if __name__ == "__main__":
    main()
