"""``dmr ckpt diff``, ``export``, ``import``, ``prune`` and ``convert``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ...resize import words
from . import TIME, fail, format_size, json_option, print_json
from .ckpt import find_file, find_folder, find_one, opened, progress
from .completing import complete_where, one_of
from .foreign import refuse
from .together import together


@click.command()
@click.argument("one", shell_complete=complete_where)
@click.argument("other", shell_complete=complete_where)
@json_option
def diff(one: str, other: str, as_json: bool) -> None:
    """Compare the content of two checkpoints; exit status 1 when it differs.

    Arrays are compared by their digests first, so that only what differs is read. Who wrote them, and how arrays were
    spread over ranks, does not count.

    \b
    Examples:
      dmr ckpt diff heat-4711 heat-4712             the newest of each
      dmr ckpt diff step-000000000400-g0001.h5 step-000000000400-g0002.h5 --json
    """
    from ...ckpt.tools.compare import differences

    with opened(find_file(one, None)) as first, opened(find_file(other, None)) as second, _told():
        found = differences(first, second)
    if as_json:
        print_json({"same": not found, "differences": found})
    else:
        for each in found:
            click.echo(f"{each.name}: {each.text}" if each.name else each.text)
        if not found:
            click.echo("the content is the same, bit for bit")
    if found:
        sys.exit(1)


@click.command()
@click.argument("where", shell_complete=complete_where)
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--array", "names", multiple=True, help="Only this array; may be given several times.")
@click.option("--step", type=int, help="The checkpoint of this step, instead of the newest.")
@json_option
def export(where: str, target: Path, names: tuple[str, ...], step: int | None, as_json: bool) -> None:
    """Write the arrays of a checkpoint, whole and verified, to TARGET: a .npy, .npz or .h5 file, or a folder.

    Ranks of mpirun or srun write .npy files together.

    \b
    Examples:
      dmr ckpt export heat-4711 u.npy --array u
      dmr ckpt export heat-4711 all.npz --step 400
      dmr ckpt export heat-4711 plain/              one .npy an array, values.json
    """
    from ...ckpt.reader import open_together
    from ...ckpt.tools.export import export as write

    with together() as group, _told(group), open_together(find_one(where, step, group), group) as file:
        total = sum(each.bytes for each in file.manifest.arrays if not names or each.name in names)
        with progress(target.name, total, quiet=as_json, group=group) as advance:
            written = write(file, target, names, advance, group)
        if as_json:
            print_json([str(path) for path in written])
        elif group.rank == 0:
            for path in written:
                click.echo(f"{path} ({format_size(path.stat().st_size)})")


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--to", "folder", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder of checkpoints."
)
@click.option("--step", type=click.IntRange(min=0), default=0, show_default=True, help="Step that a run goes on from.")
@click.option("--layout", "layouts", multiple=True, metavar="NAME=LAYOUT", help="As block:0,1; block:0 by default.")
@click.option("--value", "given", multiple=True, metavar="NAME=JSON", help="A value to keep beside.")
@click.option("--force", is_flag=True, help="Replace a checkpoint of the same step.")
@json_option
def import_(
    files: tuple[Path, ...],
    folder: Path,
    step: int,
    layouts: tuple[str, ...],
    given: tuple[str, ...],
    force: bool,
    as_json: bool,
) -> None:
    """Make a first checkpoint of .npy, .npz or .h5 FILES that other programs wrote. A .npy file's name names its array.

    \b
    Examples:
      dmr ckpt import u.npy v.npy --to runs/heat/checkpoints
      dmr ckpt import fields.h5 --to checkpoints --layout u=block:0,1 --value time=12.5
    """
    from ...ckpt.layouts.registry import layout_from_text
    from ...ckpt.tools.transform import import_arrays, read_arrays

    with together() as group, _told(group):
        arrays: dict[str, Any] = {}
        for path in files:
            for name, array in read_arrays(path).items():
                if name in arrays:
                    fail(f"{path}: there is an array {name!r} in another file already")
                arrays[name] = array
        chosen = {name: layout_from_text(text) for name, text in _pairs(layouts, "--layout")}
        _known(chosen, arrays)
        values = {name: _json(text) for name, text in _pairs(given, "--value")}
        saved = import_arrays(folder.absolute(), arrays, step, chosen, values, group, overwrite=force)
        if as_json:
            print_json(saved)
        else:
            click.echo(f"{saved.path} ({format_size(saved.bytes)}, {words.count(len(arrays), 'array')})")


@click.command()
@click.argument("where", shell_complete=complete_where)
@click.option("--keep", type=click.IntRange(min=1), help="The newest so many.")
@click.option("--keep-every-steps", type=click.IntRange(min=1), help="The first in every so many steps.")
@click.option("--keep-every", type=TIME, help="The first in every span of time, as 1:00:00.")
@click.option("--keep-best", metavar="KEY", help="The one with the greatest number of this key of the program's info.")
@click.option("--stale", is_flag=True, help="Remove what ended processes of this machine left half written, too.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@json_option
def prune(
    where: str,
    keep: int | None,
    keep_every_steps: int | None,
    keep_every: float | None,
    keep_best: str | None,
    stale: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove good checkpoints of WHERE but those that a rule keeps; the newest and bad ones always stay.

    \b
    Examples:
      dmr ckpt prune heat-4711 --keep 3
      dmr ckpt prune heat-4711 --keep 1 --keep-every-steps 1000 --dry-run
    """
    from ...ckpt.commit import Staging, listing, own_staging
    from ...ckpt.commit import prune as remove
    from ...ckpt.retention import AnyOf, KeepBest, KeepEverySeconds, KeepEverySteps, KeepLast, Retention

    folder = find_folder(where)
    refuse(folder, "dmr ckpt prune removes none of them; dmr-launch --keep N does while the run goes on, where the "
           "description allows it by checkpoint.copy or checkpoint.delete")  # fmt: skip
    rules: list[Retention] = []
    if keep is not None:
        rules.append(KeepLast(keep))
    if keep_every_steps is not None:
        rules.append(KeepEverySteps(keep_every_steps))
    if keep_every is not None:
        rules.append(KeepEverySeconds(keep_every))
    if keep_best is not None:
        rules.append(KeepBest(keep_best))
    if not rules and not stale:
        raise click.UsageError("say what to keep, for instance --keep 3, or what to remove with --stale")
    removed: list[Path] = []
    if rules:
        rule = AnyOf(tuple(rules))
        good = [each for each in listing(folder) if each.bad is None]
        sizes = {each.path: each.bytes for each in good}
        if dry_run:
            stay = rule.chosen(good)
            removed = [each.path for each in good[1:] if each.path not in stay]
        else:
            removed = remove(folder, rule)
    freed = sum(sizes[path] for path in removed) if rules else 0
    left = []
    if stale:
        staging = Staging(folder, None, own_staging(folder))
        left = staging.stale()
        if not dry_run:
            staging.reclaim()
    if as_json:
        print_json({"removed": [str(path) for path in removed], "bytes": freed, "stale": [str(path) for path in left]})
        return
    for path in [*removed, *left]:
        click.echo(f"{'would remove' if dry_run else 'removed'} {path}")
    over = f"; {len(left)} left over" if stale else ""
    click.echo(f"{words.count(len(removed), 'checkpoint')}, {format_size(freed)}{over}")


@click.command()
@click.argument("where", shell_complete=complete_where)
@click.option("--to", "folder", type=click.Path(path_type=Path, file_okay=False), required=True, help="Another folder.")
@click.option("--dtype", "types", multiple=True, metavar="NAME=DTYPE", help="As u=float32.")
@click.option("--layout", "layouts", multiple=True, metavar="NAME=LAYOUT", help="As u=block:0,1.")
@click.option(
    "--compress", metavar="CODEC", help="zstd, zlib, zstd:3, or none.  [default: as it is]",
    shell_complete=one_of("zstd", "zlib", "none"),
)  # fmt: skip
@click.option("--unsafe", is_flag=True, help="Allow types that can't hold the values, as float64 to int32.")
@click.option("--step", type=int, help="The checkpoint of this step, instead of the newest.")
@click.option("--force", is_flag=True, help="Replace a checkpoint of the same step and generation.")
@json_option
def convert(
    where: str,
    folder: Path,
    types: tuple[str, ...],
    layouts: tuple[str, ...],
    compress: str | None,
    unsafe: bool,
    step: int | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write a checkpoint anew, in the present format, with other dtypes or layouts for some arrays, or compressed.

    Each process holds its share of the arrays in memory: ranks of mpirun or srun convert what one has no room for.

    \b
    Examples:
      dmr ckpt convert heat-4711 --to single/ --dtype u=float32
      dmr ckpt convert heat-4711 --to tiles/ --layout u=block:0,1
      dmr ckpt convert heat-4711 --to small/ --compress zstd
    """
    from ...ckpt.layouts.registry import layout_from_text
    from ...ckpt.reader import open_together
    from ...ckpt.state.dtypes import from_text
    from ...ckpt.tools.transform import convert as write

    with together() as group, _told(group):
        path = find_one(where, step, group)
        if folder.exists() and folder.resolve() == path.parent.resolve():
            fail(f"{folder} is where the checkpoint is: name another folder with --to")
        kinds = {name: from_text(text) for name, text in _pairs(types, "--dtype")}
        chosen = {name: layout_from_text(text) for name, text in _pairs(layouts, "--layout")}
        with open_together(path, group) as file:
            saved = write(
                file, folder.absolute(), kinds, chosen, unsafe=unsafe, compress=compress, group=group, overwrite=force
            )  # fmt: skip
        if as_json:
            print_json(saved)
        else:
            raw = f", {format_size(saved.raw_bytes)} uncompressed" if saved.raw_bytes > saved.bytes else ""
            click.echo(f"{saved.path} ({format_size(saved.bytes)}{raw})")


def _pairs(texts: tuple[str, ...], option: str) -> list[tuple[str, str]]:
    found = []
    for text in texts:
        name, equals, rest = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{option} {text!r}: write it as NAME=…")
        found.append((name, rest))
    return found


def _known(chosen: dict[str, Any], arrays: dict[str, Any]) -> None:
    for name in chosen:
        if name not in arrays:
            fail(f"there is no array {name!r}; the files hold {', '.join(map(repr, arrays)) or 'none'}")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        fail(f"{text!r} is no JSON: write numbers as 12.5 and text as '\"abc\"'")


@contextmanager
def _told(group: Any = None) -> Iterator[None]:
    """Turn what goes wrong into one line; what ranks have agreed upon is for `together`."""
    from ...ckpt import CheckpointError

    try:
        yield
    except CheckpointError as error:
        if group is not None and group.size > 1:
            raise
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
