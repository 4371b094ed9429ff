"""The first sign of life, given by ``import dmr`` before MPI is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dmr.launcher.run.rundir import Generation, RunDir
from dmr.launcher.run.sign import given


def python(code: str, generation: Generation, **more: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, **generation.environment(), **more}
    return subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=60)


@pytest.fixture
def generation(tmp_path: Path) -> Generation:
    return Generation(RunDir.create(tmp_path / "run", {"run": "r"}).folder, 3, "abc123", 2)


def shown(generation: Generation) -> bool:
    return given(generation.folder, generation.number, generation.token)


DIES = "import dmr, os, signal; os.kill(os.getpid(), signal.SIGKILL)"


def test_what_dies_after_the_import_has_given_its_sign(generation: Generation) -> None:
    assert not shown(generation)
    python(DIES, generation)
    assert shown(generation)
    assert not given(generation.folder, generation.number, "another") and not given(generation.folder, 4, "abc123")


@pytest.mark.parametrize("end", ["raise ValueError", "import sys; sys.exit(2)", "pass"])
def test_what_ends_in_an_orderly_way_takes_it_back(generation: Generation, end: str) -> None:
    python(f"import dmr; {end}", generation)
    python(DIES, generation)
    assert not shown(generation)


def test_mpi_is_not_there_yet_and_little_else_is(generation: Generation) -> None:
    code = "import dmr, sys; print([name for name in ('mpi4py', 'numpy', 'h5py', 'pathlib') if name in sys.modules])"
    before = python("import sys; print('pathlib' in sys.modules)", generation).stdout.strip()
    assert python(code, generation).stdout.strip() in ("[]", "['pathlib']" if before == "True" else "[]")
    assert os.listdir(generation.folder / "signs")


def test_many_at_once(generation: Generation) -> None:
    environ = {**os.environ, **generation.environment()}
    ranks = [subprocess.Popen([sys.executable, "-c", DIES], env=environ) for _ in range(8)]
    assert {rank.wait(60) for rank in ranks} == {-9}
    assert shown(generation)


@pytest.mark.parametrize(
    "damage",
    [
        {"DMR_RUN_DIR": "/nowhere/at/all"}, {"DMR_GENERATION": "three"}, {"DMR_TOKEN": "../x"}, {"DMR_TOKEN": ""},
        {"DMR_RUN_DIR": "/proc/1"}, {"DMR_RUN_DIR": "\u00e4" * 5000},
    ],
)  # fmt: skip
def test_an_import_never_fails_for_it(generation: Generation, damage: dict[str, str]) -> None:
    done = python("import dmr; print('here')", generation, **damage)
    assert (done.returncode, done.stdout, done.stderr) == (0, "here\n", "")
    assert not os.listdir(generation.folder / "signs")


def test_neither_the_sampler_nor_the_commands_give_a_programs_sign(generation: Generation) -> None:
    environ = {**os.environ, **generation.environment()}
    for argv in (["-m", "dmr.launcher.telemetry.sampler", "0"], [str(Path(sys.executable).parent / "dmr"), "--help"]):
        subprocess.run([sys.executable, *argv], env=environ, capture_output=True, timeout=60)
    assert not os.listdir(generation.folder / "signs")
