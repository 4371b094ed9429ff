"""Which process is meant, across machines and restarts, and whether it still lives."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def machine() -> str:
    """Return what tells this machine, this boot and this process namespace from any other."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        boot, namespace = "", ""
    return f"{socket.gethostname()} {boot} {namespace}"


def identity() -> dict[str, Any]:
    """Return the identity of this process, for a lease or a claim."""
    return {"pid": os.getpid(), "born": born(os.getpid()), "host": socket.gethostname(), "machine": machine()}


def born(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None when it is gone, or dead and not yet reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def lives(who: Mapping[str, Any]) -> bool | None:
    """Return whether the process of this identity lives, None when it is not of this machine."""
    if who.get("machine") != machine() or "pid" not in who:
        return None
    return born(int(who["pid"])) == who.get("born")
