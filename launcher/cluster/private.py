"""A private cluster from its start to its end."""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from . import accounting, daemons, places, ports, processes, watch
from . import state as states
from .conf import Site, Spec, cgroup_conf, slurm_conf
from .errors import ClusterError
from .processes import Process
from .tools import Tools, find_tools, search_path

_INHERITED = ("SLURM_", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SINFO_", "SCONTROL_", "PMI_", "PMIX_")
_ROOT_MAY = (
    "OMPI_ALLOW_RUN_AS_ROOT",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
    "PRTE_ALLOW_RUN_AS_ROOT",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM",
)
_SOCKET_PATH_LIMIT = 107

Condition = Literal["up", "degraded", "starting", "dead"]


@dataclass(frozen=True)
class Status:
    """What is known of a cluster: ``nodes`` maps a node to the state that Slurm gives it."""

    name: str
    folder: Path
    condition: Condition
    nodes: Mapping[str, str]
    missing: tuple[str, ...]
    created: float | None


class PrivateCluster:
    """A real Slurm of this user's own, on virtual nodes of this machine.

    As a context manager it lives as long as the block, and ends with this process however that
    ends. ``up`` and ``down`` leave it running in between.

    Parameters
    ----------
    nodes, cpus_per_node, partitions, config, accounting
        See `Spec`.
    name : str, optional
        Without one it gets a name of its own.

    Examples
    --------
    >>> with PrivateCluster(nodes=4) as cluster:                        # doctest: +SKIP
    ...     print(cluster.run(["srun", "-N4", "hostname"]).stdout)
    """

    def __init__(
        self,
        nodes: int = 8,
        name: str | None = None,
        *,
        cpus_per_node: int = 2,
        partitions: Sequence[str] = ("main",),
        config: Sequence[str] = (),
        accounting: bool = False,
    ) -> None:
        self.name = places.check_name(name) if name else f"t{secrets.token_hex(4)}"
        self.spec = Spec(nodes, cpus_per_node, tuple(partitions), tuple(config), accounting)
        self.folder = places.base() / self.name
        self._watch: watch.Watch | None = None

    # -- finding

    @classmethod
    def find(cls, name: str) -> PrivateCluster | None:
        """Return a cluster that is up or was left behind, None when there is none of that name."""
        folder = places.folder_of(name)
        if folder is None:
            return None
        found = cls.__new__(cls)
        state = states.load(folder)
        found.name, found.folder, found._watch = name, folder, None
        found.spec = Spec() if state is None else state.spec
        return found

    @classmethod
    def every(cls) -> list[PrivateCluster]:
        """Return all clusters of this user."""
        return [each for folder in places.folders() if (each := cls.find(folder.name)) is not None]

    # -- beginning and end

    def up(self, deadline: float = 60.0, *, owned: bool = False) -> PrivateCluster:
        """Start it, and wait until all nodes are idle.

        Parameters
        ----------
        deadline : float
            Seconds until it has to stand.
        owned : bool
            Whether it is to end with this process.

        Raises
        ------
        ClusterError
            When it is up already, or didn't come up; nothing of it is left then.
        SlurmMissing
        """
        tools = find_tools(self.spec.accounting)
        sweep()
        self._check_room()
        limit = time.monotonic() + deadline
        for attempt in range(3):
            try:
                self._start(tools, limit, owned)
                return self
            except BaseException as error:
                taken = isinstance(error, ClusterError) and "Address already in use" in str(error)
                with contextlib.suppress(ClusterError):
                    self.down(grace=0.2)
                if not taken or attempt == 2:
                    raise
        raise AssertionError("unreachable")

    def down(self, grace: float = 2.0) -> None:
        """End it and its jobs and remove all its files; quiet when there is nothing of it.

        Parameters
        ----------
        grace : float
            Seconds between SIGTERM and SIGKILL.

        Raises
        ------
        ClusterError
            When something could not be ended or removed.
        """
        if self._watch is not None:
            self._watch.dismiss()
            self._watch = None
        tear_down(self.folder, grace)

    def __enter__(self) -> PrivateCluster:
        return self.up(owned=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    # -- using it

    @property
    def env(self) -> dict[str, str]:
        """This process's environment, turned towards the cluster."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(_INHERITED)}
        return kept | self.exports

    @property
    def exports(self) -> dict[str, str]:
        """The variables that turn an environment towards the cluster."""
        found = {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": search_path(os.environ.get("PATH"))}
        if os.getuid() == 0:
            found |= dict.fromkeys(_ROOT_MAY, "1")
        return found

    def run(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        check: bool = True,
        timeout: float = 60.0,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run one command inside, its output captured as text; ``env`` is added to `env`.

        Raises
        ------
        ClusterError
            When ``check`` and it ended with another status than 0; the text holds what it said.
        subprocess.TimeoutExpired
        """
        done = subprocess.run(
            argv,
            env={**self.env, **(env or {})},
            cwd=cwd,
            timeout=timeout,
            text=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if check and done.returncode:
            words = " ".join(map(str, argv))
            raise ClusterError(f"'{words}' ended with status {done.returncode}: {(done.stderr or done.stdout).strip()}")
        return done

    def node_states(self, timeout: float = 30.0) -> dict[str, str]:
        """Return the state of each node in Slurm's words, empty when the controller doesn't answer."""
        argv = ["sinfo", "--noheader", "--Node", "--format=%N %T"]
        try:
            done = self.run(argv, check=False, timeout=timeout)
        except subprocess.TimeoutExpired:
            return {}
        return {words[0]: words[1] for line in done.stdout.splitlines() if len(words := line.split()) == 2}

    def status(self) -> Status:
        """Look at it: its processes, its nodes."""
        state = states.load(self.folder)
        if state is None:
            return Status(self.name, self.folder, "dead", {}, (), None)
        missing = tuple(name for name, each in state.daemons.items() if not processes.alive(each))
        controller = state.daemons.get("slurmctld")
        answering = controller is not None and "slurmctld" not in missing and "munged" not in missing
        nodes = self.node_states(timeout=10.0) if answering and state.ready else {}
        condition: Condition = "up"
        if state.abandoned or len(missing) == len(state.daemons):
            condition = "dead"
        elif not state.ready:
            condition = "starting"
        elif missing or not nodes:
            condition = "degraded"
        return Status(self.name, self.folder, condition, nodes, missing, state.created)

    # -- trouble on purpose

    def stop_controller(self, *, kill: bool = False) -> None:
        """End slurmctld, by SIGTERM or SIGKILL, and wait until it is gone."""
        with self._changed() as state:
            found = state.daemons.pop("slurmctld", None)
        if found is not None:
            self._end([found], kill)

    def start_controller(self, deadline: float = 30.0) -> None:
        """Start slurmctld again, with the state that it saved, and wait until it answers."""
        tools = find_tools()
        with self._changed() as state:
            self._daemon(state, "slurmctld", daemons.slurmctld(tools, self.folder))
        self._await_controller(state, time.monotonic() + deadline)

    @contextlib.contextmanager
    def paused_controller(self) -> Iterator[None]:
        """Stop slurmctld's clock within the block: connections open and no answer comes."""
        state = self._state()
        processes.send(state.daemons["slurmctld"], signal.SIGSTOP)
        try:
            yield
        finally:
            processes.send(state.daemons["slurmctld"], signal.SIGCONT)

    def kill_node(self, node: str) -> None:
        """Lose a node: its slurmd, and everything of jobs on it, end by SIGKILL."""
        self._check_node(node)
        with self._changed() as state:
            state.daemons.pop(node, None)
        left = processes.end_node(self.folder, node)
        if left:
            raise ClusterError(f"can't end {', '.join(left)} of {node}")

    def start_node(self, node: str, deadline: float = 30.0) -> None:
        """Bring a lost node back, and wait until Slurm has it."""
        self._check_node(node)
        tools = find_tools()
        with self._changed() as state:
            self._daemon(state, node, daemons.slurmd(tools, self.folder, node), self.folder / "spool" / node)
        self._await_nodes(state, time.monotonic() + deadline, (node,))

    # -- inside

    def _start(self, tools: Tools, limit: float, owned: bool) -> None:
        state = self._claim(owned)
        if owned:
            self._watch = watch.Watch(self.folder)
        site = self._site(state, tools)
        self._write(site)
        self._daemon(state, "munged", daemons.munged(tools, self.folder))
        self._await_file(state, "munged", self.folder / "munge" / "socket", limit)
        if self.spec.accounting:
            accounting.start(tools, site, lambda name, argv, **more: self._daemon(state, name, argv, **more), limit)
        self._daemon(state, "slurmctld", daemons.slurmctld(tools, self.folder))
        self._await_controller(state, limit)
        for node in self.spec.node_names:
            where = self.folder / "spool" / node
            self._daemon(state, node, daemons.slurmd(tools, self.folder, node), where, save=False)
        state.save(self.folder)
        self._await_nodes(state, limit, self.spec.node_names)
        state.ready = True
        state.save(self.folder)

    def _check_room(self) -> None:
        status = self.status() if self.folder.exists() else None
        if status is not None and status.condition != "dead":
            raise ClusterError(
                f"cluster '{self.name}' is {status.condition} already ({self.folder}); "
                f"end it with 'dmr cluster down --name {self.name}', or take another --name"
            )
        tear_down(self.folder)
        longest = len(os.fsencode(self.folder / "spool" / self.spec.node_names[-1] / "stepd.slurm.pmix.9999999.9999"))
        if longest > _SOCKET_PATH_LIMIT:
            raise ClusterError(f"{self.folder} is too long a path for sockets in it: take a shorter name")

    def _claim(self, owned: bool) -> states.State:
        me = processes.identify(os.getpid())
        assert me is not None
        base = places.base()
        with states.locked(base):
            others = [found for each in places.folders() if (found := states.load(each)) is not None]
            taken = {port for each in others for port in each.ports}
            first = ports.free_block(self.spec.nodes + 2, taken)
            try:
                self.folder.mkdir(mode=0o700)
            except FileExistsError:
                raise ClusterError(f"cluster '{self.name}' is just being started by somebody else") from None
            state = states.State(
                name=self.name,
                spec=self.spec,
                controller_port=first,
                accounting_port=first + 1 if self.spec.accounting else None,
                first_node_port=first + 2,
                starter=me,
                owner=me if owned else None,
            )
            state.save(self.folder)
        return state

    def _site(self, state: states.State, tools: Tools) -> Site:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return Site(
            name=self.name,
            folder=self.folder,
            hostname=socket.gethostname().partition(".")[0],
            user=_user(),
            controller_port=state.controller_port,
            first_node_port=state.first_node_port,
            accounting_port=state.accounting_port,
            memory=pages // 2**20,
            version=tools.version,
        )

    def _write(self, site: Site) -> None:
        for name in ("munge", "state", "log", "spool", "tmp"):
            (self.folder / name).mkdir(mode=0o700)
        for name in self.spec.node_names:
            (self.folder / "spool" / name).mkdir(mode=0o700)
            (self.folder / "tmp" / name).mkdir(mode=0o700)
        _write_private(self.folder / "munge" / "key", secrets.token_bytes(1024), 0o400)
        _write_private(self.folder / "slurm.conf", slurm_conf(self.spec, site).encode())
        cgroup = cgroup_conf(site.version)
        if cgroup is not None:
            _write_private(self.folder / "cgroup.conf", cgroup.encode())

    def _daemon(
        self,
        state: states.State,
        name: str,
        argv: Sequence[str],
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        save: bool = True,
    ) -> None:
        state.daemons[name] = daemons.start(argv, name, self.folder, cwd or self.folder, environment)
        if save:
            state.save(self.folder)

    def _await_file(self, state: states.State, name: str, path: Path, limit: float) -> None:
        for _ in self._patience(state, (name,), limit, f"{name} made no {path}"):
            if path.exists():
                return

    def _await_controller(self, state: states.State, limit: float) -> None:
        for _ in self._patience(state, ("munged", "slurmctld"), limit, "slurmctld doesn't answer"):
            with contextlib.suppress(subprocess.TimeoutExpired, OSError):
                # A port that nobody listens on is told at once; the client would try for seconds.
                socket.create_connection(("127.0.0.1", state.controller_port), timeout=1).close()
                if self.run(["scontrol", "ping"], check=False, timeout=10).returncode == 0:
                    return

    def _await_nodes(self, state: states.State, limit: float, nodes: Sequence[str]) -> None:
        found: dict[str, str] = {}
        watched = ("munged", "slurmctld", *nodes)
        for _ in self._patience(state, watched, limit, "not all nodes came up"):
            found = self.node_states()
            if all(found.get(node, "").rstrip("*~#$@") in ("idle", "mixed", "allocated") for node in nodes):
                return

    def _patience(self, state: states.State, names: Sequence[str], limit: float, what: str) -> Iterator[None]:
        pause = 0.02
        while True:
            yield
            dead = [name for name in names if not processes.alive(state.daemons[name])]
            if dead:
                raise ClusterError(f"{dead[0]} ended by itself; its last words:\n{daemons.tail(self.folder, dead[0])}")
            if time.monotonic() > limit:
                states_now = self.node_states(timeout=5) if "slurmctld" in state.daemons else {}
                late = [name for name in names if name in self.spec.node_names and states_now.get(name) != "idle"]
                speaker = late[0] if late else names[-1]
                told = f" ({len(late)} nodes, {late[0]} is {states_now.get(late[0], 'unknown')})" if late else ""
                raise ClusterError(
                    f"{what} within the deadline{told}; {speaker}'s last words:\n{daemons.tail(self.folder, speaker)}"
                )
            time.sleep(pause)
            pause = min(pause * 1.5, 0.5)

    @contextlib.contextmanager
    def _changed(self) -> Iterator[states.State]:
        state = self._state()
        yield state
        state.save(self.folder)

    def _state(self) -> states.State:
        state = states.load(self.folder)
        if state is None:
            raise ClusterError(f"cluster '{self.name}' is not up")
        return state

    def _check_node(self, node: str) -> None:
        if node not in self.spec.node_names:
            raise ClusterError(f"cluster '{self.name}' has no node {node!r}: they are n1 … n{self.spec.nodes}")

    def _end(self, which: Sequence[Process], kill: bool) -> None:
        for each in which:
            processes.send(each, signal.SIGKILL if kill else signal.SIGTERM)
        left = processes.wait_gone(which, 0.0 if kill else 20.0)
        for each in left:
            processes.send(each, signal.SIGKILL)
        if processes.wait_gone(left, 10.0):
            raise ClusterError(f"can't end process {left[0].pid} of cluster '{self.name}'")


def tear_down(folder: Path, grace: float = 2.0) -> None:
    """End all processes of the cluster in a folder, and remove the folder.

    Raises
    ------
    ClusterError
    """
    left = processes.end(folder, grace)
    if left:
        raise ClusterError(f"can't end {', '.join(left)} of the cluster in {folder}; its files are left there")
    for _ in range(5):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            break
        time.sleep(0.1)
    else:
        raise ClusterError(f"can't remove {folder}: remove it by hand")
    with contextlib.suppress(OSError):
        folder.parent.rmdir()


def sweep() -> list[str]:
    """End clusters that nobody will end any more, since whoever owned or started them died; returns their names."""
    swept = []
    for folder in places.folders():
        state = states.load(folder)
        if state is not None and state.abandoned:
            tear_down(folder, grace=0.5)
            swept.append(folder.name)
    return swept


def _user() -> str:
    try:
        return getpass.getuser() if os.getuid() else "root"
    except (KeyError, OSError):
        raise ClusterError(f"user id {os.getuid()} has no name here, and Slurm wants one") from None


def _write_private(path: Path, content: bytes, mode: int = 0o600) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)
