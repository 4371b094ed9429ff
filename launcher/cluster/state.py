"""What is written down of a cluster, so that another process can find and end it."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .conf import Spec
from .processes import Process, alive

FORMAT = 1


@dataclass
class State:
    """One cluster as written in its folder's ``state.json``.

    ``starter`` is the process that started it, ``owner`` the process with which it ends (None when it
    stays). ``ready`` is set when all nodes had come up.
    """

    name: str
    spec: Spec
    controller_port: int
    first_node_port: int
    accounting_port: int | None
    starter: Process
    owner: Process | None = None
    ready: bool = False
    created: float = field(default_factory=time.time)
    daemons: dict[str, Process] = field(default_factory=dict)

    @property
    def ports(self) -> set[int]:
        """All ports promised to this cluster."""
        found = {self.controller_port, *range(self.first_node_port, self.first_node_port + self.spec.nodes)}
        return found | ({self.accounting_port} if self.accounting_port is not None else set())

    @property
    def abandoned(self) -> bool:
        """Whether nobody will ever end it: its owner has died, or its start was cut short."""
        if self.owner is not None and not alive(self.owner):
            return True
        return not self.ready and not alive(self.starter)

    def save(self, folder: Path) -> None:
        """Replace ``state.json``."""
        temporary = folder / f".state.json.{os.getpid()}"
        temporary.write_text(json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=1) + "\n")
        os.replace(temporary, folder / "state.json")


def load(folder: Path) -> State | None:
    """Return what is written in a folder, None when there is nothing, or nothing readable."""
    try:
        found: dict[str, Any] = json.loads((folder / "state.json").read_text())
        if found.pop("format") != FORMAT:
            return None
        found["spec"] = Spec(**found["spec"])
        found["daemons"] = {name: Process(**each) for name, each in found["daemons"].items()}
        found["starter"] = Process(**found["starter"])
        found["owner"] = Process(**found["owner"]) if found["owner"] else None
        return State(**found)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
