"""Submit a successor: the same script, folder and options, another size."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..engines.engine import Submission, SubmitRefused, Unanswered
from . import options
from .commands import Answer, CommandFailed, Commands
from .environment import without_scheduler
from .options import Shape
from .parse import submitted_job, test_only_start
from .script import BatchScript
from .times import TIME_LIMIT, TIME_MIN, asked_times, time_options

TASKS_PER_NODE, CPUS_PER_TASK = "DMR_TASKS_PER_NODE", "DMR_CPUS_PER_TASK"
"""Tell a job that was asked for without tasks how many ranks a node it is to start."""


@dataclass(frozen=True)
class Origin:
    """The job that a successor is made from. ``held`` is the number of nodes it started on."""

    job: str
    record: Mapping[str, str]
    batch: BatchScript
    environ: Mapping[str, str]
    held: int


@dataclass(frozen=True)
class Prepared:
    """A submission in full: what ``dmr-launch --dry-run`` shows, and what `submit` runs."""

    argv: tuple[str, ...]
    script: str
    arguments: tuple[str, ...]
    name: str
    environ: Mapping[str, str]
    folder: Path | None


def prepare(origin: Origin, submission: Submission, tasks_per_node: int, cpus_per_task: int | None) -> Prepared:
    """Put a submission together; asks and changes nothing."""
    shape = Shape(submission.nodes, tasks_per_node, cpus_per_task)
    script = options.read_script(origin.batch.text)
    added = {**submission.environment, TASKS_PER_NODE: str(tasks_per_node)}
    if cpus_per_task:
        added[CPUS_PER_TASK] = str(cpus_per_task)
    record, environ = origin.record, origin.environ
    times, told = time_options(asked_times(record, script, environ), submission.limit, whole=submission.whole)
    added |= told
    index = environ.get("SLURM_ARRAY_TASK_ID")
    argv = [
        "sbatch",
        "--parsable",
        *options.size_options(shape),
        *options.carried_options(record, script, environ, shape, origin.held),
        *times,
        *options.output_options(record, script, origin.job, submission.generation),
        f"--job-name={options.job_name(record, submission.generation, submission.token)}",
        f"--comment={options.comment(record, submission.name)}",
        options.export_option(script, environ, sorted(added)),
        # A lost node then costs the ranks, not the job: they start again on those that are left.
        "--no-kill",
        *([f"--chdir={record['WorkDir']}"] if "WorkDir" in record else []),
        *([f"--array={index}"] if index else []),
        *([f"--dependency=afterany:{submission.after}"] if submission.after else []),
        *submission.options,
    ]
    # Scripts find their files by SLURM_SUBMIT_DIR, which is the folder that sbatch runs in.
    where = environ.get("SLURM_SUBMIT_DIR") or record.get("WorkDir")
    folder = Path(where) if where and os.path.isdir(where) else None
    inherited = without_scheduler(environ)
    clean = {key: value for key, value in inherited.items() if key not in (CPUS_PER_TASK, TIME_LIMIT, TIME_MIN)}
    return Prepared(tuple(argv), script.text, origin.batch.arguments, origin.batch.name, {**clean, **added}, folder)


def output_of(prepared: Prepared, job: str) -> str | None:
    """Return the file that a submitted job writes its output to, None where that can't be told from its options."""
    pattern = next((each.removeprefix("--output=") for each in prepared.argv if each.startswith("--output=")), None)
    if pattern is None:
        return None
    base, _, index = job.partition("_")
    found = pattern.replace("%j", base).replace("%A", base).replace("%a", index)
    return None if "%" in found else found


def submit(commands: Commands, prepared: Prepared) -> str:
    """Run sbatch once, and return the job's id.

    Raises
    ------
    SubmitRefused
        With sbatch's words.
    Unanswered
        When it gave none, or none that holds a job id.
    """
    answer = _sbatch(commands, prepared, prepared.argv)
    job = submitted_job(answer.out)
    if job is None:
        raise Unanswered(f"sbatch printed no job id: {answer.out.strip() or answer.err.strip()!r}")
    index = next((word.removeprefix("--array=") for word in prepared.argv if word.startswith("--array=")), None)
    return f"{job}_{index}" if index else job


def foresee(commands: Commands, prepared: Prepared) -> float | None:
    """Ask sbatch when it would start, without a submission; None where it does not say.

    Raises
    ------
    SubmitRefused, Unanswered
    """
    answer = _sbatch(commands, prepared, [prepared.argv[0], "--test-only", *prepared.argv[1:]])
    return test_only_start(answer.err + answer.out)


def _sbatch(commands: Commands, prepared: Prepared, line: Sequence[str]) -> Answer:
    folder = Path(tempfile.mkdtemp(prefix="dmr-submit-"))
    try:
        file = folder / prepared.name
        file.write_bytes(prepared.script.encode(errors="surrogateescape"))
        argv = [*line, str(file), *prepared.arguments]
        try:
            return commands.act(argv, environ=prepared.environ, cwd=prepared.folder)
        except CommandFailed as error:
            raise SubmitRefused(error.words or str(error)) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
