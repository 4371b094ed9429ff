"""The newest checkpoint of a run by its folder alone, for a program that has not reported one yet."""

from __future__ import annotations

import contextlib
import re

from .rundir import RunDir, SavedCheckpoint

NAME = re.compile(r"step-(\d{12,})-g(\d{4,})\.h5")


def newest_checkpoint(run: RunDir) -> SavedCheckpoint | None:
    """Return the checkpoint that a next generation would go on from, None when there is none. Reads none of it."""
    from ..foreign.catalogue import FILE, Catalogue

    if (run.checkpoints / FILE).exists():
        records = Catalogue(run.checkpoints, run.checkpoints).records()
        record = next((each for each in records if each.bad is None), None)
        if record is None:
            return None
        return SavedCheckpoint(record.name, record.step, record.bytes, record.seconds, record.time)
    found = []
    with contextlib.suppress(OSError):
        for path in run.checkpoints.iterdir():
            if (match := NAME.fullmatch(path.name)) and not path.with_name(path.name + ".bad").exists():
                found.append(((int(match[2]), int(match[1])), path))
    for (_, step), path in sorted(found, reverse=True):
        with contextlib.suppress(OSError):
            stat = path.stat()
            return SavedCheckpoint(path.name, step, stat.st_size, 0.0, stat.st_mtime)
    return None
