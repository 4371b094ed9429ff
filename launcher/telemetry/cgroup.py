"""What the control group of a job may use and uses, version 1 or 2, where there is one of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

UNLIMITED = 1 << 60
"""Version 1 says so with a number near 2**63."""
_OF_A_JOB = re.compile(r"(job_?\d+|step_\w+)$")


@dataclass(frozen=True)
class Groups:
    """Folders of a process's control groups; None where there is none that belongs to a job alone."""

    memory: Path | None = None
    cpu: Path | None = None
    version: int = 2
    limits: tuple[Path, ...] = ()
    """Files with limits on memory that apply to the process, its own group's and those above."""

    def used_memory(self) -> float | None:
        """Return bytes that the job holds on this node."""
        name = "memory.current" if self.version == 2 else "memory.usage_in_bytes"
        return None if self.memory is None else _number(self.memory / name)

    def peak_memory(self) -> float | None:
        """Return the most bytes that it held."""
        name = "memory.peak" if self.version == 2 else "memory.max_usage_in_bytes"
        return None if self.memory is None else _number(self.memory / name)

    def cpu_seconds(self) -> float | None:
        """Return processor seconds that the job used on this node."""
        if self.cpu is None:
            return None
        if self.version == 1:
            found = _number(self.cpu / "cpuacct.usage")
            return None if found is None else found / 1e9
        try:
            text = (self.cpu / "cpu.stat").read_text()
        except OSError:
            return None
        usage = re.search(r"^usage_usec (\d+)$", text, re.MULTILINE)
        return int(usage[1]) / 1e6 if usage else None

    def memory_limit(self) -> float | None:
        """Return the least limit on memory, None for none."""
        found = [value for each in self.limits if (value := _number(each)) is not None and value < UNLIMITED]
        return min(found, default=None)


def groups_of(pid: int, proc: Path = Path("/proc"), root: Path = Path("/sys/fs/cgroup")) -> Groups:
    """Return the groups of a process."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return Groups()
    by_controller: dict[str, str] = {}
    unified: str | None = None
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            unified = path
        for name in controllers.split(","):
            by_controller[name] = path
    if "memory" in by_controller or "cpuacct" in by_controller:
        memory = _folder(root / "memory", by_controller.get("memory"))
        cpu = _folder(root / "cpuacct", by_controller.get("cpuacct"))
        cpu = cpu or _folder(root / "cpu,cpuacct", by_controller.get("cpuacct"))
        limits = _upwards(memory, root / "memory", "memory.limit_in_bytes")
        return Groups(_of_job(memory, root), _of_job(cpu, root), 1, limits)
    folder = _folder(root, unified)
    job = _of_job(folder, root)
    return Groups(job, job, 2, _upwards(folder, root, "memory.max"))


def _folder(root: Path, path: str | None) -> Path | None:
    if path is None:
        return None
    found = root / path.lstrip("/")
    return found if found.is_dir() else None


def _of_job(folder: Path | None, root: Path) -> Path | None:
    """Return the outermost folder that a scheduler made for a job or one of its steps."""
    found = None
    while folder is not None and folder != root and folder != folder.parent:
        if _OF_A_JOB.search(folder.name):
            found = folder
        folder = folder.parent
    return found


def _upwards(folder: Path | None, root: Path, name: str) -> tuple[Path, ...]:
    found = []
    while folder is not None and root in (folder, *folder.parents):
        if (folder / name).exists():
            found.append(folder / name)
        if folder == root:
            break
        folder = folder.parent
    return tuple(found)


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None
