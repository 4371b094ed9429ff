"""Saving and loading one array that is spread over ranks, beside other ways to do it.

All ways run in turn in one start of the ranks, round after round; two rounds warm, the median of the others counts.
A save counts until the data is durable (digests, commit and fsync included), a load until it is verified.

Prints times in seconds and these ratios:

save_vs_limit         file per rank (write, fsync) ÷ ours: above 1 is faster than a file for each rank; ours writes
                      over a file that is not kept any more, save_new_files_vs_limit is without that
save_vs_device        writing over a shared file that is there, and no more ÷ ours: the room that is left;
                      save_vs_device_o_direct around the page cache
save_vs_gather        gather to rank 0, which writes ÷ ours
save_vs_dcp           PyTorch Distributed Checkpoint ÷ ours, with --torch-python
load_vs_limit         file per rank (read) ÷ ours, read once before; load_cold_vs_limit with a dropped page cache
load_4to2 …           ours, to another number of ranks ÷ ours to the same with as many bytes a rank
extra_memory_mib      most memory of a rank beyond the state, in a save and a load
async_stall_vs_memcpy what the program waits in an asynchronous save ÷ a copy of its state in memory
small_1000_arrays_s   1000 arrays of 16 KiB on all ranks: seconds to save
scattered_…           2-D blocks, block-cyclic, index lists: time over that of contiguous rows, save and load
compressed_…          with --only compressed: time over that of the same array uncompressed, save, load and load with a
                      dropped page cache (cold), and how many times smaller the file is (ratio); random floats, a
                      smooth field, one with little in it, small integers

Examples: ``checkpoint.py --ranks 4 --mib 1024 --dir /tmp --json -``
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

WORKER = Path(__file__).with_name("checkpoint_worker.py")
DCP = Path(__file__).with_name("checkpoint_dcp.py")


def starter() -> list[str]:
    """Return the command that starts ranks, without their number."""
    beside = Path(sys.executable).parent
    found = [str(beside / name) for name in ("mpirun", "mpiexec") if (beside / name).exists()]
    program = (found or [shutil.which("mpirun") or shutil.which("mpiexec") or ""])[0]
    if not program:
        raise click.ClickException("there is no mpirun and no mpiexec: install an MPI (Debian: openmpi-bin)")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    return [program, "--oversubscribe"] if "Open MPI" in said or "OpenRTE" in said else [program]


def run(ranks: int, python: str, script: Path, settings: dict[str, Any]) -> dict[str, list[float]]:
    """Run a worker on ranks; return seconds of each round, by name."""
    environment = {
        **os.environ,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "H5PY_ALWAYS_USE_MPI": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [*starter(), "-n", str(ranks), python, str(script), json.dumps(settings)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as job:
        try:
            out, _ = job.communicate()
        except BaseException:
            job.terminate()
            raise
    if job.returncode:
        raise click.ClickException(f"{script.name} ended with status {job.returncode}")
    measured: dict[str, list[float]] = json.loads(out.splitlines()[-1])
    return measured


def ratios(times: dict[str, float], ranks: int) -> dict[str, float]:
    """Return the figures that the help names, of medians."""
    found: dict[str, float] = {}

    def over(name: str, one: str, other: str) -> None:
        if one in times and other in times and times[other]:
            found[name] = round(times[one] / times[other], 3)

    over("save_vs_limit", "save files", "save direct")
    over("save_vs_gather", "save gather", "save direct")
    over("save_vs_dcp", "save dcp", "save direct")
    over("save_vs_write_at_all", "save write_at_all", "save direct")
    over("save_vs_h5py_collective", "save h5py collective", "save direct")
    over("save_vs_h5py_independent", "save h5py independent", "save direct")
    over("save_vs_device", "save over, cached", "save direct")
    over("save_vs_device_o_direct", "save over, O_DIRECT", "save direct")
    over("save_mpio_vs_limit", "save files", "save mpio")
    over("save_new_files_vs_limit", "save files", "save direct, new files")
    over("load_vs_limit", "load files", "load direct")
    over("load_cold_vs_limit", "load files cold", "load direct cold")
    over("load_vs_dcp", "load dcp", "load direct")
    for name in times:
        if name.startswith("load to "):
            over(f"load_{name.removeprefix('load to ')}", name, "load direct")
    over("async_stall_vs_memcpy", "async stall", "memcpy")
    for name in ("blocks", "cyclic", "indices"):
        over(f"scattered_save_{name}", f"save {name}", "save rows")
        over(f"scattered_load_{name}", f"load {name}", "load rows")
    for name, each in times.items():
        if name.startswith("ratio compressed "):
            _, _, kind, codec = name.split()
            over(f"compressed_save_{kind}_{codec}", f"save compressed {kind} {codec}", f"save compressed {kind} none")
            over(f"compressed_cold_{kind}_{codec}", f"cold compressed {kind} {codec}", f"cold compressed {kind} none")
            over(f"compressed_load_{kind}_{codec}", f"load compressed {kind} {codec}", f"load compressed {kind} none")
            found[f"compressed_ratio_{kind}_{codec}"] = round(each, 2)
    if "small arrays" in times:
        found["small_1000_arrays_s"] = round(times["small arrays"], 3)
    if "extra memory" in times:
        found["extra_memory_mib"] = round(times["extra memory"], 1)
    return found


@click.command(help=__doc__.replace("\n\n", "\n\n\b\n"))
@click.option("--ranks", default=4, show_default=True)
@click.option("--mib", default=1024, show_default=True, help="Size of the array, over all ranks.")
@click.option("--dir", "folder", type=click.Path(path_type=Path, exists=True, file_okay=False), required=True)
@click.option("--rounds", default=5, show_default=True, help="Rounds that count.")
@click.option("--only", default="", help="Only the ways whose name holds one of these, comma-separated.")
@click.option("--torch-python", help="A Python with PyTorch, to compare with its Distributed Checkpoint.")
@click.option("--json", "out", type=click.Path(path_type=Path), help="Write the figures to a file, - for output.")
def main(
    ranks: int, mib: int, folder: Path, rounds: int, only: str, torch_python: str | None, out: Path | None
) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the ranks and their files go too
    place = Path(tempfile.mkdtemp(prefix="dmr-bench-", dir=folder))
    settings = {"folder": str(place), "mib": mib, "rounds": rounds, "only": [each for each in only.split(",") if each]}
    try:
        measured = run(ranks, sys.executable, WORKER, settings)
        if torch_python:
            measured.update(run(ranks, torch_python, DCP, settings))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    medians = {name: statistics.median(each) for name, each in measured.items()}
    figures = {
        "ranks": ranks,
        "mib": mib,
        "rounds": rounds,
        "seconds": {name: round(each, 4) for name, each in medians.items() if not name.startswith("ratio ")},
        "spread": {name: [round(min(each), 4), round(max(each), 4)] for name, each in measured.items()},
        **ratios(medians, ranks),
    }
    text = json.dumps(figures, indent=2)
    if out is not None and str(out) != "-":
        out.write_text(text + "\n")
        return
    if out is not None:
        click.echo(text)
        return
    for name, each in medians.items():
        if name.startswith("ratio "):
            continue
        speed = f"{mib / 1024 / each:6.2f} GiB/s" if name.startswith(("save ", "load ")) and each else ""
        click.echo(f"{name:28} {each:9.4f}   {speed}")
    for name, each in ratios(medians, ranks).items():
        click.echo(f"{name:28} {each}")


if __name__ == "__main__":
    main()
