"""Questions to the controller through pyslurm, answered in the shape of squeue's and sinfo's rows.

``python -m dmr.launcher.slurm.pyslurm_worker queue|nodes|job ID``. It is a process of its own for each question:
importing pyslurm changes how libraries are loaded and calls slurm_init, a call in it can't be interrupted, and Slurm's
commands are killed after a time-out just so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from .parse import FIELD, RECORD

# The word that sinfo shows for a flag, the weightiest first, and the mark behind the state for the others.
_WORDS = (
    ("INVALID_REG", "inval"), ("MAINTENANCE", "maint"), ("FAIL", "fail"), ("DRAIN", "drained"),
    ("RESERVED", "reserved"), ("COMPLETING", "completing"), ("PLANNED", "planned"),
)  # fmt: skip
_MARKS = (
    ("NOT_RESPONDING", "*"), ("POWERING_DOWN", "%"), ("POWERED_DOWN", "~"), ("POWER_DOWN", "!"), ("POWERING_UP", "#"),
    ("POWER_UP", "#"), ("REBOOT_ISSUED", "^"), ("REBOOT_REQUESTED", "@"), ("REBOOT", "@"),
)  # fmt: skip


def job_row(job: Any) -> str:
    """Return one job as squeue prints it for `.parse.QUEUE_FORMAT`.

    pyslurm tells no least size of a job that pends with a range of sizes: the number is Slurm's own, near the most.
    """
    array = job.array_id if job.array_id not in (None, 0) else None
    shown = str(job.id)
    if array is not None and job.array_task_id is not None:
        shown = f"{array}_{job.array_task_id}"
    elif array is not None and job.array_tasks_waiting:
        parallel = f"%{job.array_tasks_parallel}" if job.array_tasks_parallel else ""
        shown = f"{array}_[{job.array_tasks_waiting}{parallel}]"
    fields = [
        shown, job.id, job.state, job.num_nodes, job.max_nodes, None, job.partition, job.priority, job.submit_time,
        job.start_time, job.end_time, job.time_limit, job.state_reason, job.allocated_nodes, job.batch_host,
        job.user_name, job.name, job.comment,
    ]  # fmt: skip
    return FIELD.join("" if field is None else str(field) for field in fields) + RECORD


def node_rows(node: Any, sizes: dict[str, str], times: dict[str, str]) -> Iterable[str]:
    """Yield a node as sinfo prints it for `.parse.NODE_FORMAT`, once for each of its partitions."""
    features = ",".join(node.active_features or node.available_features or ())
    for partition in node.partitions or ():
        size, limit = sizes.get(partition, "1-infinite"), times.get(partition, "infinite")
        row = [node.name, partition, short_state(node.state), features, size, str(node.total_cpus or 0), limit]
        yield FIELD.join(row) + RECORD


def short_state(state: str) -> str:
    """Turn ``IDLE+DRAIN+NOT_RESPONDING`` into sinfo's ``drained*``."""
    base, *flags = state.upper().split("+")
    word = next((word for flag, word in _WORDS if flag in flags), base.lower())
    return word + next((mark for flag, mark in _MARKS if flag in flags), "")


def main(arguments: list[str]) -> int:
    try:
        import pyslurm  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        print(f"error: pyslurm can't be imported: {error}", file=sys.stderr)
        return 2
    try:
        if arguments[0] == "nodes":
            partitions = pyslurm.Partitions.load().values()
            sizes = {each.name: f"1-{each.max_nodes}".lower().replace("unlimited", "infinite") for each in partitions}
            times = {each.name: str(each.max_time) for each in partitions}
            rows = [row for node in pyslurm.Nodes.load().values() for row in node_rows(node, sizes, times)]
        elif arguments[0] == "job":
            rows = [job_row(pyslurm.Job.load(int(arguments[1])))]
        else:
            rows = [job_row(job) for job in pyslurm.Jobs.load().values()]
    except pyslurm.PyslurmError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    sys.stdout.write("".join(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
