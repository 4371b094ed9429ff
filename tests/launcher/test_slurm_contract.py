"""What every engine has to do alike: the local one, and Slurm by each of its clients."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from dmr.launcher.engines.engine import Engine, Launch, Ranks, ShrinkRefused, Submission, SubmitRefused
from dmr.launcher.engines.local import LocalEngine
from dmr.launcher.engines.mpi import Flavour
from dmr.launcher.slurm import parse
from dmr.launcher.slurm.client import ENV_CLIENT, find_client
from dmr.launcher.slurm.commands import Commands
from dmr.launcher.slurm.engine import SlurmEngine
from dmr.launcher.slurm.pyslurm_worker import job_row, node_rows, short_state

NODES = 3
has_pyslurm = pytest.mark.skipif(importlib.util.find_spec("pyslurm") is None, reason="pyslurm is not installed")


def until(what: Callable[[], object], seconds: float = 20.0) -> None:
    limit = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < limit, "it didn't come about in time"
        time.sleep(0.05)


@pytest.fixture(params=["local", "commands", pytest.param("pyslurm", marks=has_pyslurm)])
def engine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An engine that holds three nodes, and starts programs without an MPI."""
    if request.param == "local":
        made: LocalEngine | SlurmEngine = LocalEngine(NODES)
        flavour = Flavour("mpiexec", "env")
        monkeypatch.setattr(Flavour, "argv", lambda self, command, *_, **__: list(command))
    else:
        cluster = request.getfixturevalue("cluster")
        script = tmp_path / "job.sh"
        script.write_text("#!/bin/sh\nenv -0 > part; mv part env\nsleep 600\n")
        cluster.run(["sbatch", "--no-kill", f"--nodes={NODES}", "--time=10", str(script)], cwd=tmp_path)
        until((tmp_path / "env").exists)
        pairs = (line.split("=", 1) for line in (tmp_path / "env").read_text().split("\0") if "=" in line)
        environ = {**dict(pairs), ENV_CLIENT: request.param, "PATH": os.environ["PATH"]}
        environ |= {key: os.environ[key] for key in ("PYTHONPATH", "LD_LIBRARY_PATH") if key in os.environ}
        made = SlurmEngine(environ)
        flavour = Flavour("srun", "srun")
    monkeypatch.setattr(made, "_flavour", flavour)
    return made


def ended(ranks: Ranks) -> int:
    until(lambda: ranks.poll() is not None, 30.0)
    code = ranks.poll()
    assert code is not None
    return code


def test_what_is_held_and_seen(engine: Engine) -> None:
    held = engine.allocation()
    assert len(set(held.nodes)) == NODES and held.tasks_per_node == 1
    assert held == engine.allocation(), "asking changes nothing"
    view = engine.observe()
    assert view is not None and abs(view.time - time.time()) < 5.0
    assert view.total >= NODES and view.idle == view.total - NODES
    mine = [job for job in view.jobs if job.job == held.job]
    if held.job is None:
        assert view.jobs == () and held.end is None
    else:
        assert [(job.state, job.nodes, job.time_limit) for job in mine] == [("running", NODES, 600.0)]
        assert held.end is not None and mine[0].end is not None and abs(mine[0].end - held.end) < 2.0


def test_ranks_run_in_their_folder_with_their_environment(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    log = tmp_path / "log"
    log.write_text("kept\n")
    program = ["sh", "-c", 'echo "$1 $MINE $(pwd)"; exit 5', "sh", "a  b"]
    held = engine.resize_in_place(engine.allocation(), 1)
    ranks = engine.start(Launch(program, held, {"MINE": "x;y"}, tmp_path / "there", log))
    assert ended(ranks) == 5 == ranks.poll()
    text = log.read_text()
    assert text.startswith("kept\n") and f"\na  b x;y {tmp_path}/there\n" in text


def test_kill_ends_them(engine: Engine, tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done"]
    ranks = engine.start(Launch(program, engine.allocation(), {}, tmp_path, log))
    until(lambda: log.exists() and "up" in log.read_text())
    assert ranks.poll() is None
    began = time.monotonic()
    ranks.kill()
    assert time.monotonic() - began < 30.0
    assert ranks.poll() not in (None, 0)
    ranks.kill()


def test_shrinking_keeps_the_first_nodes(engine: Engine) -> None:
    held = engine.allocation()
    assert engine.resize_in_place(held, NODES).nodes == held.nodes
    small = engine.resize_in_place(held, 2)
    assert small.nodes == held.nodes[:2] == engine.allocation().nodes
    assert (small.job, small.tasks_per_node, small.end) == (held.job, held.tasks_per_node, held.end)
    view = engine.observe()
    assert view is not None and view.idle == view.total - 2
    with pytest.raises(ShrinkRefused):
        engine.resize_in_place(small, 0)
    with pytest.raises(ShrinkRefused):
        engine.resize_in_place(small, 1000)


def test_successors(engine: Engine) -> None:
    token = f"f00d{time.monotonic_ns()}"
    wanted = Submission(2, token, f"dmr:run:2:{token}", (4, 4), {"DMR_TOKEN": token}, after=engine.allocation().job)
    assert engine.find(wanted.name) is None
    if not engine.can_submit:
        with pytest.raises(SubmitRefused):
            engine.submit(wanted)
        return
    job = engine.submit(wanted)
    info = engine.job(job)
    assert (info.state, info.nodes) == ("pending", 4)
    assert engine.find(wanted.name) == info
    view = engine.observe()
    assert view is not None and [each.run for each in view.jobs if each.job == job] == ["run"]
    engine.resize_pending(job, (2, 2))
    assert engine.job(job).nodes == 2
    engine.cancel(job)
    until(lambda: engine.job(job).state == "ended")
    assert engine.job(job).outcome == "cancelled"


def test_unknown_jobs_have_ended(engine: Engine) -> None:
    assert engine.job("987654").state == "ended"
    assert engine.find("dmr:run:9:none") is None
    engine.cancel("987654")


# -- the client that is not there on every machine


def test_unknown_and_missing_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = Commands({})
    with pytest.raises(
        Exception, match="unknown Slurm client 'rest' in DMR_SLURM_CLIENT: choose one of commands, pyslurm"
    ):
        find_client("rest", commands)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Exception, match="pyslurm is not installed"):
        find_client("pyslurm", commands)


def test_rows_of_pyslurm() -> None:
    job = SimpleNamespace(
        id=9, array_id=7, array_task_id=None, array_tasks_waiting="3,5-6", array_tasks_parallel=2, state="PENDING",
        num_nodes=4, max_nodes=4, partition="main,side", priority=5, submit_time=1700000000, start_time=None,
        end_time=None, time_limit=90, state_reason="Resources", allocated_nodes=None, batch_host=None, user_name="me",
        name="x | y", comment=None,
    )  # fmt: skip
    (row,) = parse.jobs(job_row(job))
    assert (row.raw, row.ids, row.state, row.nodes, row.nodes_max) == ("9", ("7_3", "7_5"), "PENDING", 4, 4)
    assert (row.partitions, row.priority, row.submitted, row.time_limit) == (("main", "side"), 5.0, 1.7e9, 5400.0)
    assert (row.name, row.comment, row.held, row.end) == ("x | y", "", (), None)
    job.array_tasks_waiting, job.array_task_id, job.allocated_nodes = None, 3, "n[1-2]"
    (row,) = parse.jobs(job_row(job))
    assert (row.ids, row.held) == (("7_3",), ("n1", "n2"))
    node = SimpleNamespace(
        name="n1", state="IDLE+DRAIN", partitions=["main", "side"], active_features=["a", "b"], available_features=[],
        total_cpus=2,
    )  # fmt: skip
    found = parse.nodes("".join(node_rows(node, {"side": "1-2"}, {"side": "30"})))
    assert [(each.partition, each.state, each.max_nodes, each.time_limit) for each in found] == [
        ("main", "drained", None, None), ("side", "drained", 2, 1800.0),
    ]  # fmt: skip
    assert found[0].features == {"a", "b"}


@pytest.mark.parametrize(
    ("complete", "short"),
    [("IDLE", "idle"), ("MIXED+PLANNED", "planned"), ("IDLE+NOT_RESPONDING", "idle*"), ("DOWN+NOT_RESPONDING", "down*"),
     ("ALLOCATED+DRAIN", "drained"), ("IDLE+RESERVED", "reserved"), ("IDLE+MAINTENANCE+DRAIN", "maint"),
     ("ALLOCATED+COMPLETING", "completing"), ("IDLE+CLOUD+POWERED_DOWN", "idle~"), ("IDLE+POWERING_DOWN", "idle%"),
     ("IDLE+REBOOT_REQUESTED", "idle@")],
)  # fmt: skip
def test_node_states_of_pyslurm(complete: str, short: str) -> None:
    assert short_state(complete) == short
