"""The start of a cluster: its folder, its files, its daemons, and the wait for them."""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...resize.words import count
from . import accounting, daemons, places, ports, processes
from . import state as states
from .conf import Site, Spec, cgroup_conf, slurm_conf
from .ending import clear
from .errors import ClusterError
from .processes import Process
from .state import State
from .tools import Tools

_HELD = ("idle", "mixed", "allocated", "completing")


def claim(folder: Path, spec: Spec, owned: bool) -> State:
    """Take a cluster's folder and ports; what a dead one left in the folder is cleared away.

    Raises
    ------
    ClusterError
        When there is a living one.
    """
    me = processes.identify(os.getpid())
    assert me is not None
    with places.locked():
        if folder.exists():
            _check_dead(folder)
            clear(folder, grace=0.5)
        others = [found for each in places.folders() if (found := states.load(each)) is not None]
        taken = {port for each in others for port in each.ports}
        first = ports.free_block(spec.nodes + 2, taken)
        folder.mkdir(mode=0o700)
        state = State(
            name=folder.name,
            spec=spec,
            controller_port=first,
            accounting_port=first + 1 if spec.accounting else None,
            first_node_port=first + 2,
            starter=me,
            owner=me if owned else None,
        )
        state.save(folder)
    return state


def _check_dead(folder: Path) -> None:
    state = states.load(folder)
    if state is None or state.abandoned:
        return
    if state.ready and not any(processes.alive(each) for each in state.daemons.values()):
        return
    raise ClusterError(
        f"cluster '{folder.name}' is {'up' if state.ready else 'being started'} already ({folder}); "
        f"end it with 'dmr cluster down --name {folder.name}', or take another --name"
    )


@dataclass(frozen=True)
class Startup:
    """Starts the daemons of one cluster and waits for them.

    ``node_states`` asks Slurm for the state of every node. Times called ``limit`` are of ``time.monotonic()``.
    """

    folder: Path
    spec: Spec
    state: State
    tools: Tools
    environment: Mapping[str, str]
    node_states: Callable[[], Mapping[str, str]]

    def everything(self, limit: float) -> None:
        """Start all of it, and wait until all nodes are idle.

        Raises
        ------
        ClusterError
            Says what failed, with the last words of its log.
        """
        site = self._site()
        self._write(site)
        self.daemon("munged", daemons.munged(self.tools, self.folder))
        key = self.folder / "munge" / "socket"
        self._until(key.exists, ("munged",), limit, f"munged made no {key}")
        if self.spec.accounting:
            accounting.start(self.tools, site, self.daemon, limit)
        self.controller(limit)
        for node in self.spec.node_names:
            self.daemon(node, daemons.slurmd(self.tools, self.folder, node), self._spool(node), save=False)
        self.state.save(self.folder)
        self._await_nodes(limit, self.spec.node_names)
        self.state.ready = True
        self.state.save(self.folder)

    def controller(self, limit: float) -> None:
        """Start slurmctld, and wait until it answers."""
        self.daemon("slurmctld", daemons.slurmctld(self.tools, self.folder))
        self._until(self._controller_answers, ("munged", "slurmctld"), limit, "slurmctld doesn't answer")

    def node(self, node: str, limit: float) -> None:
        """Start one node's slurmd, and wait until Slurm has it."""
        self.daemon(node, daemons.slurmd(self.tools, self.folder, node), self._spool(node))
        port = self.state.first_node_port + self.spec.node_names.index(node)
        self._until(lambda: self._listens(port), (node,), limit, f"slurmd of {node} doesn't listen")
        self._await_nodes(limit, (node,))

    def daemon(
        self,
        name: str,
        argv: Sequence[str],
        cwd: Path | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        save: bool = True,
    ) -> Process:
        """Start one daemon, and write down that it runs."""
        started = daemons.start(argv, name, self.folder, cwd or self.folder, environment)
        self.state.daemons[name] = started
        if save:
            self.state.save(self.folder)
        return started

    def _site(self) -> Site:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return Site(
            name=self.folder.name,
            folder=self.folder,
            hostname=socket.gethostname().partition(".")[0],
            user=_user(),
            controller_port=self.state.controller_port,
            first_node_port=self.state.first_node_port,
            accounting_port=self.state.accounting_port,
            memory=pages // 2**20,
            version=self.tools.version,
            loopback=ports.loopback_of_this_machine(),
        )

    def _listens(self, port: int) -> bool:
        return ports.listens(port, ports.loopback_of_this_machine() or ports.LOOPBACK)

    def _write(self, site: Site) -> None:
        for name in ("munge", "state", "log", "spool", "tmp"):
            (self.folder / name).mkdir(mode=0o700)
        for name in self.spec.node_names:
            self._spool(name).mkdir(mode=0o700)
            (self.folder / "tmp" / name).mkdir(mode=0o700)
        _write_private(self.folder / "munge" / "key", secrets.token_bytes(1024), 0o400)
        _write_private(self.folder / "slurm.conf", slurm_conf(self.spec, site).encode())
        cgroup = cgroup_conf(site.version)
        if cgroup is not None:
            _write_private(self.folder / "cgroup.conf", cgroup.encode())

    def _spool(self, node: str) -> Path:
        return self.folder / "spool" / node

    def _controller_answers(self) -> bool:
        # A port that nobody listens on is told at once; the client would try for seconds.
        if not self._listens(self.state.controller_port):
            return False
        with contextlib.suppress(subprocess.TimeoutExpired):
            argv = [self.tools["scontrol"], "ping"]
            return subprocess.run(argv, env=self.environment, capture_output=True, timeout=10).returncode == 0
        return False

    def _await_nodes(self, limit: float, nodes: Sequence[str]) -> None:
        def all_up() -> bool:
            found = self.node_states()
            return all(found.get(node, "") in _HELD for node in nodes)

        self._until(all_up, ("munged", "slurmctld", *nodes), limit, "not all nodes came up")

    def _until(self, done: Callable[[], bool], names: Sequence[str], limit: float, what: str) -> None:
        for _ in _pauses():
            if done():
                return
            dead = [name for name in names if not processes.alive(self.state.daemons[name])]
            if dead:
                raise ClusterError(f"{dead[0]} ended by itself; its last words:\n{daemons.tail(self.folder, dead[0])}")
            if time.monotonic() > limit:
                break
        found = self.node_states() if "slurmctld" in names else {}
        late = [name for name in names if name in self.spec.node_names and found.get(name) not in _HELD]
        told = f" ({count(len(late), 'node')}; {late[0]} is {found.get(late[0], 'unknown')})" if late else ""
        speaker = late[0] if late else names[-1]
        last = daemons.tail(self.folder, speaker)
        raise ClusterError(f"{what} within the deadline{told}; the last words of {speaker}:\n{last}")


def _pauses() -> Iterator[None]:
    pause = 0.02
    while True:
        yield
        time.sleep(pause)
        pause = min(pause * 1.5, 0.5)


def _user() -> str:
    try:
        return getpass.getuser() if os.getuid() else "root"
    except (KeyError, OSError):
        raise ClusterError(f"user id {os.getuid()} has no name here, and Slurm wants one") from None


def _write_private(path: Path, content: bytes, mode: int = 0o600) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)
