"""With which status a program really ended that srun has started."""

from __future__ import annotations

import re

_ENDED_BY_SLURM = (128 + 9, 128 + 15)
_EXITED = re.compile(rb"^srun: error: \S+: tasks? [\d,-]+: Exited with exit code (\d+)", re.MULTILINE)


def own_status(status: int, said: bytes) -> int:
    """Return the exit status of the task that failed first, where srun ended with that of one which Slurm has ended.

    srun's own status is the greatest of all tasks. When one task ends with 3, the others are ended by signals, and 143
    is what srun ends with: it would look as if somebody had stopped the job.

    Parameters
    ----------
    status
        srun's exit status.
    said
        The end of its output.
    """
    if status not in _ENDED_BY_SLURM:
        return status
    found = (int(each) for each in _EXITED.findall(said))
    return next((each for each in found if 0 < each < 128), status)
