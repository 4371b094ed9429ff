"""The local engine: this machine's cores are the nodes."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from ...resize import words
from ...resize.view import ClusterView
from ..slurm.environment import without_scheduler
from .engine import Allocation, Ending, EngineError, JobInfo, Launch, ShrinkRefused, Submission, SubmitRefused
from .mpi import Flavour, find_flavour
from .processes import ProcessRanks


class LocalEngine:
    """Runs the ranks on this machine; any size up to ``nodes`` is to be had at once.

    Parameters
    ----------
    nodes
        How many nodes the machine counts for; None for the cores that this process may use. More share cores.
    tasks_per_node
        Ranks that each of them takes.
    mpi
        How ranks are started, see `find_flavour`.
    environ
        Environment to run in; that of this process by default. What a scheduler left in it is taken out.

    Raises
    ------
    EngineError
        When a number is not positive.
    """

    name = "local"
    can_submit = False
    no_shrink: str | None = None

    def __init__(
        self,
        nodes: int | None = None,
        tasks_per_node: int = 1,
        mpi: str = "auto",
        *,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        count = len(os.sched_getaffinity(0)) if nodes is None else nodes
        for value, what in ((count, "nodes"), (tasks_per_node, "tasks per node")):
            if value < 1:
                raise EngineError(f"the local engine needs at least 1 for {what}, not {value}")
        self._mpi = mpi
        self._environ = without_scheduler(os.environ if environ is None else environ)
        self._flavour: Flavour | None = None
        self._all = tuple(f"local{index}" for index in range(count))
        self._held = Allocation(job=None, nodes=self._all, tasks_per_node=tasks_per_node)

    def allocation(self) -> Allocation:
        return self._held

    def observe(self) -> ClusterView:
        total = len(self._all)
        return ClusterView(time.time(), total, total - len(self._held.nodes), partition="local", max_nodes=total)

    def flavour(self, launch: Launch) -> Flavour:
        """Return how this engine starts ranks; found with the first launch, and kept.

        Raises
        ------
        EngineError
            When no MPI was found.
        """
        if self._flavour is None:
            environ = {**self._environ, **launch.environment}
            self._flavour = find_flavour(self._mpi, launch.command, slurm=False, environ=environ)
        return self._flavour

    def start(self, launch: Launch) -> ProcessRanks:
        flavour = self.flavour(launch)
        environ = {**self._environ, **launch.environment}
        environ |= flavour.environment(environ)
        if flavour.name == "mpirun" and "OMPI_MCA_btl_tcp_if_exclude" not in environ:
            # Open MPI 5 warns at each start that it finds no route from this machine to itself but by lo.
            environ.setdefault("OMPI_MCA_btl_tcp_if_include", "lo")
        argv = flavour.argv([*launch.prefix, *launch.command], launch.allocation, local=True)
        return ProcessRanks(argv, environ, launch.folder, launch.log)

    def resize_in_place(self, allocation: Allocation, nodes: int) -> Allocation:
        if not 1 <= nodes <= len(self._all):
            raise ShrinkRefused(f"this machine counts for {words.nodes(len(self._all))}, not {nodes} (--local-nodes)")
        self._held = Allocation(
            job=allocation.job,
            nodes=self._all[:nodes],
            tasks_per_node=allocation.tasks_per_node,
            cpus_per_task=allocation.cpus_per_task,
            end=allocation.end,
        )
        return self._held

    def foresee(self, submission: Submission) -> None:
        """There is no scheduler to say."""

    def submit(self, submission: Submission) -> str:
        raise SubmitRefused("the local engine has no queue: every resize is a relaunch in place")

    def find(self, name: str) -> JobInfo | None:
        return None

    def job(self, job: str) -> JobInfo:
        return JobInfo(job, "ended", reason="the local engine has no jobs")

    def resize_pending(self, job: str, nodes: tuple[int, int]) -> None:
        raise EngineError("the local engine has no pending jobs")

    def cancel(self, job: str) -> None:
        """Nothing pends here, so there is nothing to cancel."""

    def ending(self) -> Ending:
        return "none"

    def survivors(self, allocation: Allocation) -> Allocation:
        return allocation

    def silent(self, allocation: Allocation) -> tuple[str, ...]:
        return ()
