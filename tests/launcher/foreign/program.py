"""A program that knows nothing of dmr: rank 0 computes, writes restart files in its own way, and the others wait.

Standard library only; started by mpirun as it is, without MPI.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

RANK = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("SLURM_PROCID", "0")))
SIZE = int(os.environ.get("OMPI_COMM_WORLD_SIZE", os.environ.get("SLURM_NTASKS", "1")))
LINES = 2000


def after(value: int, step: int) -> int:
    return (value * 6364136223846793005 + step + 1442695040888963407) % 2**64


def write(path: Path, step: int, value: int, slow: float, marker: bool) -> None:
    """Write in place, in two parts: a reader that comes in between finds half a file."""
    with open(path, "w") as stream:
        stream.write(f"{step} {value}\n" * LINES)
        stream.flush()
        time.sleep(slow)
        stream.write(f"end {step}\n")
    if marker:
        Path(f"{path}.done").write_text("")
    print(f"wrote {path} at {step}", flush=True)


def read(path: Path) -> tuple[int, int]:
    lines = path.read_text().splitlines()
    if len(lines) != LINES + 1 or not lines[-1].startswith("end ") or len(set(lines[:-1])) != 1:
        sys.exit(f"{path} is damaged")
    step, value = lines[0].split()
    return int(step), int(value)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("steps", type=int)
    parser.add_argument("--sleep", type=float, default=0.02)
    parser.add_argument("--slow", type=float, default=0.0)
    parser.add_argument("--every", type=int)
    parser.add_argument("--last", type=int, default=10**9, help="write none after that step")
    parser.add_argument("--signal")
    parser.add_argument("--file", type=Path)
    parser.add_argument("--start", type=Path)
    parser.add_argument("--name", default="restart.{}")
    parser.add_argument("--find", action="store_true", help="go on from the newest file of that name, if any")
    parser.add_argument("--marker", action="store_true")
    parser.add_argument("--exits", action="store_true")
    parser.add_argument("--die-in-write", type=int, help="die in the middle of the restart file of this step, once")
    given = parser.parse_args()
    asked: list[int] = []
    if given.signal:
        signal.signal(getattr(signal, f"SIG{given.signal}"), lambda number, frame: asked.append(number))
    if RANK > 0:
        while os.getppid() > 1 and not Path(f"done-{os.environ['DMR_TOKEN']}").exists():
            time.sleep(0.05)
        return
    step, value = 0, 1
    start = given.start
    if given.find:
        found = sorted(Path().glob(given.name.format("*")), key=lambda path: int(path.suffix[1:] or 0))
        start = found[-1] if found else None
    if start is not None:
        step, value = read(start)
    print(f"{SIZE} ranks, {given.steps} steps in all, from {step}", flush=True)
    while step < given.steps:
        value = after(value, step)
        step += 1
        print(f"step {step}", flush=True)
        time.sleep(given.sleep)
        by_file = given.file is not None and given.file.exists()
        wanted = bool(asked) or by_file
        asked.clear()
        if by_file:
            given.file.unlink()
        name = Path(given.name.format(step))
        if given.die_in_write == step and not Path("died").exists():
            Path("died").write_text("")
            name.write_text(f"{step} {value}\n" * 10)
            os._exit(9)
        if wanted or (given.every and step % given.every == 0 and step <= given.last):
            write(name, step, value, given.slow, given.marker)
        if wanted and given.exits:
            break
    else:
        Path("final.txt").write_text(str(value))
        print("all done", flush=True)
    Path(f"done-{os.environ['DMR_TOKEN']}").write_text("")


if __name__ == "__main__":
    main()
