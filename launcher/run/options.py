"""What a run was asked to be: from the command line into ``run.json``, and back in every generation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .rundir import RunDir, RunDirError


@dataclass(frozen=True)
class RunOptions:
    """The choices of one run. Durations are seconds, sizes are nodes.

    ``sizes`` are all allowed ones, ascending; ``start`` is the first one where the engine leaves a
    choice. ``hang_after`` is how long a program may show no progress: None to learn it, 0 for ever;
    ``start_within`` is how long it may take from its start to its first report, in the same way.
    ``after_handover`` says how a launcher leaves whose run goes on in another job: ``cancel``
    its own job, or ``exit`` with status 0. ``machine`` and ``input_class`` are what a model of the program is kept
    under; an empty one is found from the telemetry, or from the command's arguments.
    """

    run: str
    command: tuple[str, ...]
    folder: str
    sizes: tuple[int, ...]
    start: int | None = None
    tasks_per_node: int | None = None
    policy: str = "queue"
    policy_options: Mapping[str, str] = field(default_factory=dict)
    query_interval: float = 60.0
    engine: str = "auto"
    mpi: str = "auto"
    local_nodes: int | None = None
    checkpoint_every: str | None = None
    keep: int | None = None
    driver: str | None = None
    background: bool = False
    fast_dir: str | None = None
    compress: str | None = None
    grace: float = 120.0
    max_restarts: int = 3
    hang_after: float | None = None
    start_within: float | None = None
    max_generations: int = 1000
    after_handover: str = "cancel"
    telemetry: bool = True
    time_comm: bool = False
    learn: bool = True
    input_class: str | None = None
    machine: str = ""
    app: Mapping[str, Any] | None = None
    """Description of a program that writes restart files of its own, see `.foreign`."""

    @property
    def rigid(self) -> bool:
        return len(self.sizes) == 1

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "command": list(self.command), "sizes": list(self.sizes)}

    @classmethod
    def of_run(cls, run: RunDir) -> RunOptions:
        """Read them back from ``run.json``.

        Raises
        ------
        RunDirError
            When the run was not written by dmr-launch.
        """
        found = run.description()
        names = {each.name for each in dataclasses.fields(cls)}
        given = {key: value for key, value in found.items() if key in names}
        try:
            given["command"] = tuple(given["command"])
            given["sizes"] = tuple(int(size) for size in given["sizes"])
            return cls(**given)
        except (KeyError, TypeError, ValueError) as error:
            raise RunDirError(f"{run.folder}/run.json is damaged ({error}): the run can't be continued") from None

    def application_environment(self) -> dict[str, str]:
        """Return what the application's side reads of these choices."""
        chosen = {
            "DMR_CHECKPOINT_EVERY": self.checkpoint_every,
            "DMR_KEEP": None if self.keep is None else str(self.keep),
            "DMR_DRIVER": self.driver,
            "DMR_CHECKPOINT_BACKGROUND": "1" if self.background else None,
            "DMR_FAST_DIR": self.fast_dir,
            "DMR_COMPRESS": self.compress,
            "DMR_TIME_COMM": "1" if self.time_comm else None,
        }
        return {key: value for key, value in chosen.items() if value is not None}
