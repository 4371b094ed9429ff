"""The run directory: all that the application and its launchers share.

Standard library only, since the application's ranks import it as well as the launcher.

=========================  ============================  ====================================
path                       written by                    how
=========================  ============================  ====================================
``run.json``               launcher, once                created exclusively
``control.json``           launcher                      replaced atomically
``progress.json``          rank 0 of the application     replaced atomically
``launcher.json``          launcher                      replaced atomically
``lease/0004``             launcher of generation 4      created exclusively
``ledger/0004.jsonl``      launcher of generation 4      a line appended, fsync
``ledger/0004.TOKEN.jsonl``  launcher of a successor     a line appended, fsync: before it has a lease
``ledger/0004.app.jsonl``  rank 0 of generation 4        a line appended
``failure/0004.json``      the first rank that fails     created exclusively
``signs/0004.TOKEN``       ranks, before MPI is up       created, empty (see `.sign`)
``requests/``              ``dmr resize`` and others     created; taken up by the live launcher
``logs/``                  launcher                      output of each generation
``checkpoints/``           ckpt
``telemetry/``             one sampler a node
=========================  ============================  ====================================
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from . import sign
from .files import create, lines, read_json, replace

FORMAT = 1

ENV_RUN_DIR = "DMR_RUN_DIR"
ENV_GENERATION = "DMR_GENERATION"
ENV_TOKEN = "DMR_TOKEN"
ENV_NODES = "DMR_NODES"

_PARTS = ("ledger", "lease", "failure", "requests", "logs", "checkpoints", "telemetry", sign.FOLDER)

Action = Literal["checkpoint", "resize", "stop"]
State = Literal["starting", "running", "saving", "leaving", "finished", "failed"]
Suggestion = Literal["policy", "stay", "expand", "shrink"]


class RunDirError(Exception):
    """The run directory can't be used; the text says why and what to do."""


@dataclass(frozen=True)
class Control:
    """What the launcher asks of the application.

    Parameters
    ----------
    id
        Counts up over the whole run; the application acts once on each.
    generation
        The generation that is asked; any other ignores it.
    action
        ``checkpoint``: save and go on. ``resize``: save and leave, another size follows.
        ``stop``: save and leave, nothing follows.
    nodes
        Size that follows, in nodes, where it is known.
    deadline
        Unix time at which the launcher will end the ranks if they are still there.
    reason
        One line for the log.
    here
        Whether the next generation starts on the same node.
    """

    id: int
    generation: int
    action: Action
    nodes: int | None = None
    deadline: float | None = None
    reason: str = ""
    here: bool = False


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint that was committed, or loaded, by the application; ``fast``: it is on the node alone.

    ``raw_bytes`` are those that it would have without compression (0: not told), ``compress_seconds`` what of the time
    went into that.
    """

    name: str
    step: int
    bytes: int
    seconds: float
    time: float
    fast: bool = False
    raw_bytes: int = 0
    compress_seconds: float = 0.0


@dataclass(frozen=True)
class Progress:
    """Where the application is; written by rank 0 at safe points, at most about once a second.

    ``seconds_per_step`` is the mean over the steps since the last report. ``acknowledged`` is the id
    of the last `Control` acted on. ``suggestion`` is what the ranks last suggested,
    ``inhibited_until`` the unix time before which the application wants no resize, and
    ``cancelled_expands`` counts its calls to give up a pending expansion; ``expand_by`` and ``shrink_by``
    are the nodes by which the next suggested change should go, 0 for the next allowed size. A request
    that could not be served (its save failed) is acknowledged in state ``running`` with ``error`` set.
    ``drain_seconds`` is what the last copy from a fast folder to the run directory took.
    """

    run: str
    generation: int
    token: str
    state: State
    time: float
    pid: int = 0
    ranks: int = 0
    started: float = 0.0
    step: int = 0
    steps: int | None = None
    seconds_per_step: float | None = None
    phase: str | None = None
    acknowledged: int = 0
    checkpoint: SavedCheckpoint | None = None
    loaded: SavedCheckpoint | None = None
    suggestion: Suggestion = "policy"
    inhibited_until: float = 0.0
    cancelled_expands: int = 0
    expand_by: int = 0
    shrink_by: int = 0
    state_bytes: int = 0
    drain_seconds: float = 0.0
    error: str | None = None


@dataclass(frozen=True)
class LauncherState:
    """What the launcher tells the application, without being asked: the successor that waits, if any.

    ``phase`` is the one that it recognised of a program that declares none, ``phase_confidence`` how surely, from 0 to
    1; a confidence without a phase: it is like none that is known.
    """

    generation: int
    time: float
    pid: int = 0
    host: str = ""
    nodes: int = 0
    resizes: int = 0
    pending_nodes: int | None = None
    pending_job: str | None = None
    pending_generation: int | None = None
    pending_since: float | None = None
    queries: int = 0
    phase: str | None = None
    phase_confidence: float | None = None


@dataclass(frozen=True)
class Generation:
    """One launch of a run at one size, as the application's environment tells it."""

    folder: Path
    number: int
    token: str
    nodes: int

    def environment(self) -> dict[str, str]:
        """Variables that hand this generation to the application's ranks."""
        return {
            ENV_RUN_DIR: str(self.folder),
            ENV_GENERATION: str(self.number),
            ENV_TOKEN: self.token,
            ENV_NODES: str(self.nodes),
        }

    @classmethod
    def from_environment(cls, env: Mapping[str, str] = os.environ) -> Generation | None:
        """Return the generation that this process belongs to, None outside a launcher.

        Raises
        ------
        RunDirError
            When only a part of the variables is set, or one is malformed.
        """
        if ENV_RUN_DIR not in env:
            return None
        try:
            return cls(
                Path(env[ENV_RUN_DIR]), int(env[ENV_GENERATION]), env[ENV_TOKEN], int(env[ENV_NODES])
            )
        except (KeyError, ValueError) as error:
            raise RunDirError(
                f"{ENV_RUN_DIR} is set, but {error} is missing or malformed beside it: "
                f"start the program with dmr-launch, or unset {ENV_RUN_DIR}"
            ) from None


@dataclass(frozen=True)
class RunDir:
    """The files of one run; every method touches only the path that its name says."""

    folder: Path
    checkpoints: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))
        object.__setattr__(self, "checkpoints", self.folder / "checkpoints")

    @classmethod
    def create(cls, folder: Path, description: Mapping[str, Any]) -> RunDir:
        """Make a run directory (mode 0700) and write ``run.json``.

        Raises
        ------
        RunDirError
            When the folder holds a run already, or can't be written.
        """
        run = cls(folder)
        try:
            run.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            foreign = sorted({each.name for each in run.folder.iterdir()} - {*_PARTS, "run.json"})
            if foreign and not (run.folder / "run.json").exists():
                raise RunDirError(
                    f"{run.folder} holds {foreign[0]!r} and is no run directory; "
                    f"name a new or empty folder with --run-dir"
                )
            run.folder.chmod(0o700)
            for part in _PARTS:
                (run.folder / part).mkdir(mode=0o700, exist_ok=True)
            text = json.dumps({"format": FORMAT, **description}, indent=2)
            create(run.folder / "run.json", text)
        except FileExistsError:
            if not run.folder.is_dir():
                raise RunDirError(f"{run.folder} is a file; name a new or empty folder with --run-dir") from None
            raise RunDirError(
                f"{run.folder} holds a run already: continue it with 'dmr resume {run.folder}', "
                f"or name another folder with --run-dir"
            ) from None
        except OSError as error:
            raise RunDirError(
                f"can't make the run directory {run.folder}: {error.strerror}; "
                f"name a folder that can be written with --run-dir"
            ) from None
        return run

    def description(self) -> dict[str, Any]:
        """Return ``run.json``.

        Raises
        ------
        RunDirError
            When there is none, or it is of an unknown format.
        """
        found = read_json(self.folder / "run.json")
        if found is None:
            raise RunDirError(f"{self.folder} is not a run directory: it has no readable run.json")
        if found.get("format") != FORMAT:
            raise RunDirError(
                f"{self.folder} was written in format {found.get('format')!r}; this version reads format {FORMAT}"
            )
        return found

    # -- control: launcher → application

    def write_control(self, control: Control) -> None:
        replace(self.folder / "control.json", json.dumps(dataclasses.asdict(control)))

    def read_control(self) -> Control | None:
        found = read_json(self.folder / "control.json")
        return None if found is None else Control(**_known(Control, found))

    # -- progress: application → launcher

    def write_progress(self, progress: Progress) -> None:
        replace(self.folder / "progress.json", json.dumps(dataclasses.asdict(progress)))

    def read_progress(self) -> Progress | None:
        found = read_json(self.folder / "progress.json")
        if found is None:
            return None
        for key in ("checkpoint", "loaded"):
            if found.get(key) is not None:
                found[key] = SavedCheckpoint(**_known(SavedCheckpoint, found[key]))
        return Progress(**_known(Progress, found))

    # -- launcher state: launcher → application and `dmr status`

    def write_launcher(self, state: LauncherState) -> None:
        replace(self.folder / "launcher.json", json.dumps(dataclasses.asdict(state)))

    def read_launcher(self) -> LauncherState | None:
        found = read_json(self.folder / "launcher.json")
        return None if found is None else LauncherState(**_known(LauncherState, found))

    # -- leases: which generation may commit

    def take_lease(self, generation: int, content: Mapping[str, Any]) -> bool:
        """Create the lease of a generation; False when somebody holds it already.

        From then on no earlier generation commits: its staging folder is renamed away, so that
        even a commit that already passed its check fails in the rename.
        """
        try:
            create(self.folder / "lease" / f"{generation:04d}", json.dumps(dict(content)))
        except FileExistsError:
            return False
        self.fence(generation)
        return True

    def leases(self) -> list[int]:
        """Return the numbers of the generations that hold or held a lease, ascending."""
        try:
            names = os.listdir(self.folder / "lease")
        except FileNotFoundError:
            return []
        return sorted(int(name) for name in names if name.isdigit())

    def read_lease(self, generation: int) -> dict[str, Any] | None:
        return read_json(self.folder / "lease" / f"{generation:04d}")

    def staging(self, generation: int) -> Path:
        """Return where the checkpoints of a generation are written before their commit."""
        return self.checkpoints / f".staging-{generation:04d}"

    def fence(self, generation: int) -> None:
        """Rename the staging folders of all generations before this one."""
        for path in sorted(self.checkpoints.glob(".staging-[0-9]*")):
            if path.name.removeprefix(".staging-").isdigit() and int(path.name[9:]) < generation:
                try:
                    path.rename(path.with_name(f".fenced-{path.name[9:]}-{secrets.token_hex(4)}"))
                except FileNotFoundError:
                    continue

    # -- ledger

    def append(
        self, generation: int, event: str, /, *, by_app: bool = False, claimant: str | None = None, **fields: Any
    ) -> None:
        """Append one event to the ledger of a generation; durable when this returns.

        ``claimant`` is the token of a successor that does not hold the lease (yet); it has a file of its own.
        """
        line = json.dumps({"time": time.time(), "generation": generation, "event": event, **fields}) + "\n"
        suffix = ".app.jsonl" if by_app else f".{claimant}.jsonl" if claimant else ".jsonl"
        handle = os.open(
            self.folder / "ledger" / f"{generation:04d}{suffix}", os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600
        )
        try:
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":
                line = "\n" + line  # a full file system cut the line before short
            os.write(handle, line.encode())
            if not by_app:
                os.fsync(handle)
        finally:
            os.close(handle)

    def events(self, generation: int | None = None, skip: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Return the ledger's events of one or of all generations, by generation, then in order of time.

        A line that a crash cut short is passed over, and so are, unread, the events named in ``skip``.
        """
        pattern = "*.jsonl" if generation is None else f"{generation:04d}*.jsonl"
        found = [event for path in sorted((self.folder / "ledger").glob(pattern)) for event in lines(path, skip)]
        return sorted(found, key=lambda event: (event.get("generation", 0), event.get("time", 0.0)))

    # -- failure: the first rank to fail speaks

    def claim_failure(self, generation: int, content: Mapping[str, Any]) -> bool:
        """Record a rank's failure; True for the first rank alone, which is the one to print it."""
        try:
            create(self.folder / "failure" / f"{generation:04d}.json", json.dumps(dict(content)))
        except FileExistsError:
            return False
        return True

    def read_failure(self, generation: int) -> dict[str, Any] | None:
        return read_json(self.folder / "failure" / f"{generation:04d}.json")


def waits_folder(token: str) -> Path:
    """Return where the ranks of one node leave the seconds that they waited, a file a process; on the node itself."""
    memory = Path("/dev/shm")
    return (memory if memory.is_dir() else Path(tempfile.gettempdir())) / f"dmr-waits-{os.getuid()}-{token}"


def new_token() -> str:
    """Return a random token that tells one generation from any other."""
    return secrets.token_hex(8)


def _known(cls: type, found: Mapping[str, Any]) -> dict[str, Any]:
    names = {each.name for each in dataclasses.fields(cls)}
    return {key: value for key, value in found.items() if key in names}
