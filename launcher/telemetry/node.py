"""What the processes of the application use on this node, and what the node itself does, by psutil."""

from __future__ import annotations

import contextlib
import math
import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .cgroup import Groups, groups_of
from .gpu import COLUMNS as GPU_COLUMNS
from .gpu import Gpus

RANKS_A_SECOND = 32
"""Processes that are asked each second at most; where there are more, each is asked less often."""
LOOK_AROUND = 30.0
"""Seconds after which new processes are looked for; a tenth of the age while that is less."""

COLUMNS = (
    "cpu", "busiest", "memory", "read", "write", "switches", "threads", "processes", "ranks", "cpus",
    "node_cpu", "node_memory", "node_read", "node_write", "received", "sent", "waiting", "sampler",
)  # fmt: skip
"""Of the application: processors busy, those of its busiest rank, resident bytes, bytes a second read and written,
context switches a second, counts, processors held. Of the node: processors busy, bytes used, bytes a second of disks
and networks. Then the share of the ranks' time that was spent waiting for other ranks, and the processors busy with
sampling."""
RANK_COLUMNS = ("rank", "pid", "cpu", "memory", "read", "write", "switches", "waiting")

_RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_INFINIBAND = Path("/sys/class/infiniband")


def children(pid: int) -> set[int]:
    """Return the living children of a process. Empty where the kernel does not list them and psutil finds none."""
    found: set[int] = set()
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as stream:
                found.update(map(int, stream.read().split()))
    except FileNotFoundError:
        import psutil

        # A look at all processes of the node: some ten times as much work.
        if not os.path.exists("/proc/self/task/" + str(os.getpid()) + "/children"):
            with contextlib.suppress(psutil.Error):
                return {each.pid for each in psutil.Process(pid).children()}
    except OSError:
        pass
    return found


class Tracked:
    """One process of the application, and how fast its counters go."""

    def __init__(self, process: Any, rank: int | None) -> None:
        self.process, self.rank = process, rank
        self.cpu = self.read = self.write = self.switches = self.waiting = math.nan
        self.memory = self.threads = 0.0
        self._before: tuple[float, float, float, float, float] | None = None
        self._asked = 0.0

    def ask(self, now: float) -> bool:
        """Bring the figures up to date; False when it is gone."""
        import psutil

        try:
            with self.process.oneshot():
                if self.process.status() == psutil.STATUS_ZOMBIE:
                    return False
                times = self.process.cpu_times()
                self.memory = float(self.process.memory_info().rss)
                self.threads = float(self.process.num_threads())
                switches = self.process.num_ctx_switches()
                try:
                    moved = self.process.io_counters()
                    read, write = float(moved.read_bytes), float(moved.write_bytes)
                except (psutil.AccessDenied, AttributeError):
                    read = write = math.nan
        except psutil.Error:
            return False
        # What a child used counts with its parent once the child has been waited for.
        cpu = times.user + times.system + times.children_user + times.children_system
        after = (now, cpu, read, write, float(switches.voluntary + switches.involuntary))
        if self._before is not None and now > self._before[0]:
            rates = [max(0.0, (b - a) / (now - self._before[0])) for a, b in zip(self._before, after, strict=True)]
            _, self.cpu, self.read, self.write, self.switches = rates
        self._before = after
        return True


class NodeReader:
    """Reads the figures of this node.

    Parameters
    ----------
    leader
        Process id of one rank on this node.
    environ
        Its environment.
    """

    def __init__(self, leader: int, environ: Mapping[str, str]) -> None:
        import psutil

        self._psutil = psutil
        self._environ = environ
        self._token = environ.get("DMR_TOKEN", "")
        self._parent = psutil.Process(leader).ppid()
        self.leader = leader
        self.tracked: dict[int, Tracked] = {}
        self._refused: set[int] = set()
        self._looked = -math.inf
        self._born = time.monotonic()
        self._due = 0
        self.groups: Groups = groups_of(leader)
        self.gpus = Gpus.find(environ)
        self._node_before: tuple[float, dict[str, float]] | None = None
        self._group_before: tuple[float, float] | None = None
        self._allowed = len(os.sched_getaffinity(0))
        self._own_before: tuple[float, float] | None = None
        self._just_asked: list[tuple[int, Tracked]] = []
        self.waits = Waits(self._token)
        self.look_around()

    @property
    def columns(self) -> tuple[str, ...]:
        return COLUMNS + (GPU_COLUMNS if self.gpus else ())

    def facts(self) -> dict[str, Any]:
        """Return what is to be known of the node once."""
        memory = self._psutil.virtual_memory().total
        held = [each for each in (self.groups.memory_limit(), self._slurm_memory(), float(memory)) if each]
        return {
            "cpus": self._allowed,
            "memory": memory,
            "memory_held": min(held),
            "gpus": len(self.gpus._handles) if self.gpus else 0,
            "gpu_memory": self.gpus.memory() if self.gpus else 0,
        }

    def _slurm_memory(self) -> float | None:
        with contextlib.suppress(ValueError):
            if self._environ.get("SLURM_MEM_PER_NODE"):
                return float(self._environ["SLURM_MEM_PER_NODE"]) * 2**20 or None
            if self._environ.get("SLURM_MEM_PER_CPU"):
                return float(self._environ["SLURM_MEM_PER_CPU"]) * 2**20 * self.cpus or None
        return None

    @property
    def ranks(self) -> int:
        return sum(each.rank is not None for each in self.tracked.values())

    @property
    def cpus(self) -> float:
        """Processors held on this node: what Slurm gave, else one a rank as far as there are so many."""
        given = self._environ.get("SLURM_CPUS_ON_NODE", "")
        return float(given) if given.isdigit() else float(min(self._allowed, max(1, self.ranks)))

    def look_around(self) -> None:
        """Find the processes of the application: this node's ranks, and what they started."""
        self._looked = time.monotonic()
        direct = {pid for pid in children(self._parent) if self._is_ours(pid)} if self._parent > 1 else set()
        if self._alive(self.leader):
            direct.add(self.leader)
        found = set(direct)
        todo = list(direct)
        while todo:
            new = children(todo.pop()) - found
            found |= new
            todo.extend(new)
        for pid in found - set(self.tracked) - {os.getpid()}:
            with contextlib.suppress(self._psutil.Error):
                process = self._psutil.Process(pid)
                self.tracked[pid] = Tracked(process, self._rank(process) if pid in direct else None)

    def _is_ours(self, pid: int) -> bool:
        if pid in self.tracked or pid in self._refused:
            return pid in self.tracked
        try:
            ours = bool(self._psutil.Process(pid).environ().get("DMR_TOKEN", "") == self._token)
        except self._psutil.Error:
            return False
        if not ours:
            self._refused.add(pid)
        return ours

    def _rank(self, process: Any) -> int:
        with contextlib.suppress(self._psutil.Error, ValueError):
            environ = process.environ()
            for name in _RANK:
                if name in environ:
                    return int(environ[name])
        return 0

    def _alive(self, pid: int) -> bool:
        with contextlib.suppress(self._psutil.Error):
            return bool(self._psutil.Process(pid).status() != self._psutil.STATUS_ZOMBIE)
        return False

    def ended(self) -> bool:
        """Whether none of this node's ranks is left."""
        if self._alive(self.leader):
            return False
        if any(each.rank is not None and self._alive(pid) for pid, each in self.tracked.items()):
            return False
        self.look_around()
        return not any(each.rank is not None and self._alive(pid) for pid, each in self.tracked.items())

    def sample(self) -> tuple[float, ...]:
        """Return a value for each of `columns`."""
        now = time.monotonic()
        if now - self._looked > min(LOOK_AROUND, max(0.5, (now - self._born) / 10)):
            self.look_around()
        self._ask_some(now)
        each = list(self.tracked.values())
        cpu = self._group_cpu(now)
        if cpu is None:
            cpu = _sum(t.cpu for t in each)
        memory = self.groups.used_memory()
        ranks = self.ranks
        node = self._node(now)
        return (
            cpu,
            max((t.cpu for t in each if t.rank is not None and t.cpu == t.cpu), default=math.nan),
            memory if memory is not None else math.fsum(t.memory for t in each),
            _sum(t.read for t in each),
            _sum(t.write for t in each),
            _sum(t.switches for t in each),
            math.fsum(t.threads for t in each),
            float(len(each)),
            float(ranks),
            self.cpus,
            *node,
            self.waits.share(now, ranks),
            self._own(now),
            *(self.gpus.read() if self.gpus else ()),
        )

    def rank_rows(self) -> list[tuple[float, ...]]:
        """Return a row of `RANK_COLUMNS` for each rank that was asked in the last `sample`."""
        return [
            (float(t.rank), float(pid), t.cpu, t.memory, t.read, t.write, t.switches, self.waits.of(pid))
            for pid, t in self._just_asked
            if t.rank is not None
        ]

    def _ask_some(self, now: float) -> None:
        order = sorted(self.tracked)
        count = min(len(order), RANKS_A_SECOND)
        chosen = [order[(self._due + place) % len(order)] for place in range(count)] if order else []
        self._due = (self._due + count) % max(1, len(order))
        self._just_asked = []
        for pid in chosen:
            if self.tracked[pid].ask(now):
                self._just_asked.append((pid, self.tracked[pid]))
            else:
                del self.tracked[pid]

    def _group_cpu(self, now: float) -> float | None:
        seconds = self.groups.cpu_seconds()
        if seconds is None:
            return None
        before, self._group_before = self._group_before, (now, seconds)
        if before is None or now <= before[0]:
            return math.nan
        return max(0.0, (seconds - before[1]) / (now - before[0]))

    def _node(self, now: float) -> tuple[float, ...]:
        psutil = self._psutil
        times = psutil.cpu_times()
        busy = sum(times) - times.idle - getattr(times, "iowait", 0.0)
        busy -= getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # counted in user and nice already
        disk, net = psutil.disk_io_counters(), psutil.net_io_counters(nowrap=True)
        received, sent = _infiniband()
        after = {
            "cpu": busy,
            "read": float(disk.read_bytes) if disk else math.nan,
            "write": float(disk.write_bytes) if disk else math.nan,
            "received": float(net.bytes_recv) + received if net else math.nan,
            "sent": float(net.bytes_sent) + sent if net else math.nan,
        }
        before, self._node_before = self._node_before, (now, after)
        rates = dict.fromkeys(after, math.nan)
        if before is not None and now > before[0]:
            rates = {key: max(0.0, (after[key] - before[1][key]) / (now - before[0])) for key in after}
        memory = psutil.virtual_memory()
        used = float(memory.total - memory.available)
        return (rates["cpu"], used, rates["read"], rates["write"], rates["received"], rates["sent"])

    def _own(self, now: float) -> float:
        before, after = self._own_before, (now, time.process_time())
        self._own_before = after
        return math.nan if before is None else (after[1] - before[1]) / max(1e-9, now - before[0])


class Waits:
    """Seconds that the ranks of this node spent waiting for others, as `dmr` counts them when told to."""

    def __init__(self, token: str) -> None:
        from ..run.rundir import waits_folder

        self._folder = waits_folder(token)
        self._before: tuple[float, float] | None = None
        self._seconds: dict[int, float] = {}

    def share(self, now: float, ranks: int) -> float:
        """Return the share of the ranks' time since the last call; NaN where nothing is counted."""
        self._seconds = {}
        try:
            names = os.listdir(self._folder)
        except OSError:
            return math.nan
        for name in names:
            with contextlib.suppress(OSError, struct.error, ValueError):
                self._seconds[int(name)] = struct.unpack("<d", (self._folder / name).read_bytes()[:8])[0]
        total = math.fsum(self._seconds.values())
        before, self._before = self._before, (now, total)
        if before is None or not self._seconds or now <= before[0]:
            return math.nan
        return max(0.0, total - before[1]) / (now - before[0]) / max(1, ranks, len(self._seconds))

    def of(self, pid: int) -> float:
        """Return the seconds that a process has waited in all; NaN where that is not counted."""
        return self._seconds.get(pid, math.nan)

    def remove(self) -> None:
        """Take the counters away, once the ranks have ended."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self._folder):
                os.unlink(self._folder / name)
            os.rmdir(self._folder)


def _sum(values: Any) -> float:
    known = [each for each in values if each == each]
    return math.fsum(known) if known else math.nan


def _infiniband() -> tuple[float, float]:
    """Return bytes received and sent over InfiniBand; its counters are in units of 4 bytes."""
    received = sent = 0.0
    try:
        ports = list(_INFINIBAND.glob("*/ports/*/counters"))
    except OSError:
        return 0.0, 0.0
    for each in ports:
        with contextlib.suppress(OSError, ValueError):
            received += 4.0 * int((each / "port_rcv_data").read_text())
            sent += 4.0 * int((each / "port_xmit_data").read_text())
    return received, sent
