"""Where this user's runs are: a link each in the user's state folder, so that `dmr top` finds them from anywhere."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from .rundir import RunDir

ENV_FOLDER = "DMR_STATE_DIR"


def registry_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return ``$DMR_STATE_DIR/runs``, else ``dmr/runs`` in the user's state folder."""
    if environ.get(ENV_FOLDER):
        return Path(environ[ENV_FOLDER]) / "runs"
    state = environ.get("XDG_STATE_HOME", "")
    base = Path(state) if os.path.isabs(state) else Path(os.path.expanduser("~")) / ".local" / "state"
    return base / "dmr" / "runs"


def register(run: RunDir, environ: Mapping[str, str] = os.environ) -> None:
    """Add a run, and drop the links to runs that are gone. A home that can't be written is no trouble."""
    folder, target = registry_folder(environ), run.folder.resolve()
    name = f"{target.name}-{hashlib.sha256(str(target).encode()).hexdigest()[:8]}"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for link in folder.iterdir():
            if link.is_symlink() and not (link / "run.json").exists():
                link.unlink(missing_ok=True)
        (folder / name).symlink_to(target)


def registered(environ: Mapping[str, str] = os.environ) -> list[RunDir]:
    """Return the runs that are known and still there, the newest last."""
    found: list[tuple[float, RunDir]] = []
    with contextlib.suppress(OSError):
        for link in registry_folder(environ).iterdir():
            with contextlib.suppress(OSError):
                found.append(((link / "run.json").stat().st_mtime, RunDir(link.resolve())))
    return [run for _, run in sorted(found, key=lambda each: each[0])]


def all_runs(here: Path) -> list[RunDir]:
    """Return the runs below a folder and the registered ones, each once."""
    below = [RunDir(path.parent.resolve()) for path in sorted(here.glob("*/run.json"))]
    known = {run.folder for run in below}
    return below + [run for run in registered() if run.folder not in known]
