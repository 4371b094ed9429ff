"""Which command starts ranks, found from the application's own MPI."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from dmr.launcher.engines import mpi
from dmr.launcher.engines.engine import Allocation, EngineError
from dmr.launcher.engines.mpi import Flavour, find_flavour, find_library, find_python

HELD = Allocation("7", ("n1", "n3"), 4)
ENV = dict(os.environ)
needs_mpi = pytest.mark.skipif(find_library([sys.executable], ENV) is None, reason="no MPI under this python's mpi4py")


def fake(folder: Path, name: str, text: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def starter(folder: Path, name: str, version: str) -> str:
    return fake(folder, name, f"echo '{version}'")


OPEN_MPI_4, OPEN_MPI_5 = "mpirun (Open MPI) 4.1.4", "mpirun (Open MPI) 5.0.11"
HYDRA = "HYDRA build details:\n    Version:                                 4.2.0"
INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.10 Build 20230619"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4\0", ("openmpi", (4, 1, 4))),
        ("Open MPI v5.0.11, package: Open MPI user@localhost", ("openmpi", (5, 0, 11))),
        ("MPICH Version:      5.0.2\nMPICH Release date: Fri", ("mpich", (5, 0, 2))),
        ("MPI VERSION    : CRAY MPICH version 8.1.28.29 (ANL base 3.4a2)", ("mpich", (8, 1, 28, 29))),
        ("MVAPICH2 Version      :\t2.3.7\n", ("mpich", (2, 3, 7))),
        ("Intel(R) MPI Library 2021.10 for Linux* OS\n", ("intel", (2021, 10))),
        ("MPItrampoline", None),
    ],
)
def test_library_versions(text: str, found: object) -> None:
    assert mpi.parse_library_version(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (OPEN_MPI_4, ("openmpi", (4, 1, 4))),
        ("mpiexec (OpenRTE) 4.0.3", ("openmpi", (4, 0, 3))),
        (HYDRA, ("mpich", (4, 2, 0))),
        (INTEL, ("intel", (2021, 10))),
        ("prun (PRRTE) 3.0.2", None),
    ],
)
def test_starter_versions(text: str, found: object) -> None:
    assert mpi.parse_starter_version(text) == found


def test_plugins() -> None:
    old = "srun: MPI types are...\nsrun: none\nsrun: pmi2\nsrun: openmpi\n"
    assert mpi.parse_plugins(old) == ("none", "pmi2", "openmpi")
    new = "MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific pmix plugin versions available: pmix_v4,pmix_v5\n"
    assert mpi.parse_plugins(new) == ("pmix", "none", "pmi2", "pmix_v4", "pmix_v5")


def test_command_lines() -> None:
    app = ["python", "app.py", "a b"]
    assert Flavour("srun-pmix", "/bin/srun").argv(app, HELD, label="dmr-1") == [
        "/bin/srun", "--mpi=pmix", "--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--nodelist=n1,n3",
        "--job-name=dmr-1", "--kill-on-bad-exit=1", "--export=ALL", *app,
    ]  # fmt: skip
    assert "--mpi" not in " ".join(Flavour("srun", "/bin/srun").argv(app, HELD))
    wide = Allocation("7", ("n1",), 2, 3)
    assert "--cpus-per-task=3" in Flavour("srun-pmi2", "srun").argv(app, wide)
    assert Flavour("mpirun", "/m/mpirun").argv(app, HELD) == ["/m/mpirun", "--map-by", "ppr:4:node", "-n", "8", *app]
    assert "ppr:2:node:PE=3" in Flavour("mpirun", "mpirun").argv(app, wide)
    local = Flavour("mpirun", "mpirun").argv(app, HELD, local=True)
    assert local == ["mpirun", "--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none", "-n", "8", *app]
    assert Flavour("mpiexec", "mpiexec").argv(app, HELD) == ["mpiexec", "-ppn", "4", "-n", "8", *app]
    assert Flavour("mpiexec", "mpiexec").argv(app, HELD, local=True)[-5:] == ["-n", "8", *app]


def test_variables_for_the_ranks() -> None:
    mpirun, srun = Flavour("mpirun", "mpirun"), Flavour("srun-pmi2", "srun")
    assert srun.environment({}, root=True) == {"H5PY_ALWAYS_USE_MPI": "1"}
    assert srun.environment({"H5PY_ALWAYS_USE_MPI": "0"}, root=True) == {}, "the user's own word stands"
    assert mpirun.environment({}, root=False) == {"H5PY_ALWAYS_USE_MPI": "1"}
    assert mpirun.environment({}, root=True)["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] == "1"


def test_the_python_of_a_command(tmp_path: Path) -> None:
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    for name in ("python", "python3.11", "numactl"):
        fake(tmp_path, name, "true")
    fake(tmp_path, "tool", "true")
    (tmp_path / "tool").write_text(f"#!{tmp_path}/python3.11 -s\n")
    (tmp_path / "env-tool").write_text("#!/usr/bin/env python\n")
    (tmp_path / "env-tool").chmod(0o755)
    assert find_python(["python", "x.py"], env) == str(tmp_path / "python")
    assert find_python(["numactl", "-C", "0", "python3.11", "x.py"], env) == str(tmp_path / "python3.11")
    assert find_python([str(tmp_path / "tool")], env) == str(tmp_path / "python3.11")
    assert find_python(["env-tool"], env) == str(tmp_path / "python")
    assert find_python(["sh", "job.sh"], env) is None
    assert find_python(["absent"], env) is None


def test_starter_of_the_same_library_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {"PATH": f"{tmp_path}/other:/usr/bin:/bin"}
    starter(tmp_path / "other", "mpirun", OPEN_MPI_4)
    starter(tmp_path / "other", "mpiexec", HYDRA)
    own = starter(tmp_path / "own/bin", "mpirun", OPEN_MPI_5)

    def library(family: mpi.Family, *version: int, path: str | None = None) -> None:
        monkeypatch.setattr(mpi, "find_library", lambda command, environ: mpi.Library(family, version, path))

    library("openmpi", 5, 0, 11, path=f"{tmp_path}/own/lib/libmpi.so.40")
    assert find_flavour("auto", ["app"], slurm=False, environ=env).program == own
    library("openmpi", 4, 1)
    found = find_flavour("mpirun", ["app"], slurm=False, environ=env)
    assert (found.name, found.program) == ("mpirun", f"{tmp_path}/other/mpirun")
    library("mpich", 4, 2)
    assert find_flavour("auto", ["app"], slurm=False, environ=env).program == f"{tmp_path}/other/mpiexec"
    found = find_flavour("mpirun", ["app"], slurm=False, environ=env)
    assert (found.name, found.program) == ("mpiexec", f"{tmp_path}/other/mpiexec"), "ranks of MPICH need Hydra"
    library("intel", 2021)
    with pytest.raises(EngineError, match="uses Intel MPI 2021, but the mpirun that belongs to it was not found"):
        find_flavour("auto", ["app"], slurm=False, environ=env)


def test_srun_is_taken_where_it_speaks_the_librarys_pmi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {"PATH": str(tmp_path)}
    fake(tmp_path, "srun", "echo 'MPI plugin types are...'; echo ' pmi2'; echo ' none'")
    starter(tmp_path, "mpirun", OPEN_MPI_4)
    starter(tmp_path, "mpiexec", HYDRA)

    def choose(choice: str, family: mpi.Family, slurm: bool = True) -> str:
        monkeypatch.setattr(mpi, "find_library", lambda command, environ: mpi.Library(family))
        return find_flavour(choice, ["app"], slurm=slurm, environ=env).name

    assert choose("auto", "mpich") == "srun-pmi2"
    assert choose("auto", "mpich", slurm=False) == "mpiexec"
    assert choose("auto", "openmpi") == "mpirun", "this srun has no pmix"
    assert choose("srun", "mpich") == "srun-pmi2"
    assert choose("srun", "openmpi") == "srun"
    assert choose("srun-none", "openmpi") == "srun-none"
    with pytest.raises(EngineError, match="no pmix here, only pmi2, none"):
        choose("srun-pmix", "openmpi")
    with pytest.raises(EngineError, match="not a Slurm allocation"):
        choose("srun", "mpich", slurm=False)


def test_chosen_by_path(tmp_path: Path) -> None:
    path = starter(tmp_path, "my-mpirun", HYDRA)
    assert find_flavour(path, ["app"], slurm=True, environ=ENV).name == "mpiexec"
    with pytest.raises(EngineError, match="no such program"):
        find_flavour(str(tmp_path / "absent"), ["app"], slurm=True, environ=ENV)
    with pytest.raises(EngineError, match="neither Open MPI"):
        find_flavour(fake(tmp_path, "odd", "echo 1.0"), ["app"], slurm=True, environ=ENV)


def test_bad_choices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineError, match="unknown way to start MPI 'mpirum': choose one of auto, srun"):
        find_flavour("mpirum", ["app"], slurm=True, environ=ENV)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    nowhere = {"PATH": str(tmp_path)}
    with pytest.raises(EngineError, match="no MPI was found: install one"):
        find_flavour("auto", ["app"], slurm=False, environ=nowhere)


@needs_mpi
def test_this_pythons_own_mpi() -> None:
    found = find_flavour("auto", [sys.executable, "app.py"], slurm=False, environ=ENV)
    library = find_library([sys.executable], ENV)
    assert library is not None and library.path is not None and Path(library.path).exists()
    assert found.name == ("mpirun" if library.family == "openmpi" else "mpiexec")
    assert found.version[:1] == library.version[:1] and library.path in found.why


@pytest.mark.skipif(
    shutil.which("mpicc") is None or shutil.which("gcc") is None, reason="no MPI compiler to make a program with"
)
def test_the_mpi_of_a_compiled_program(tmp_path: Path) -> None:
    import subprocess

    source = tmp_path / "app.c"
    source.write_text("#include <mpi.h>\nint main(void) { MPI_Init(0, 0); return MPI_Finalize(); }\n")
    subprocess.run(["mpicc", str(source), "-o", str(tmp_path / "app")], check=True, timeout=60)
    library = find_library([str(tmp_path / "app")], ENV)
    assert library is not None and library.family in ("openmpi", "mpich") and library.path is not None


def test_fences_of_pmix_are_of_one_kind() -> None:
    found = mpi.Flavour("srun-pmix", "/usr/bin/srun")
    assert found.environment({})["SLURM_PMIX_FENCE"] == "ring"
    assert "SLURM_PMIX_FENCE" not in found.environment({"SLURM_PMIX_FENCE": "tree"}), "a user's own choice stays"
    assert "SLURM_PMIX_FENCE" not in mpi.Flavour("srun-pmi2", "/usr/bin/srun").environment({})
