"""What `resize.py` runs: the malleable program, bare starts of it inside a job, and the redistribution in memory.

resize_worker.py run MIB FOLDER STEPS      on ranks, under dmr-launch or alone
resize_worker.py bare MIB FOLDER SIZES     in a batch job: starts the same program as the launcher would
resize_worker.py memory MIB OLD NEW TIMES  on ranks: Alltoallv from OLD parts to NEW ones
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import dmr

PACE = 0.05
PATIENCE, TRIES = 30.0, 3
"""A bare start that has not ended by then is made again, so often."""
COLUMNS = 1024
BYTES = 8


def rows_of(mib: int) -> int:
    return mib * 2**20 // (COLUMNS * BYTES)


def run(mib: int, folder: Path, steps: int) -> None:
    """Compute with a state of that size; rank 0 keeps the times of this generation's first and last step."""
    import dmr

    @dmr.malleable
    def main(run: dmr.Run) -> None:
        import numpy as np

        state = run.array("state", (rows_of(mib), COLUMNS))
        if run.fresh and steps > 1:
            # Bits that no file system can pack, and that cost little.
            state.local[:] = np.random.default_rng(run.rank).random(COLUMNS)
            state.local[:] += np.arange(state.local.shape[0])[:, None]
        first = 0.0
        handle = os.open(folder / f"{run.generation:04d}", os.O_WRONLY | os.O_CREAT, 0o600) if run.rank == 0 else -1
        for step in run.steps(steps):
            first = first or time.time()
            if handle >= 0:
                os.pwrite(handle, struct.pack("dd", first, time.time()), 0)
            state.local[0, 0] = step
            time.sleep(PACE if steps > 1 else 0.0)
            if handle >= 0:
                os.pwrite(handle, struct.pack("dd", first, time.time()), 0)

    main()


def times(folder: Path, generation: int) -> tuple[float, float]:
    """Return when the first step of a generation began, and when its last one ended."""
    found: tuple[float, float] = struct.unpack("dd", (folder / f"{generation:04d}").read_bytes())
    return found


def bare(mib: int, folder: Path, sizes: list[int]) -> None:
    """Start the program as the launcher does, without a launcher; write the seconds until its first step, by size."""
    import dataclasses

    from dmr.launcher.engines.engine import Launch
    from dmr.launcher.slurm.engine import SlurmEngine

    engine = SlurmEngine()
    held = engine.allocation()
    command = (sys.executable, __file__, "run", str(mib), str(folder), "1")
    found = {}
    for size in sizes:
        place = dataclasses.replace(held, nodes=held.nodes[:size])
        launch = Launch(command, place, {}, Path.cwd(), folder / "bare.out")
        engine.flavour(launch)
        for _ in range(TRIES):
            began = time.time()
            ranks = engine.start(launch)
            while (status := ranks.poll()) is None and time.time() - began < PATIENCE:
                time.sleep(0.02)
            if status == 0:
                found[size] = times(folder, 0)[0] - began
                break
            ranks.kill()  # on virtual nodes a start of Open MPI 4 dies or hangs now and then
        else:
            raise SystemExit(f"{TRIES} bare starts failed: see {folder}/bare.out")
    temporary = folder / "bare.part"
    temporary.write_text(json.dumps(found))
    temporary.rename(folder / "bare.json")


def memory(mib: int, old: int, new: int, repeats: int) -> None:
    """Print the least seconds of the redistribution alone, over some repeats: ranks 0 … ``new`` - 1 get it."""
    import numpy as np
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rank, rows = comm.Get_rank(), rows_of(mib)

    def part(index: int, parts: int) -> tuple[int, int]:
        if index >= parts:
            return rows, rows
        each, left = divmod(rows, parts)
        low = index * each + min(index, left)
        return low, low + each + (index < left)

    def counts(mine: tuple[int, int], parts: int) -> list[int]:
        others = [part(index, parts) for index in range(comm.Get_size())]
        return [max(0, min(mine[1], high) - max(mine[0], low)) * COLUMNS for low, high in others]

    mine, wanted = part(rank, old), part(rank, new)
    source, target = np.ones((mine[1] - mine[0], COLUMNS)), np.zeros((wanted[1] - wanted[0], COLUMNS))
    send, receive = counts(mine, new), counts(wanted, old)
    least = float("inf")
    for _ in range(repeats):
        comm.Barrier()
        began = time.perf_counter()
        comm.Alltoallv([source, send], [target, receive])
        comm.Barrier()
        least = min(least, time.perf_counter() - began)
    wrong = comm.allreduce(int(not np.all(target == 1)))
    if rank == 0:
        print(json.dumps({"seconds": least, "wrong": wrong}), flush=True)


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "run":
        run(int(words[0]), Path(words[1]), int(words[2]))
    elif what == "bare":
        bare(int(words[0]), Path(words[1]), [int(word) for word in words[2].split(",")])
    else:
        memory(int(words[0]), int(words[1]), int(words[2]), int(words[3]))
