"""The Slurm engine: this process runs in an allocation, as an ordinary user."""

from __future__ import annotations

import getpass
import os
import re
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...resize import words
from ...resize.view import ClusterView
from ..engines.engine import Allocation, Ending, EngineError, JobInfo, Launch, ShrinkRefused, Submission, Unanswered
from ..engines.mpi import Flavour, find_flavour
from ..engines.processes import ProcessRanks
from . import options, parse
from .client import ENV_CLIENT, Client, find_client
from .commands import QUERY_SECONDS, QUERY_TRIES, CommandFailed, Commands
from .environment import step_environment, without_scheduler
from .held import batch_host_first, held_at_start, job_id
from .limits import most_nodes
from .parse import JobRow
from .script import BatchScript, generated, own_arguments
from .site import Site, read_site
from .states import is_responding, is_silent, job_state
from .statuses import own_status
from .steps import signal_steps, sweeper
from .submit import Origin, Prepared, foresee, output_of, prepare, submit
from .times import TIME_LIMIT, Times, asked_times, may_be_cut, submit_line, with_limit
from .view import Reach, cluster_view

SHRINK_SECONDS = 8.0
"""How long a shrink is tried again while Slurm says that the job can't be changed just now."""
ENDING_SECONDS = 5.0
"""Time-out when there are only seconds left."""
ASK_SECONDS = 10.0
"""How long scancel may take to send the ranks a SIGTERM."""


class SlurmEngine:
    """Runs ranks in a Slurm allocation, gives nodes back, and submits successors.

    Parameters
    ----------
    environ
        The job's environment, this process's own by default.
    mpi
        How ranks are started, see `find_flavour`.
    tasks_per_node
        Ranks a node; None for what the job was submitted with.
    relaunch
        Command line that a successor of a job without a batch script (salloc) runs; this process's own by default.
    seconds
        Time-out of one query.
    client
        Who asks the controller; by default what DMR_SLURM_CLIENT says: ``commands`` (squeue and sinfo) or ``pyslurm``.

    Raises
    ------
    EngineError
        Outside an allocation, and in a heterogeneous job.
    """

    name = "slurm"
    can_submit = True

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        *,
        mpi: str = "auto",
        tasks_per_node: int | None = None,
        relaunch: Sequence[str] | None = None,
        seconds: float = QUERY_SECONDS,
        client: Client | None = None,
    ) -> None:
        self._environ = dict(os.environ if environ is None else environ)
        raw = self._environ.get("SLURM_JOB_ID")
        if raw is None:
            raise EngineError(
                "this is not a Slurm allocation (no SLURM_JOB_ID): use sbatch or salloc, or --engine local"
            )
        if self._environ.get("SLURM_HET_SIZE") or self._environ.get("SLURM_HET_JOB_ID"):
            raise EngineError("heterogeneous jobs can't be resized: submit the malleable part as a job of its own")
        if tasks_per_node is not None and tasks_per_node < 1:
            raise EngineError(f"at least 1 rank a node is needed, not {tasks_per_node}")
        self._raw, self._job = raw, job_id(self._environ)
        self._mpi = mpi
        self._flavour: Flavour | None = None
        self._tasks_per_node = tasks_per_node
        self._relaunch = tuple(relaunch or [sys.executable, *sys.orig_argv[1:]])
        self.commands = Commands(without_scheduler(self._environ), seconds)
        self._client = client or find_client(self._environ.get(ENV_CLIENT, "commands"), self.commands)
        self._lock, self._asking = threading.Lock(), threading.Lock()
        self._held: Allocation | None = None
        self._origin: Origin | None = None
        self._line: str | None = None
        self._limit: float | None = None
        self.outputs: dict[str, str | None] = {}
        self._reach: Reach | None = None
        self._refusal: str | None = None
        self._site: Site | None = None
        self._shrunk = False
        self._starts = 0

    # -- what is held

    def allocation(self) -> Allocation:
        """Return what is held, as the controller says.

        Without an answer it is what was held last, or what the environment says.
        """
        try:
            row = self._client.job(self._job, tries=1 if self._held else QUERY_TRIES)
        except EngineError:
            row = None
        held = self._held or held_at_start(self._environ, self._job, self._tasks_per_node)
        if row is not None and row.held:
            held = replace(held, nodes=batch_host_first(row.held, row.batch_host), end=row.end)
            asked = self._environ.get("SLURM_JOB_NUM_NODES", "")
            self._shrunk = self._shrunk or (asked.isdecimal() and len(row.held) < int(asked))
            self._limit = row.time_limit
        self._held = held
        return held

    # -- the cluster

    def observe(self) -> ClusterView | None:
        try:
            queue = self._client.queue()
            nodes = self._client.nodes()
            if self._site is None:
                self._site = read_site(self.commands.query(["scontrol", "show", "config"]).out)
        except EngineError:
            return None
        self._limit = next((row.time_limit for row in queue if row.raw == self._raw), self._limit)
        return cluster_view(time.time(), queue, nodes, self._within_reach(queue))

    def _within_reach(self, queue: Sequence[JobRow]) -> Reach:
        if self._reach is None:
            mine = next((row for row in queue if row.raw == self._raw), None)
            partitions = set(mine.partitions if mine else ()) or {self._environ.get("SLURM_JOB_PARTITION", "")}
            try:
                origin = self._described()
            except EngineError:
                return Reach(frozenset(partitions))
            record, held = origin.record, self._held or self.allocation()
            cpus = held.tasks_per_node * (held.cpus_per_task or 1)
            self._reach = Reach(
                frozenset(options.partitions(record, origin.batch.text) or partitions),
                record.get("Features", ""),
                frozenset(parse.expand_hosts(record.get("ExcNodeList", ""))),
                most_nodes(self.commands, record, self._user(), cpus),
            )
        return self._reach

    def foresee(self, submission: Submission) -> float | None:
        """Return when Slurm would start a submission (``sbatch --test-only``), None where it doesn't say.

        It looks at running jobs alone, and so is a lower bound.
        """
        try:
            return foresee(self.commands, self.prepare(submission))
        except EngineError:
            return None

    # -- ranks

    def flavour(self, launch: Launch) -> Flavour:
        """Return how this engine starts ranks; found with the first launch, and kept.

        Raises
        ------
        EngineError
            When no MPI was found.
        """
        return self._flavour or self.get_ready(launch.command, launch.environment)

    def get_ready(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Flavour:
        """Find out how the ranks of a command are started, which takes some programs and a step; kept.

        Raises
        ------
        EngineError
            When no MPI was found.
        """
        environ = {**self._environ, **(environment or {})}
        self._flavour = find_flavour(self._mpi, command, slurm=True, environ=environ)
        return self._flavour

    def start(self, launch: Launch) -> ProcessRanks:
        flavour = self.flavour(launch)
        inherited = step_environment(self._environ, launch.allocation, by_srun=flavour.by_srun)
        environ = {**inherited, **launch.environment}
        environ |= flavour.environment(environ)
        self._starts += 1
        label = f"dmr-{os.getpid()}-{self._starts}"
        argv = flavour.argv([*launch.prefix, *launch.command], launch.allocation, label=label)
        sweep = sweeper(self.commands, self._raw, label)

        def ask(name: str) -> bool:
            # srun answers SIGTERM by killing the step at once, without a SIGTERM to the ranks.
            return flavour.by_srun and signal_steps(self.commands, self._raw, label, name, ASK_SECONDS)

        status = own_status if flavour.by_srun else None
        return ProcessRanks(argv, environ, launch.folder, launch.log, ask=ask, sweep=sweep, status=status)

    # -- changes of size

    @property
    def no_shrink(self) -> str | None:
        """Why the job can't give nodes back, None as far as is known: after the first answer of `observe`."""
        if self._refusal is not None or self._site is None:
            return self._refusal
        return self._site.no_shrink(self._shrunk)

    def resize_in_place(self, allocation: Allocation, nodes: int) -> Allocation:
        """Give nodes back: the last ones of the allocation, never the one that this launcher runs on."""
        if nodes == len(allocation.nodes):
            return allocation
        if nodes > len(allocation.nodes):
            raise ShrinkRefused(f"Slurm lets no running job grow ({len(allocation.nodes)} to {words.nodes(nodes)})")
        if nodes < 1:
            raise ShrinkRefused("a job keeps at least one node")
        return self.keep(allocation, allocation.nodes[:nodes])

    def keep(self, allocation: Allocation, nodes: Sequence[str]) -> Allocation:
        """Give all nodes back but these, which have to hold the first of the allocation: the batch script runs there.

        Raises
        ------
        ShrinkRefused
        Unanswered
            When neither the update nor the question what came of it was answered.
        """
        if not set(nodes) <= set(allocation.nodes) or allocation.nodes[0] not in nodes:
            raise ShrinkRefused(f"{', '.join(nodes)} are not nodes of this job with {allocation.nodes[0]} among them")
        if (reason := self.no_shrink) is not None:
            raise ShrinkRefused(reason)
        answered, refused = self._update([f"JobId={self._raw}", f"NodeList={parse.short_hosts(nodes)}"])
        # The answer may have been lost, and the words of a refusal differ: what is held decides.
        row = self._client.job(self._job, tries=QUERY_TRIES)
        if row is None or not row.held:
            raise Unanswered(f"squeue doesn't tell what job {self._job} holds after the shrink")
        self._held = replace(allocation, nodes=batch_host_first(row.held, row.batch_host), end=row.end)
        if set(self._held.nodes) != set(nodes):
            holds = f"job {self._job} still holds {words.nodes(len(row.held))}"
            if not answered:
                raise Unanswered(f"scontrol gave no answer, and {holds}")
            self._refusal = refused or f"{holds} after scontrol update"
            raise ShrinkRefused(self._refusal)
        self._shrunk = True
        return self._held

    def _update(self, changes: Sequence[str]) -> tuple[bool, str]:
        """Run ``scontrol update``; returns whether it was answered, and why it was refused."""
        until = time.monotonic() + SHRINK_SECONDS
        while True:
            try:
                # Without SLURM_JOBID in its environment scontrol writes no resize scripts into the working directory.
                self.commands.act(["scontrol", "update", *changes])
                return True, ""
            except Unanswered:
                return False, ""
            except CommandFailed as error:
                if not error.busy or time.monotonic() > until:
                    return True, error.words
            time.sleep(1.0)

    # -- successors

    def origin(self) -> Origin:
        """Return the job that successors are made from: its record and its script, asked for once.

        Where its time limit may have been cut, and no job before has told what was asked for, accounting is asked for
        the line that it was submitted by, which may take `.times.SECONDS` and more.

        Raises
        ------
        Unanswered, EngineError
        """
        origin = self._described()
        if "SubmitLine" in origin.record or TIME_LIMIT in origin.environ or not may_be_cut(origin.record):
            return origin
        with self._asking:
            if self._line is None:
                self._line = submit_line(self.commands, origin.record, self._raw)
        return replace(origin, record={**origin.record, "SubmitLine": self._line})

    def _described(self) -> Origin:
        """Return the job as the controller describes it, asked for once."""
        with self._lock:
            if self._origin is None:
                shown = self.commands.query(["scontrol", "show", "job", "-o", self._raw], tries=QUERY_TRIES)
                record = parse.record(shown.out)
                batch, held = self._script(record), self._nodes_at_start()
                self._origin = Origin(self._raw, record, batch, self._environ, held)
            return self._origin

    def asked_times(self) -> Times:
        """Return the time limits that the user asked for.

        Raises
        ------
        Unanswered, EngineError
        """
        origin = self._as_it_is()
        return asked_times(origin.record, options.read_script(origin.batch.text), origin.environ)

    def _as_it_is(self) -> Origin:
        """Return the origin with the time limit that was last seen, where that was raised since."""
        origin = self.origin()
        record = with_limit(origin.record, self._limit)
        return origin if record is origin.record else replace(origin, record=record)

    def use_origin(self, origin: Origin) -> None:
        """Make successors from this job from now on."""
        with self._lock:
            self._origin = origin

    def _nodes_at_start(self) -> int:
        count = self._environ.get("SLURM_JOB_NUM_NODES", "")
        return int(count) if count.isdecimal() else len(self.allocation().nodes)

    def _script(self, record: Mapping[str, str]) -> BatchScript:
        if record.get("BatchFlag", "1") == "0":
            return generated(self._relaunch)
        argv = ["scontrol", "write", "batch_script", self._raw, "-"]
        text = self.commands.query(argv, tries=QUERY_TRIES).out
        if not text.startswith("#!"):
            raise EngineError(f"scontrol does not show the batch script of job {self._raw}")
        command = record.get("Command", "").split()
        return BatchScript(text, own_arguments(record), os.path.basename(command[0]) if command else "job.sh")

    def prepare(self, submission: Submission) -> Prepared:
        """Return the submission in full, without making it.

        Raises
        ------
        Unanswered, EngineError
        """
        held = self._held or self.allocation()
        return prepare(self._as_it_is(), submission, held.tasks_per_node, held.cpus_per_task)

    def submit(self, submission: Submission) -> str:
        prepared = self.prepare(submission)
        job = submit(self.commands, prepared)
        self.outputs[job] = output_of(prepared, job)
        return job

    def find(self, name: str) -> JobInfo | None:
        token = name.rpartition(":")[2]
        found = [
            _info(row, row.ids[0])
            for row in self._client.jobs_of(self._user())
            if row.comment.split(" ")[0] == name or row.name.endswith(f".{token}")
        ]
        return next((info for info in found if info.state != "ended"), found[0] if found else None)

    def job(self, job: str) -> JobInfo:
        try:
            row = self._client.job(job)
        except EngineError as error:
            return JobInfo(job, "unknown", reason=str(error))
        # The id is one that sbatch gave out, so a job that Slurm doesn't know was forgotten after its end.
        return JobInfo(job, "ended") if row is None else _info(row, job)

    def resize_pending(self, job: str, nodes: tuple[int, int]) -> None:
        held = self._held or self.allocation()
        shape = options.Shape(nodes, held.tasks_per_node, held.cpus_per_task)
        self.commands.act(["scontrol", "update", f"JobId={job}", *options.pending_size(shape)])

    def cancel(self, job: str) -> None:
        try:
            self.commands.act(["scancel", job])
        except CommandFailed as error:
            if not error.unknown_job:
                raise

    # -- trouble

    def ending(self) -> Ending:
        """Return why Slurm ends this job, from one record of it, or two.

        While a job completes squeue hides why; the record tells. Preemption is known from the begin of its grace time
        on, when the job still runs.
        """
        try:
            shown = self._ask_quickly(["scontrol", "show", "job", "-o", self._raw])
            if shown is None:
                return "unknown"
            found = parse.record(shown)
            restarts = int(self._environ.get("SLURM_RESTART_COUNT") or 0)
            if int(found.get("Restarts", 0)) > restarts or found.get("JobState") in ("PENDING", "REQUEUED"):
                return "requeued"
            if "PreemptTime" in found:
                return "requeued" if self._comes_back(found) else "preempted"
        except ValueError:
            return "unknown"
        if found.get("Reason") == "TimeLimit" or found.get("JobState") in ("TIMEOUT", "DEADLINE"):
            return "limit"
        if found.get("Reason") == "NodeDown" or found.get("JobState") in ("NODE_FAIL", "BOOT_FAIL"):
            return "preempted"  # nobody's wish: the run goes on in another job
        return "none" if found.get("JobState") in ("RUNNING", "CONFIGURING", "SUSPENDED") else "cancelled"

    def _comes_back(self, found: Mapping[str, str]) -> bool:
        """Whether a job that is being preempted will be requeued rather than cancelled."""
        if found.get("Requeue", "0") != "1" or found.get("JobState") not in ("RUNNING", "SUSPENDED"):
            return False
        partition = self._ask_quickly(["scontrol", "show", "partition", "-o", found.get("Partition", "")])
        return partition is not None and re.search(r"\bPreemptMode=\S*REQUEUE", partition) is not None

    def _ask_quickly(self, argv: Sequence[str]) -> str | None:
        try:
            return self.commands.act(argv, seconds=ENDING_SECONDS).out
        except EngineError:
            return None

    def survivors(self, allocation: Allocation) -> Allocation:
        """Return what is left of an allocation: nodes that the job still holds, and that respond."""
        try:
            row = self._client.job(self._job)
            responding = {node.name for node in self._client.nodes() if is_responding(node)}
        except EngineError:
            return allocation
        held = set(row.held) if row is not None and row.held else set(allocation.nodes)
        left = tuple(node for node in allocation.nodes if node in held and node in responding)
        return replace(allocation, nodes=left or allocation.nodes[:1])

    def silent(self, allocation: Allocation) -> tuple[str, ...]:
        """Return the nodes that don't answer, and may yet."""
        try:
            silent = {node.name for node in self._client.nodes() if is_silent(node)}
        except EngineError:
            return ()
        return tuple(node for node in allocation.nodes if node in silent)

    def _user(self) -> str:
        return self._environ.get("SLURM_JOB_USER") or getpass.getuser()


def _info(row: JobRow, job: str) -> JobInfo:
    state = job_state(row.state)
    outcome = row.state.lower().split(" ")[0] if state == "ended" else ""
    nodes = len(row.held) if row.held else row.nodes
    return JobInfo(job, state, nodes=nodes, reason=row.reason, start=row.start, end=row.end, outcome=outcome)
