"""What the scheduler recorded of a run's jobs: from a file, from the run's folder, or asked for now."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from ..telemetry.extra import Record, parse_jobcomp, parse_records
from ..telemetry.layout import TelemetryError

Ask = Callable[[Sequence[str]], str | None]
KEPT = "sacct.txt"


def read_accounting(
    kept: Path,
    jobs: Sequence[str],
    notes: list[str],
    *,
    sacct: Path | None = None,
    jobcomp: Path | None = None,
    ask: Ask | None = None,
) -> tuple[Record, ...]:
    """Return the rows of some jobs.

    Parameters
    ----------
    kept
        Where an answer stays when all jobs in it have ended: sites forget their jobs in time.
    notes
        Is appended to where something was of no use.
    sacct, jobcomp, ask
        See `.sources.read_sources`.

    Raises
    ------
    TelemetryError
        When a file that was named can't be used.
    """
    records: tuple[Record, ...] = ()
    if sacct is not None:
        records = _named(sacct, parse_records)
    elif kept.exists():
        try:
            records = parse_records(kept.read_text(errors="replace").splitlines())
        except (OSError, TelemetryError) as error:
            notes.append(f"{kept}: {error}")
    if sacct is None and ask is not None and jobs and _unknown(jobs, records):
        answer = ask(jobs)
        if answer is not None and answer.strip():
            records = parse_records(answer.splitlines())
            if not _unknown(jobs, records) and all(each.end is not None for each in records):
                _keep(kept, answer)
    if jobcomp is not None:
        known = {each.job for each in records}
        records += tuple(
            each
            for each in _named(jobcomp, lambda lines: parse_jobcomp(lines, frozenset(jobs)))
            if each.job not in known
        )
    return records


def _unknown(jobs: Sequence[str], records: Collection[Record]) -> set[str]:
    return set(jobs) - {each.job for each in records}


def _named(path: Path, parse: Callable[[Sequence[str]], tuple[Record, ...]]) -> tuple[Record, ...]:
    try:
        return parse(path.read_text(errors="replace").splitlines())
    except (OSError, TelemetryError) as error:
        raise TelemetryError(f"{path}: {error}") from None


def _keep(path: Path, text: str) -> None:
    new = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        new.write_text(text)
        new.replace(path)
