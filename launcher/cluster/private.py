"""A private cluster as its user sees it."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from . import places, processes
from . import state as states
from .conf import Spec
from .ending import sweep, tear_down
from .errors import ClusterError
from .processes import Process
from .starting import Startup, claim
from .tools import find_tools, search_path
from .watch import Watch

_INHERITED = ("SLURM_", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SINFO_", "SCONTROL_", "PMI_", "PMIX_")
_ROOT_MAY = (
    "OMPI_ALLOW_RUN_AS_ROOT",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
    "PRTE_ALLOW_RUN_AS_ROOT",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM",
)
# Open MPI takes virtual nodes for machines of their own. Version 4 names its shared memory by host and rank on the
# node, so that two of them would take each other's; version 5 finds no route from this machine to itself but by lo.
# The setting takes the place of Debian's own, which leaves out the others: with ofi every MPI_Finalize takes a second.
_OPEN_MPI = {"OMPI_MCA_btl": "^vader,uct,openib,ofi", "OMPI_MCA_btl_tcp_if_include": "lo"}

Condition = Literal["up", "degraded", "starting", "dead"]


@dataclass(frozen=True)
class Status:
    """What is known of a cluster.

    ``nodes`` maps each node to its state in Slurm's words, empty when the controller does not answer;
    ``missing`` names the daemons that do not run, ``created`` is a unix time.
    """

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
        self.name = f"t{secrets.token_hex(4)}" if name is None else name
        self.folder = places.new_folder(self.name)
        self.spec = Spec(nodes, cpus_per_node, tuple(partitions), tuple(config), accounting)
        self._watch: Watch | None = None

    @classmethod
    def find(cls, name: str) -> PrivateCluster | None:
        """Return a cluster that is up or was left behind, None when there is none of that name."""
        places.check_name(name)
        return next((each for each in cls.every() if each.name == name), None)

    @classmethod
    def every(cls) -> list[PrivateCluster]:
        """Return all clusters of this user, by name."""
        found = []
        for folder in places.folders():
            state = states.load(folder)
            one = cls(name=folder.name)
            one.spec = one.spec if state is None else state.spec
            found.append(one)
        return found

    # -- beginning and end

    def up(self, deadline: float = 60.0, *, owned: bool = False) -> PrivateCluster:
        """Start it, and wait until all nodes are idle.

        Parameters
        ----------
        deadline : float
            Seconds until it has to stand.
        owned : bool
            Whether it is to end with this process, however that ends.

        Raises
        ------
        ClusterError
            When it is up already, or didn't come up; nothing of it is left then.
        SlurmMissing
        """
        tools = find_tools(self.spec.accounting)
        sweep()
        limit = time.monotonic() + deadline
        for attempt in range(3):
            state = claim(self.folder, self.spec, owned)
            try:
                if owned:
                    self._watch = Watch(self.folder)
                Startup(self.folder, self.spec, state, tools, self.env, self.node_states).everything(limit)
                return self
            except BaseException as error:
                with contextlib.suppress(ClusterError):
                    self.down(grace=0.2)
                # Another program took a port between the look for it and its use.
                if attempt == 2 or not (isinstance(error, ClusterError) and "Address already in use" in str(error)):
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
    def exports(self) -> dict[str, str]:
        """The variables that turn an environment towards the cluster."""
        found = {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": search_path(os.environ.get("PATH"))}
        if os.getuid() == 0:
            found |= dict.fromkeys(_ROOT_MAY, "1")
        return found | {name: os.environ.get(name, value) for name, value in _OPEN_MPI.items()}

    @property
    def env(self) -> dict[str, str]:
        """This process's environment, turned towards the cluster."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(_INHERITED)}
        return kept | self.exports

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

    def node_states(self) -> dict[str, str]:
        """Return the state of each node in Slurm's words, empty when the controller doesn't answer."""
        argv = ["sinfo", "--noheader", "--Node", "--format=%N %T"]
        try:
            done = self.run(argv, check=False, timeout=20.0)
        except subprocess.TimeoutExpired:
            return {}
        return {words[0]: words[1] for line in done.stdout.splitlines() if len(words := line.split()) == 2}

    def status(self) -> Status:
        """Look at it: its processes, and its nodes."""
        state = states.load(self.folder)
        if state is None:
            return Status(self.name, self.folder, "dead", {}, (), None)
        missing = tuple(name for name, each in state.daemons.items() if not processes.alive(each))
        if "slurmctld" not in state.daemons:
            missing = ("slurmctld", *missing)
        answering = not {"slurmctld", "munged"}.intersection(missing)
        nodes = self.node_states() if answering and state.ready else {}
        condition: Condition = "up"
        if state.abandoned or not any(processes.alive(each) for each in state.daemons.values()):
            condition = "dead"
        elif not state.ready:
            condition = "starting"
        elif missing or not nodes:
            condition = "degraded"
        return Status(self.name, self.folder, condition, nodes, missing, state.created)

    # -- trouble on purpose

    def stop_controller(self, *, kill: bool = False) -> None:
        """End slurmctld, by SIGTERM or SIGKILL, and wait until it is gone."""
        state = self._state()
        found = state.daemons.pop("slurmctld", None)
        state.save(self.folder)
        if found is not None:
            self._end(found, kill)

    def start_controller(self, deadline: float = 30.0) -> None:
        """Start slurmctld again, with the state that it saved, and wait until it answers."""
        state = self._state()
        if "slurmctld" in state.daemons and processes.alive(state.daemons["slurmctld"]):
            raise ClusterError(f"slurmctld of cluster '{self.name}' runs already")
        self._startup(state).controller(time.monotonic() + deadline)

    @contextlib.contextmanager
    def paused_controller(self) -> Iterator[None]:
        """Stop slurmctld within the block: connections open, and no answer comes."""
        controller = self._state().daemons["slurmctld"]
        processes.send(controller, signal.SIGSTOP)
        try:
            yield
        finally:
            processes.send(controller, signal.SIGCONT)

    def kill_node(self, node: str) -> None:
        """Lose a node: its slurmd, and everything of jobs on it, end by SIGKILL."""
        self._check_node(node)
        state = self._state()
        state.daemons.pop(node, None)
        state.save(self.folder)
        left = processes.kill_node(self.folder, node)
        if left:
            raise ClusterError(f"can't end {', '.join(left)} of {node}")

    def start_node(self, node: str, deadline: float = 30.0) -> None:
        """Bring a lost node back, and wait until Slurm has it."""
        self._check_node(node)
        state = self._state()
        if node in state.daemons and processes.alive(state.daemons[node]):
            raise ClusterError(f"slurmd of {node} in cluster '{self.name}' runs already")
        self._startup(state).node(node, time.monotonic() + deadline)

    def _startup(self, state: states.State) -> Startup:
        return Startup(self.folder, self.spec, state, find_tools(), self.env, self.node_states)

    def _state(self) -> states.State:
        state = states.load(self.folder)
        if state is None:
            raise ClusterError(f"cluster '{self.name}' is not up")
        return state

    def _check_node(self, node: str) -> None:
        if node not in self.spec.node_names:
            raise ClusterError(f"cluster '{self.name}' has no node {node!r}: they are n1 … n{self.spec.nodes}")

    def _end(self, process: Process, kill: bool) -> None:
        processes.send(process, signal.SIGKILL if kill else signal.SIGTERM)
        if processes.wait_gone([process], 20.0):
            processes.send(process, signal.SIGKILL)
            if processes.wait_gone([process], 10.0):
                raise ClusterError(f"can't end process {process.pid} of cluster '{self.name}'")
