"""A folder of checkpoints: save, find the newest good one, load."""

from __future__ import annotations

import copy
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .comm.group import Group
from .comm.watchdog import Watchdog
from .commit import Staging, Writer, mark_bad, own_staging
from .errors import CheckpointError, Damaged, Mismatch, StorageError, Unsupported
from .later import Background, Job, Snapshot, check_threads
from .load import Layouts, Loaded, load
from .retention import KeepLast, Retention
from .save import SaveJob
from .state.describe import State
from .state.items import CheckpointInfo, Saved
from .storage.codec import Codec, parse
from .storage.drivers import DriverName, choose
from .storage.pace import Pace
from .twolevel.drain import copy as copy_over
from .twolevel.fast import everywhere
from .twolevel.levels import FastLevel, Level, open_level

log = logging.getLogger("dmr.ckpt")


class Store:
    """A folder of checkpoints.

    Parameters
    ----------
    folder
        Made, with mode 0700, by the first save when it is missing.
    comm
        mpi4py communicator whose ranks save and load together; None for one process without MPI. The store works on
        a communicator of its own.
    driver
        ``direct``: every rank writes at its own offsets in the file. ``mpio``: parallel HDF5. ``auto``: ``direct``.
        Both write the same bytes.
    keep
        How many good checkpoints stay, at least 1, or a rule such as ``KeepLast(2) | KeepEverySteps(1000)``.
    recycle
        Write new checkpoints over a file that is not kept any more, which is twice as fast as a new file; it takes the
        space of one checkpoint more between saves. A file that is open in another program or has a second link is
        removed instead.
    writer
        Who writes, for fencing; None for a program on its own.
    deadline
        Seconds that ranks wait for a lost one before all are ended, beside the time that the data takes at 10 MiB/s
        a rank.
    fast_dir
        A folder of this node, as ``/dev/shm`` or one on a local disk, in which checkpoints are written first; from
        there they are copied to ``folder`` in the background. ``~`` and ``$VARIABLES`` are expanded here. Used when
        all ranks are on one node, and when it is the user's own or one as ``/tmp``; else a warning says why it is not.
        It takes the space of two checkpoints.
    compress
        ``zstd``, ``zlib``, with a level as ``zstd:3``; None and ``none`` for no compression. Arrays from 4 KiB on are
        then kept as compressed chunks of HDF5, lossless. What a rank has compressed it holds in memory until all have.

    Attributes
    ----------
    fast : pathlib.Path or None
        The folder below ``fast_dir`` that is used, None when none is.
    drained : Saved or None
        The last checkpoint that was copied from there and has been waited for.

    Raises
    ------
    Unsupported
        When the driver or the compression can't be had. Collective, and alike on every rank.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        comm: Any = None,
        *,
        driver: DriverName = "auto",
        keep: int | Retention = 2,
        recycle: bool = True,
        writer: Writer | None = None,
        deadline: float = 60.0,
        fast_dir: str | os.PathLike[str] | None = None,
        compress: str | None = None,
    ) -> None:
        self.folder = Path(folder).absolute()
        self.keep = KeepLast(keep) if isinstance(keep, int) else keep
        self.recycle, self.writer, self.deadline = recycle, writer, deadline
        self._group = Group(comm)
        self._watchdog = Watchdog(self._group.comm, self._group.rank)
        path = own_staging(self.folder) if writer is None else Path(writer.staging)
        self._staging = Staging(self.folder, writer, Path(os.fsdecode(self._group.bcast(os.fsencode(path)))))
        self._background, self._snapshot, self._pace = Background(), Snapshot(), Pace()
        self._behind: tuple[Group, Watchdog] | None = None
        error: CheckpointError | None = None
        self._codec: Codec | None = None
        try:
            self.driver = choose(driver)
            self._codec = parse(compress)
        except CheckpointError as problem:
            error = problem
        self._group.agree(error, "choosing a driver")
        self.drained: Saved | None = None
        self._level: FastLevel | None = None
        if fast_dir is not None:
            self._level = open_level(fast_dir, self.folder, self._group, writer, self._copy_over)

    @property
    def fast(self) -> Path | None:
        return None if self._level is None else self._level.folder

    def _copy_over(self, source: Path) -> Saved:
        return copy_over(source, self._staging, self.keep, self.recycle)

    def close(self) -> None:
        """Wait for a save in the background, free the communicator, remove what is left in staging. Collective.

        The fast folder is removed too, unless it holds a checkpoint that the shared one does not.

        Raises
        ------
        CheckpointError
            What went wrong in the save in the background; the store is closed all the same.
        """
        try:
            self.wait()
        finally:
            self._release()

    def _release(self) -> None:
        self._watchdog.close()
        if self._behind is not None:
            self._behind[1].close()
            self._behind[0].free()
            self._behind = None
        if self._level is not None:
            self._level.close()
        if self._group.rank == 0:
            self._staging.close()
        self._group.free()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def list(self) -> list[CheckpointInfo]:
        """Return the committed checkpoints, newest first. Not collective, needs no MPI, and reads no file.

        Those in the fast folder are among them, so that one may be there twice.
        """
        return everywhere(self.folder, self.fast)

    def save(self, step: int, items: State, info: Any = None, *, level: Level = "both") -> Saved:
        """Save a state; whole and durable under its name when this returns. Collective.

        In the fast folder, where there is one, it lasts as long as the node does; the copy in the background is waited
        for, and what went wrong in it raised, by `wait`, `close` and the next `save` or `load`.

        Parameters
        ----------
        step
            At least 0, the same on every rank. A checkpoint of the same step and generation is replaced.
        items
            By name; the same names on every rank. Nothing is changed or kept.
        info
            JSON value of the program's own, the same on every rank.
        level
            Without a fast folder of no effect. ``both``: there, and from there into the shared folder in the
            background. ``shared``: into the shared folder at once, as before a restart elsewhere. ``fast``: there
            alone, as before a restart on this node, which then copies it.

        Raises
        ------
        CheckpointError
            The same kind on every rank; the text names the rank that failed. The checkpoints that were there are
            untouched.
        NotDrained
            When the checkpoint before could not be copied to the shared folder.
        Fenced
            When a later generation has taken over.
        """
        self.wait()
        with self._watchdog.watch(f"saving step {step} in {self.folder}", self.deadline):
            return self._job(self._group, self._watchdog, level).run(int(step), items, info)

    def _job(self, group: Group, watchdog: Watchdog, level: Level = "both") -> Job:
        job = SaveJob(
            folder=self.folder,
            group=group,
            staging=self._staging,
            driver=self.driver,
            keep=self.keep,
            recycle=self.recycle,
            watchdog=watchdog,
            pace=self._pace,
            codec=self._codec,
        )
        return job if self._level is None else self._level.job(job, level)

    def save_later(self, step: int, items: State, info: Any = None) -> None:
        """Save a state in the background; returns when it has been copied in memory. Collective.

        One save at a time: the one before is waited for first, and what went wrong in it is raised here. `wait`,
        `close` and the next `save` or `load` wait too. So does a program that ends without them, as long as it leaves
        it to mpi4py to finalise MPI; it then logs what went wrong. The copy takes as much memory as the state, and
        stays for the next one.

        Parameters
        ----------
        step, items, info
            As for `save`.

        Raises
        ------
        Unsupported
            When MPI does not let two threads communicate, or with the driver ``mpio``.
        CheckpointError
            What went wrong in the save before.
        """
        self.wait()
        error: Exception | None = None
        snapshot: State = {}
        try:
            check_threads(self._group.size)
            if self.driver == "mpio":
                raise Unsupported("the driver 'mpio' can't save in the background: use the driver 'direct'")
            snapshot = self._snapshot.take(items)
            info = copy.deepcopy(info)
        except Exception as problem:
            error = problem
        with self._watchdog.watch(f"copying step {step} to save it", self.deadline):
            self._group.agree(error, "copying the state")
            if self._behind is None:
                group = self._group.duplicate()
                self._behind = group, Watchdog(group.comm, group.rank)
        root = self._group.rank == 0
        self._background.start(self._job(*self._behind), int(step), snapshot, info, self.deadline, root=root)

    @property
    def saving(self) -> bool:
        """Whether a save or copy in the background is under way on this rank. Not collective."""
        return self._background.busy or (self._level is not None and self._level.drain.busy)

    def wait(self) -> Saved | None:
        """Wait for the save in the background; return it, None when there was none. Collective when there was one.

        A copy from the fast folder to the shared one is waited for, too; see ``drained``.

        Raises
        ------
        CheckpointError
            What went wrong in it, alike on every rank.
        NotDrained
            When it is in the fast folder alone.
        """
        saved = self._background.wait()
        if self._level is not None:
            self.drained = self._level.drain.wait(self._group, self._watchdog, self.deadline) or self.drained
        return saved

    def load_newest(self, layouts: Layouts | None = None) -> Loaded | None:
        """Load the newest good checkpoint, None when there is none at all. Collective.

        Of the same one in both folders the fast one is taken first; the shared one is made good for it if need be.

        A damaged one is named in a warning of the logger ``dmr.ckpt`` on rank 0, noted in a file beside it
        (``….h5.bad``), kept, and passed over. All arrays are read and verified before this returns, so that what is
        returned is good as a whole.

        Parameters
        ----------
        layouts
            Layouts to read arrays in, by name, where not the saved ones.

        Raises
        ------
        Damaged
            When there are checkpoints but none is good.
        CheckpointError
            When files can't be read, or a program of a later version wrote them.
        """
        self.wait()
        with self._watchdog.watch(f"looking for checkpoints in {self.folder}", self.deadline):
            text = b""
            error: BaseException | None = None
            if self._group.rank == 0:
                try:
                    text = json.dumps([(str(each.path), each.bad) for each in self.list()]).encode()
                except Exception as problem:
                    error = problem
            self._group.agree_on_root(error, f"looking for checkpoints in {self.folder}")
            found = json.loads(self._group.bcast(text))
        reasons = []
        for name, bad in found:
            if bad is not None:
                reasons.append(bad)
                self._warn(f"passing over {bad}")
                continue
            here = self._level is not None and Path(name).parent == self.fast
            try:
                loaded = self.load(name, layouts=layouts)
            except (Damaged, StorageError) as problem:
                if isinstance(problem, StorageError) and not here:
                    raise
                reasons.append(str(problem))
                self._warn(f"passing over {problem}")
                if self._group.rank == 0 and isinstance(problem, Damaged):
                    mark_bad(Path(name), str(problem))
            else:
                if self._level is not None:
                    self._level.resume_drain(loaded.path, loaded.bytes, self._group)
                return loaded
        if reasons:
            raise Damaged(f"{self.folder} holds no good checkpoint: " + "; ".join(reasons))
        return None

    def load(
        self,
        which: str | os.PathLike[str] | int,
        arrays: Sequence[str] | None = None,
        layouts: Layouts | None = None,
    ) -> Loaded:
        """Load one checkpoint. Collective.

        Parameters
        ----------
        which
            Path, or step (the newest generation's).
        arrays
            Names of the arrays to read and verify now; all when None. The others can be had from the result later.
        layouts
            Layouts to read arrays in, by name, where not the saved ones.

        Raises
        ------
        Damaged
            When it is not what was written; the text names file, array and place.
        Mismatch
            When there is no such step or array.
        """
        self.wait()
        path = Path(which) if not isinstance(which, int) else self._find(which)
        return load(path, arrays, layouts, self._group, self._watchdog, self.deadline, self.driver)

    def _find(self, step: int) -> Path:
        error: BaseException | None = None
        text = b""
        if self._group.rank == 0:
            steps = {each.step: each.path for each in reversed(self.list())}
            if step in steps:
                text = str(steps[step]).encode()
            else:
                held = ", ".join(map(str, sorted(steps))) or "none"
                error = Mismatch(f"{self.folder} holds no checkpoint of step {step}; the steps it holds: {held}")
        self._group.agree_on_root(error, f"looking for step {step}")
        return Path(self._group.bcast(text).decode())

    def _warn(self, text: str) -> None:
        if self._group.rank == 0:
            log.warning("%s", text)
