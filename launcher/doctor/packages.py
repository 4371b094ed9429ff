"""Python, its packages, and the HDF5 and MPI behind them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from .finding import Finding

NEEDED = ("click", "numpy", "h5py", "xxhash")
USEFUL = {
    "mpi4py": ("fail", "programs that use dmr need it: pip install mpi4py"),
    "psutil": ("note", "telemetry needs it: pip install psutil"),
    "rich": ("note", "dmr top needs it: pip install rich"),
    "matplotlib": ("note", "plots need it: pip install matplotlib"),
    "ruptures": ("note", "phases are found without declaration by it: pip install ruptures"),
    "jinja2": ("note", "dmr report makes its page with it: pip install jinja2"),
}
_PROBE = """\
import json, h5py
print(json.dumps({"mpi": bool(h5py.get_config().mpi), "hdf5": h5py.version.hdf5_version}))
"""
PROBE_SECONDS = 60.0


def check_packages(environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Look at versions, without importing anything here."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", "python", "ok", version)
    for name in NEEDED:
        found = _version(name)
        missing = Finding("python", name, "fail", "missing", f"pip install {name}")
        yield Finding("python", name, "ok", found) if found else missing
    for name, (verdict, advice) in USEFUL.items():
        found = _version(name)
        if found:
            yield Finding("python", name, "ok", found)
        else:
            yield Finding("python", name, "fail" if verdict == "fail" else "note", "missing", advice)
    yield check_hdf5(environ)


def check_hdf5(environ: Mapping[str, str]) -> Finding:
    """Whether h5py was built with MPI; asked in a process of its own, since that may start MPI."""
    answer = _probe(environ)
    if answer is None:
        return Finding("python", "h5py and MPI", "fail", "h5py can't be imported", "pip install h5py")
    if answer["mpi"]:
        return Finding("python", "h5py and MPI", "ok", f"HDF5 {answer['hdf5']} with MPI: drivers mpio and direct")
    return Finding(
        "python", "h5py and MPI", "note", f"HDF5 {answer['hdf5']} without MPI: driver direct",
        "--driver mpio needs an h5py with MPI (Debian: python3-h5py-mpi); direct writes the same files",
    )  # fmt: skip


def _probe(environ: Mapping[str, str]) -> dict[str, Any] | None:
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE],
            env={**environ, "H5PY_ALWAYS_USE_MPI": "1"},
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
        )
        found = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        return None
    return found if isinstance(found, dict) else None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        if find_spec(name) is None:
            return None
    # Debian ships some packages without their metadata.
    argv = [sys.executable, "-c", f"import {name}; print({name}.__version__)"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PROBE_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return "installed"
    return done.stdout.strip() or "installed, and can't be imported"
