"""What the controller's configuration says of shrinking."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .parse import version


@dataclass(frozen=True)
class Site:
    """Whether jobs may give nodes back, and whether more than once."""

    shrinks: bool = True
    repeatedly: bool = True

    def no_shrink(self, shrunk: bool) -> str | None:
        """Return why a job can't give nodes back (again), None when it can."""
        if not self.shrinks:
            return "this site doesn't let running jobs give nodes back (SchedulerParameters=disable_job_shrink)"
        if shrunk and not self.repeatedly:
            return "without accounting, this release of Slurm changes a job no more once it has given nodes back"
        return None


def read_site(text: str) -> Site:
    """Read ``scontrol show config``.

    Up to 24.05 a job waits for an index of the accounting database after each change of size, and is not changed
    before it has one; without a database it never has.
    """
    values = dict(re.findall(r"^(\w+)\s*= (.*?)\s*$", text, re.MULTILINE))
    parameters = values.get("SchedulerParameters", "").split(",")
    storage = values.get("AccountingStorageType", "")
    without = storage in ("(null)", "none", "accounting_storage/none", "")
    release = version(values.get("SLURM_VERSION", ""))
    return Site("disable_job_shrink" not in parameters, not without or release >= (24, 11) or release == (0, 0))
