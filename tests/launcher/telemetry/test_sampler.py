"""The sampler beside real processes, and beside ranks under the MPI that is there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dmr.launcher.engines.engine import Launch
from dmr.launcher.engines.local import LocalEngine
from dmr.launcher.engines.mpi import find_library
from dmr.launcher.run.rundir import Generation, Progress, RunDir, new_token, waits_folder
from dmr.launcher.telemetry import start
from dmr.launcher.telemetry.layout import read_header
from dmr.launcher.telemetry.read import NodeSeries, read_ranks, read_telemetry

pytest.importorskip("psutil")
needs_mpi = pytest.mark.skipif(find_library([sys.executable], dict(os.environ)) is None, reason="no MPI")

BUSY = "import time\nt = time.time()\nx = bytearray(60_000_000)\nwhile time.time() - t < {0}: sum(range(1000))"


@pytest.fixture
def generation(tmp_path: Path) -> Generation:
    run = RunDir.create(tmp_path / "run", {"run": "t"})
    return Generation(run.folder, 1, new_token(), 1)


def environ(generation: Generation, **more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "OMPI", "PMI"))}
    return {**kept, **generation.environment(), "DMR_TELEMETRY_PERIOD": "0.2", "DMR_TELEMETRY_DELAY": "0", **more}


def run(generation: Generation, command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*start.prefix(), *command], env=environ(generation, **more), capture_output=True, text=True, timeout=60
    )


def samplers(token: str) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            environ = Path(f"/proc/{name}/environ").read_bytes()
            command = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if token.encode() in environ and b"telemetry.sampler" in command:
            found.append(int(name))
    return found


def wait_for(what: Callable[[], object], seconds: float = 20.0) -> None:
    limit = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < limit, "it doesn't come"
        time.sleep(0.05)


def only(generation: Generation) -> NodeSeries:
    (found,) = read_telemetry(generation.folder / "telemetry").nodes
    return found


def seen(generation: Generation, column: str, least: float) -> bool:
    """Whether the sampler has seen so much by now."""
    series = read_telemetry(generation.folder / "telemetry").nodes
    return bool(series) and series[0].times.size >= 4 and float(np.nanmax(series[0].mean[column])) > least


def test_a_program_that_knows_nothing_of_dmr_is_sampled(generation: Generation) -> None:
    process = subprocess.Popen([*start.prefix(), sys.executable, "-c", BUSY.format(60)], env=environ(generation))
    try:
        wait_for(lambda: seen(generation, "cpu", 0.05) and seen(generation, "memory", 55e6), 40.0)
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not samplers(generation.token))
    found = only(generation)
    assert 55e6 < np.nanmax(found.mean["memory"]) < 200e6
    assert np.nanmax(found.mean["ranks"]) == 1 and np.nanmax(found.mean["cpus"]) == 1
    assert found.facts["memory_held"] > 1e8 and found.facts["clock_ahead"] == 0.0


def test_the_program_is_the_one_that_was_started_and_its_status_and_output_go_through(generation: Generation) -> None:
    done = run(generation, [sys.executable, "-c", "import os, sys; print(sys.argv[1:]); sys.exit(7)", "a b", "$HOME;"])
    assert done.returncode == 7 and done.stdout == "['a b', '$HOME;']\n" and done.stderr == ""


def test_it_ends_with_the_ranks(generation: Generation) -> None:
    process = subprocess.Popen([*start.prefix(), "/bin/sleep", "60"], env=environ(generation))
    wait_for(lambda: list((generation.folder / "telemetry").glob("*.tele")))
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: not samplers(generation.token), 5.0)
    assert not list((generation.folder / "telemetry").glob(".clock*"))


def test_what_it_wrote_survives_its_own_sudden_end(generation: Generation) -> None:
    process = subprocess.Popen([*start.prefix(), "/bin/sleep", "60"], env=environ(generation))
    try:
        path = generation.folder / "telemetry"
        wait_for(lambda: [each for each in read_telemetry(path).nodes if each.times.size >= 3])
        (pid,) = samplers(generation.token)
        os.kill(pid, signal.SIGKILL)
        assert only(generation).times.size >= 3
    finally:
        process.kill()
        process.wait()


def test_other_ranks_of_the_node_start_none_and_children_count(generation: Generation) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    commands = [[sys.executable, "-c", code, BUSY.format(60)], ["/bin/sleep", "60"]]
    ranks = [
        subprocess.Popen(
            [*start.prefix(), *command], start_new_session=True,
            env=environ(generation, OMPI_COMM_WORLD_LOCAL_RANK=str(rank), OMPI_COMM_WORLD_RANK=str(rank)),
        )
        for rank, command in enumerate(commands)
    ]  # fmt: skip
    try:
        wait_for(lambda: seen(generation, "cpu", 0.05) and seen(generation, "processes", 2.5), 40.0)
    finally:
        for each in ranks:
            os.killpg(each.pid, signal.SIGKILL)
            each.wait()
    wait_for(lambda: not samplers(generation.token))
    found = only(generation)
    assert np.nanmax(found.mean["ranks"]) == 2
    (ranks,) = read_ranks(generation.folder / "telemetry")
    assert set(ranks.columns["rank"]) == {0, 1}


def test_progress_is_taken_along_on_the_node_of_the_first_rank(generation: Generation) -> None:
    progress = Progress("t", 1, generation.token, "saving", time.time(), step=41, seconds_per_step=0.5)
    RunDir(generation.folder).write_progress(progress)
    run(generation, ["/bin/sleep", "1.5"], PMI_RANK="0")
    found = only(generation)
    assert set(found.mean["step"]) == {41} and set(found.mean["seconds_per_step"]) == {0.5}


def test_waiting_is_read_and_taken_away(generation: Generation) -> None:
    folder = waits_folder(generation.token)
    folder.mkdir(mode=0o700)
    code = f"""
import os, struct, time
t = time.time()
while time.time() - t < 3:
    with open({str(folder)!r} + "/" + str(os.getpid()), "wb") as stream:
        stream.write(struct.pack("<d", (time.time() - t) / 4))
    time.sleep(0.05)
"""
    run(generation, [sys.executable, "-c", code])
    wait_for(lambda: not samplers(generation.token))
    assert np.nanmedian(only(generation).mean["waiting"]) == pytest.approx(0.25, abs=0.12)
    assert not folder.exists()


def test_it_is_cheap(generation: Generation) -> None:
    run(generation, ["/bin/sleep", "4"], DMR_TELEMETRY_PERIOD="0.5")
    own = only(generation).mean["sampler"]
    assert np.nanmedian(own) < 0.01, "a hundredth of a processor, at twice the usual rate"


def test_beside_a_program_that_is_soon_over_nothing_is_started(generation: Generation) -> None:
    began = time.monotonic()
    run(generation, ["/bin/true"], DMR_TELEMETRY_DELAY="1.5")
    assert time.monotonic() - began < 1.4, "nobody waits for it"
    time.sleep(2.0)
    assert not list((generation.folder / "telemetry").iterdir())


def test_no_sampler_without_psutil(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert start.prefix() == () and "pip install" in str(start.refusal())


@needs_mpi
def test_one_sampler_beside_the_ranks_under_mpi(generation: Generation, tmp_path: Path) -> None:
    engine = LocalEngine(3)
    code = "from mpi4py import MPI; import time; time.sleep(3); print(MPI.COMM_WORLD.size)"
    launch = Launch(
        [sys.executable, "-c", code], engine.allocation(),
        {**generation.environment(), "DMR_TELEMETRY_PERIOD": "0.2"}, tmp_path, tmp_path / "log", start.prefix(),
    )  # fmt: skip
    ranks = engine.start(launch)
    wait_for(lambda: ranks.poll() is not None, 40)
    ended = time.monotonic()
    assert ranks.poll() == 0 and (tmp_path / "log").read_text() == "3\n" * 3
    wait_for(lambda: not samplers(generation.token), 5.0)
    assert time.monotonic() - ended < 5.0
    found = only(generation)
    assert np.nanmax(found.mean["ranks"]) == 3
    (path,) = (generation.folder / "telemetry").glob("*.ranks.tele")
    assert read_header(path)[0].ranks
