"""Does to checkpoints what machines do to them, and judges what is left. Prints its counts as JSON.

After each fault the newest committed state has to load, bitwise, and nothing may hang. ``make faults`` runs
thousands; the tests run the same with fewer.

Examples: ``campaign.py``, ``campaign.py kills damage --times 10 --seed 7``
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import common
import damage
import folders
import kills


@contextmanager
def small_file_system(folder: Path) -> Any:
    """Mount a file system of 4 MiB; yields None where that is not allowed."""
    place = folder / "small"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "dmr-test", str(place)], capture_output=True, check=False
    )
    if made.returncode:
        yield None
        return
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def space(folder: Path, count: int, dice: random.Random, compress: str = "none") -> dict[str, Any]:
    """Run `space.py` on ranks in a small file system."""
    command = common.mpi_command(3)
    if not command:
        return {"cases": 0, "skipped": "no MPI"}
    with small_file_system(folder) as place:
        if place is None:
            return {"cases": 0, "skipped": "no mount without privileges"}
        arguments = [str(place), str(count), str(dice.randrange(1000)), compress]
        found = subprocess.run(
            [*command, "-m", "mpi4py", str(common.HERE / "space.py"), *arguments],
            env={**common.environment(), "PYTHONPATH": str(common.HERE)},
            capture_output=True,
            text=True,
            timeout=60 + count,
            check=False,
        )
        assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-4000:]
        counts: dict[str, Any] = json.loads(found.stdout)
        assert counts["refused"] and counts["saved"], counts
        return counts


SCENARIOS: dict[str, Callable[[Path, int, random.Random], dict[str, Any]]] = {
    "kills": lambda folder, times, dice: kills.one_process(folder, 200 * times, dice),
    "ranks": lambda folder, times, dice: kills.ranks(folder, 12 * times, dice),
    "every_point": lambda folder, times, dice: kills.every_point(folder),
    "kills_levels": lambda folder, times, dice: kills.one_process(folder, 60 * times, dice, levels=True),
    "ranks_levels": lambda folder, times, dice: kills.ranks(folder, 6 * times, dice, levels=True),
    "every_point_levels": lambda folder, times, dice: kills.every_point(folder, levels=True),
    "every_point_compressed": lambda folder, times, dice: kills.every_point(folder, compress="zlib"),
    "flips": lambda folder, times, dice: damage.flips(folder, 200 * times, dice),
    "truncations": lambda folder, times, dice: damage.truncations(folder, 60 * times, dice),
    "flips_compressed": lambda folder, times, dice: damage.flips(folder, 300 * times, dice, "zlib"),
    "truncations_compressed": lambda folder, times, dice: damage.truncations(folder, 60 * times, dice, "zlib"),
    "space": lambda folder, times, dice: space(folder, 40 * times, dice),
    "space_compressed": lambda folder, times, dice: space(folder, 25 * times, dice, "zlib"),
    "read_only": lambda folder, times, dice: folders.read_only(folder),
    "vanished": lambda folder, times, dice: folders.vanished(folder),
    "size_limit": lambda folder, times, dice: folders.size_limit(folder),
    "two_writers": lambda folder, times, dice: folders.two_writers(folder, 1.5 * times),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenario", nargs="*", help="all when none is named")
    parser.add_argument("--times", type=int, default=1, help="so many times the faults of the tests")
    parser.add_argument("--seed", type=int, default=None, help="of the random places and instants")
    parser.add_argument("--folder", type=Path, help="where to work; a temporary folder by default")
    options = parser.parse_args()
    seed = int(time.time()) if options.seed is None else options.seed
    counts: dict[str, Any] = {"seed": seed}
    for name in options.scenario or SCENARIOS:
        with tempfile.TemporaryDirectory(dir=options.folder, prefix=f"faults-{name}-") as folder:
            begin = time.monotonic()
            counts[name] = SCENARIOS[name](Path(folder), options.times, random.Random(f"{seed} {name}"))
            counts[name]["seconds"] = round(time.monotonic() - begin, 1)
        print(f"{name}: {counts[name]}", file=sys.stderr, flush=True)
    print(json.dumps(counts))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
