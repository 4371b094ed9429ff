"""Slurm's accounting without root: a database and slurmdbd of the cluster's own."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Protocol

from .conf import Site, slurmdbd_conf
from .daemons import daemon_environment, tail
from .errors import ClusterError
from .processes import Process, alive
from .tools import Tools


class StartDaemon(Protocol):
    """Starts a daemon of the cluster and writes down that it did."""

    def __call__(self, name: str, argv: list[str], *, environment: dict[str, str]) -> Process: ...


def start(tools: Tools, site: Site, start_daemon: StartDaemon, limit: float) -> None:
    """Start the database and slurmdbd, and make the cluster known to it.

    Parameters
    ----------
    limit : float
        ``time.monotonic()`` until which all has to stand.
    """
    where = site.folder / "db"
    where.mkdir(mode=0o700)
    socket = where / "sock"
    _run(
        [
            tools["mariadb-install-db"],
            "--no-defaults",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            f"--datadir={where}/data",
            f"--user={site.user}",
        ],
        site.folder,
        limit,
    )
    database = start_daemon(
        "mariadbd",
        [
            tools["mariadbd"],
            "--no-defaults",
            f"--datadir={where}/data",
            f"--socket={socket}",
            f"--pid-file={where}/mariadbd.pid",
            f"--log-error={site.folder}/log/mariadbd.log",
            f"--tmpdir={where}",
            f"--user={site.user}",
            "--skip-networking",
            "--innodb-buffer-pool-size=64M",
            "--innodb-lock-wait-timeout=900",
        ],
        environment={},
    )
    client = [tools["mariadb"], "--no-defaults", f"--socket={socket}", "--user=root", "--batch"]
    _until(client + ["--execute=SELECT 1"], site.folder, limit, "mariadbd", database)
    user = f"`{site.user}`@localhost"
    # slurmdbd would make the database itself, after a first connection without it has failed; with Debian 13's
    # client library (3.4.10) that connection, tried again, takes no more results.
    prepared = (
        f"CREATE DATABASE slurm_acct_db; CREATE USER IF NOT EXISTS {user}; GRANT ALL ON slurm_acct_db.* TO {user};"
    )
    _run([*client, f"--execute={prepared}"], site.folder, limit)
    conf = site.folder / "slurmdbd.conf"
    conf.touch(mode=0o600)
    conf.write_text(slurmdbd_conf(site))
    slurmdbd = start_daemon("slurmdbd", [tools["slurmdbd"], "-D"], environment={"MYSQL_UNIX_PORT": str(socket)})
    sacctmgr = [tools["sacctmgr"], "--immediate"]
    _until([*sacctmgr, "--noheader", "list", "cluster"], site.folder, limit, "slurmdbd", slurmdbd)
    _run([*sacctmgr, "add", "cluster", site.name.lower()], site.folder, limit)


def _run(argv: list[str], folder: Path, limit: float) -> None:
    done = _try(argv, folder, limit)
    if done is None or done.returncode:
        said = "it took too long" if done is None else (done.stderr or done.stdout).strip()[-800:]
        raise ClusterError(f"'{' '.join(argv)}' failed: {said}")


def _until(argv: list[str], folder: Path, limit: float, name: str, daemon: Process) -> None:
    while True:
        done = _try(argv, folder, limit)
        if done is not None and done.returncode == 0:
            return
        if not alive(daemon):
            raise ClusterError(f"{name} ended by itself; its last words:\n{tail(folder, name)}")
        if time.monotonic() > limit:
            raise ClusterError(f"{name} doesn't answer within the deadline; its last words:\n{tail(folder, name)}")
        time.sleep(0.1)


def _try(argv: list[str], folder: Path, limit: float) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            argv,
            env=daemon_environment(folder),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=max(1.0, limit - time.monotonic()),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
