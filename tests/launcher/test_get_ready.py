"""A successor finds out how ranks are started before it tells the owner to leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from dmr.launcher.engines.engine import Allocation, EngineError, Launch
from dmr.launcher.engines.mpi import Flavour
from dmr.launcher.slurm import engine as slurm_engine
from dmr.launcher.supervise import begin

COMMAND = ("python", "app.py")


def test_what_was_found_is_kept_for_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sequence[str]] = []

    def find(choice: str, command: Sequence[str], *, slurm: bool, environ: Mapping[str, str]) -> Flavour:
        asked.append(command)
        return Flavour("mpirun", "/usr/bin/mpirun")

    monkeypatch.setattr(slurm_engine, "find_flavour", find)
    engine = slurm_engine.SlurmEngine({"SLURM_JOB_ID": "1"})
    begin._get_ready(engine, COMMAND)
    launch = Launch(COMMAND, Allocation("1", ("n1",), 1), {}, Path())
    assert engine.flavour(launch).name == "mpirun"
    assert asked == [COMMAND]


def test_a_failure_is_left_to_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(choice: str, command: Sequence[str], **how: object) -> Flavour:
        raise EngineError("no MPI was found")

    monkeypatch.setattr(slurm_engine, "find_flavour", find)
    engine = slurm_engine.SlurmEngine({"SLURM_JOB_ID": "1"})
    begin._get_ready(engine, COMMAND)
    with pytest.raises(EngineError, match="no MPI"):
        engine.flavour(Launch(COMMAND, Allocation("1", ("n1",), 1), {}, Path()))
