"""``dmr ckpt``: look at checkpoints and check them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ...resize import words
from . import LazyGroup, fail, format_size, json_option, print_json, print_table
from .completing import complete_where
from .foreign import UNKNOWN, is_foreign, list_records, refuse, show_record, verify_records
from .together import together


@click.command(
    cls=LazyGroup,
    table={
        "convert": (".ckpt_change:convert", "Write one anew with other dtypes or layouts."),
        "diff": (".ckpt_change:diff", "Compare the content of two."),
        "export": (".ckpt_change:export", "Write arrays to .npy, .npz or .h5."),
        "import": (".ckpt_change:import_", "Make a first one of .npy, .npz or .h5 files."),
        "ls": (".ckpt:ls", "List those of a run or folder."),
        "prune": (".ckpt_change:prune", "Remove those that a rule does not keep."),
        "show": (".ckpt:show", "Show what one holds."),
        "verify": (".ckpt:verify", "Compare every piece with its digest."),
    },
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="WHERE is a checkpoint file, a folder of them, a run directory, or a run's id below ./dmr-runs.",
)
def ckpt() -> None:
    """List, show, check, compare, export, import, prune and convert checkpoints.

    \b
    Examples:
      dmr ckpt ls dmr-runs/heat-4711
      dmr ckpt show heat-4711               the newest one
      dmr ckpt verify dmr-runs/heat-4711/checkpoints/step-000000000400-g0002.h5
    """


@click.command()
@click.argument("where", shell_complete=complete_where)
@click.option("--raw", is_flag=True, help="Look into each, to tell what it would take without compression.")
@json_option
def ls(where: str, raw: bool, as_json: bool) -> None:
    """List the checkpoints of WHERE, newest first; those in the fast folder of this node among them.

    STATE tells what was found bad when it was loaded or
    verified; what is not known to be bad is whole for certain only when dmr ckpt verify has read it.

    \b
    Examples:
      dmr ckpt ls heat-4711
      dmr ckpt ls ./checkpoints --raw --json
    """
    from ...ckpt.twolevel.fast import everywhere, find

    folder = find_folder(where)
    if is_foreign(folder):
        list_records(folder, as_json)
        return
    fast, host = find(folder)
    found = everywhere(folder, fast)
    sizes = [_raw_bytes(each) if raw else None for each in found]
    if as_json:
        more = [{"raw_bytes": count} if raw else {} for count in sizes]
        print_json([{**asdict(each), **its} for each, its in zip(found, more, strict=True)])
        return
    if host is not None and fast is None:
        click.echo(f"newer ones may be in the fast folder of {host}", err=True)
    if not found:
        click.echo(f"no checkpoints in {folder}/")
        return
    rows = [("STEP", "GEN", "SIZE", *(["RAW"] if raw else []), "SAVED", "FILE", "STATE")]
    for each, count in zip(found, sizes, strict=True):
        saved = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each.time))
        state = UNKNOWN if each.bad is None else "bad: " + each.bad.removeprefix(f"{each.path}: ")
        name = f"{each.path.name} (fast)" if each.fast else each.path.name
        size = [format_size(each.bytes)]
        if raw:
            size.append("-" if count is None else format_size(count))
        rows.append((str(each.step), str(each.generation), *size, saved, name, state))
    print_table(rows, right="rrrr" if raw else "rrr")


def _raw_bytes(info: Any) -> int | None:
    """Return the bytes of a checkpoint without compression, None where that can't be read."""
    from ...ckpt import CheckpointError
    from ...ckpt.storage.h5file import read_content

    try:
        return read_content(info.path).raw_bytes if info.bad is None else None
    except (CheckpointError, OSError):
        return None


@click.command()
@click.argument("where", shell_complete=complete_where)
@click.option("--step", type=int, help="The checkpoint of this step, instead of the newest.")
@click.option("--stats", is_flag=True, help="Read the numbers too: least, greatest, mean, count of NaN.")
@json_option
def show(where: str, step: int | None, stats: bool, as_json: bool) -> None:
    """Show what a checkpoint holds: names, shapes, dtypes, layouts, who wrote it.

    \b
    Examples:
      dmr ckpt show heat-4711
      dmr ckpt show heat-4711 --step 400 --stats
      dmr ckpt show step-000000000400-g0002.h5 --json
    """
    if not Path(where).is_file() and is_foreign(find_folder(where)):
        if stats:
            fail("--stats: the files of a program's own are not read")
        show_record(find_folder(where), step, as_json)
        return
    with opened(find_file(where, step)) as file:
        manifest = file.manifest
        arrays = []
        for each in manifest.arrays:
            row: dict[str, Any] = {
                "name": each.name,
                "shape": list(each.shape),
                "dtype": str(each.dtype),
                "layout": each.layout.to_json(),
                "bytes": each.bytes,
                "pieces": each.pieces,
                "stored_bytes": file.stored_bytes(each.name),
                "compression": None if each.filter is None else str(each.filter.codec),
            }
            if stats:
                row["stats"] = _stats(file, each)
            arrays.append(row)
        if as_json:
            print_json(
                {
                    "path": str(file.path),
                    "step": manifest.step,
                    "generation": manifest.generation,
                    "run": manifest.run,
                    "ranks": manifest.ranks,
                    "bytes": file.bytes,
                    "raw_bytes": file.raw_bytes,
                    "info": manifest.info,
                    "arrays": arrays,
                    "groups": dict(manifest.groups),
                    "values": dict(manifest.values),
                    "generators": {name: state["bit_generator"] for name, state in manifest.rngs.items()},
                }
            )
            return
        run = f" of run {manifest.run}" if manifest.run else ""
        packed = bool(manifest.chunks)
        click.echo(f"{file.path}")
        click.echo(
            f"step {manifest.step}, generation {manifest.generation}{run}, "
            f"written by {words.count(manifest.ranks, 'rank')}, {format_size(file.bytes)}"
            + (f", {format_size(file.raw_bytes)} uncompressed" if packed else "")
        )
        if arrays:
            head = ("ARRAY", "SHAPE", "DTYPE", "LAYOUT", "SIZE") + (("STORED", "AS") if packed else ())
            rows = [head + (("MIN", "MAX", "MEAN", "NAN") if stats else ())]
            for row, entry in zip(arrays, manifest.arrays, strict=True):
                shape = "×".join(map(str, entry.shape)) or "scalar"
                fields = words.count(len(entry.dtype.names or ()), "field")
                dtype = row["dtype"] if len(row["dtype"]) <= 40 else f"struct of {fields}"
                cells: tuple[str, ...] = (entry.name, shape, dtype, _layout(row["layout"]), format_size(entry.bytes))
                if packed:
                    cells += (format_size(row["stored_bytes"]), row["compression"] or "-")
                rows.append(cells + (tuple(_stat(each) for each in row["stats"].values()) if stats else ()))
            print_table(rows, right="llllrrlrrrr" if packed else "llllrrrrr")
        for name, entry in manifest.groups.items():
            details = ", ".join(f"{key}={value}" for key, value in entry.items() if key != "kind")
            click.echo(f"{entry['kind']} {name}: {details}")
        for name in manifest.values:
            text = repr(file.value(name))
            click.echo(f"value {name} = {text if len(text) <= 100 else text[:97] + '...'}")
        for name, state in manifest.rngs.items():
            click.echo(f"generator {name}: {state['bit_generator']}")


@click.command()
@click.argument("where", shell_complete=complete_where)
@click.option("--step", type=int, help="Only the checkpoint of this step.")
@json_option
def verify(where: str, step: int | None, as_json: bool) -> None:
    """Read checkpoints in full and compare every piece with its digest; exit status 1 when one is bad.

    A mark that says bad is set or taken back accordingly. Ranks of mpirun or srun share the work.

    \b
    Examples:
      dmr ckpt verify heat-4711
      dmr ckpt verify heat-4711 --step 400
      srun -N 4 --ntasks-per-node 1 dmr ckpt verify heat-4711
    """
    with together() as group:
        paths = _chosen(where, step, as_json, group)
        if not paths:
            return
        report = [_verify(path, group, as_json) for path in paths]
        if as_json:
            print_json(report)
        if not all(each["good"] for each in report):
            sys.exit(1)


def _chosen(where: str, step: int | None, as_json: bool, group: Any) -> list[Path]:
    """Return the checkpoints that are meant, as rank 0 finds them; none where they are records, which it verifies.

    Collective.
    """
    from ...ckpt.twolevel.fast import everywhere, find

    paths, good = [where], True
    folder = find_folder(where) if group.rank == 0 and not Path(where).is_file() else None
    if folder is not None and is_foreign(folder):
        paths, good = [], verify_records(folder, step, as_json)
    elif folder is not None:
        found = everywhere(folder, find(folder)[0])
        paths = [str(each.path) for each in found if step is None or each.step == step]
        if not paths:
            fail(f"no checkpoint{'' if step is None else f' of step {step}'} in {folder}")
    paths, good = json.loads(group.bcast(json.dumps([paths, good]).encode()))
    if not good:
        sys.exit(1)
    return [Path(each) for each in paths]


def _verify(path: Path, group: Any, as_json: bool) -> dict[str, Any]:
    """Read a checkpoint, mark it, and tell. Collective."""
    from ...ckpt import CheckpointError, Damaged
    from ...ckpt.commit import clear_bad, mark_bad
    from ...ckpt.reader import open_together

    began = time.perf_counter()
    problems: list[str] = []
    size = 0
    judged = True
    try:
        with open_together(path, group) as file:
            size = file.bytes
            with progress(path.name, size, quiet=as_json, group=group) as advance:
                problems = [each.text for each in file.verify(advance, group)]
    except CheckpointError as error:
        if error.rank is None and group.size > 1:
            raise  # which the other ranks may know nothing of
        problems = [str(error)]
        # A missing package, or a file of a later version, says nothing of the checkpoint.
        judged = isinstance(error, Damaged)
    seconds = time.perf_counter() - began
    if group.rank == 0 and judged:
        if problems:
            mark_bad(path, problems[0])
        else:
            clear_bad(path)
    if not as_json:
        state = "good" if not problems else "BAD" if judged else "can't be checked"
        click.echo(f"{path}: {state} ({format_size(size)}, {seconds:.1f} s)")
        for text in problems:
            click.echo(f"  {text}")
    return {"path": str(path), "good": not problems, "bytes": size, "seconds": seconds, "problems": problems}


def find_folder(where: str) -> Path:
    """Return the folder of checkpoints that is meant: a file's is that which holds it."""
    from ...ckpt.commit import NAME

    path = Path(where)
    if path.is_file():
        if NAME.fullmatch(path.name) is None:
            fail(f"{where} is a file, and none of a folder of checkpoints: name the folder, or a run")
        return path.parent
    if (path / "checkpoints").is_dir():
        return path / "checkpoints"
    if path.is_dir():
        return path
    from ..run.finding import find_run

    return find_run(where).checkpoints


def find_file(where: str, step: int | None) -> Path:
    """Return the one checkpoint that is meant: that of the step, else the newest good one."""
    from ...ckpt.twolevel.fast import everywhere, find

    path = Path(where)
    if path.is_file():
        return path
    folder = find_folder(where)
    refuse(folder, "dmr reads no arrays of theirs")
    found = everywhere(folder, find(folder)[0])
    chosen = [each for each in found if (each.bad is None if step is None else each.step == step)]
    if not chosen:
        held = ", ".join(str(each.step) for each in found) or "none"
        fail(
            f"no {'good checkpoint' if step is None else f'checkpoint of step {step}'} in {folder}; steps there: {held}"
        )
    return chosen[0].path


def find_one(where: str, step: int | None, group: Any) -> Path:
    """Return the one checkpoint that is meant, as rank 0 finds it. Collective."""
    found = str(find_file(where, step)) if group.rank == 0 else ""
    return Path(group.bcast(found.encode()).decode())


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    from ...ckpt import CheckpointError, open

    try:
        with open(path) as file:
            yield file
    except CheckpointError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{path}: {error.strerror or error}")


@contextmanager
def progress(label: str, total: int, *, quiet: bool, group: Any = None) -> Iterator[Any]:
    """Show a bar on a terminal that waits for something large; of ranks, rank 0 shows its share."""
    ranks = 1 if group is None else group.size
    if quiet or not sys.stderr.isatty() or total < 1 << 28 or (group is not None and group.rank):
        yield None
        return
    with click.progressbar(length=total // ranks, label=label, file=sys.stderr) as bar:
        yield bar.update


def _layout(data: dict[str, Any]) -> str:
    details = ", ".join(f"{key}={value}" for key, value in data.items() if key != "kind")
    text = f"{data['kind']}({details})" if details else str(data["kind"])
    return text if len(text) <= 50 else text[:47] + "..."


def _stats(file: Any, entry: Any) -> dict[str, Any]:
    """Return least, greatest and mean number and the count of NaN, in parts so that memory stays small."""
    import numpy as np

    nothing: dict[str, Any] = {"min": None, "max": None, "mean": None, "nan": None}
    if entry.dtype.kind not in "biuf" or not entry.size:
        return nothing
    low = high = None
    count, total = 0, 0.0
    for begin in range(0, entry.size, 1 << 22):
        part = file.elements(entry.name, begin, min(begin + (1 << 22), entry.size))
        part = part[~np.isnan(part)] if part.dtype.kind == "f" else part
        if not part.size:
            continue
        low = part.min() if low is None else min(low, part.min())
        high = part.max() if high is None else max(high, part.max())
        count += part.size
        with np.errstate(all="ignore"):
            total += float(part.sum(dtype="f8"))
    if low is None or high is None:
        return {**nothing, "nan": entry.size}
    plain = float if entry.dtype.kind == "f" else int
    return {"min": plain(low), "max": plain(high), "mean": total / count, "nan": entry.size - count}


def _stat(value: Any) -> str:
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
