"""The ranks of ``checkpoint.py`` with PyTorch's Distributed Checkpoint; needs PyTorch, and neither dmr nor mpi4py."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

COLUMNS = 1024
WARM = 2


def start() -> tuple[int, int]:
    """Join the ranks that mpirun or srun has started; return rank and their number."""
    names = [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS"),
    ]
    rank, size = next((int(os.environ[r]), int(os.environ[s])) for r, s in names if r in os.environ)
    meeting = Path(json.loads(sys.argv[1])["folder"]) / "meeting"
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    return rank, size


def timed(way: Callable[[], object]) -> float:
    dist.barrier()
    begin = time.perf_counter()
    way()
    dist.barrier()
    return time.perf_counter() - begin


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    settings = json.loads(sys.argv[1])
    rank, size = start()
    mesh = init_device_mesh("cpu", (size,))
    rows = settings["mib"] * 128 // size
    local = torch.rand(rows, COLUMNS, dtype=torch.float64)
    state = {"u": DTensor.from_local(local, mesh, [Shard(0)])}
    times: dict[str, list[float]] = {"save dcp": [], "load dcp": []}
    before: Path | None = None
    for number in range(-WARM, settings["rounds"]):
        path = Path(settings["folder"]) / f"dcp-{number}"

        def save(path: Path = path) -> None:
            dcp.save(state, checkpoint_id=str(path))

        def load(path: Path = path) -> None:
            dcp.load(state, checkpoint_id=str(path))

        saved = timed(save)
        load()
        loaded = timed(load)
        if number >= 0:
            times["save dcp"].append(saved)
            times["load dcp"].append(loaded)
        if rank == 0 and before is not None:
            shutil.rmtree(before)
        before = path
    if rank == 0:
        print(json.dumps(times))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
