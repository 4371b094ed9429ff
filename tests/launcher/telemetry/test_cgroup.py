from __future__ import annotations

from pathlib import Path

import pytest

from dmr.launcher.telemetry.cgroup import groups_of
from dmr.launcher.telemetry.gpu import Gpus, _visible


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_version_2_of_a_slurm_job(tmp_path: Path) -> None:
    inner = "/system.slice/slurmstepd.scope/job_12/step_0/user/task_3"
    write(tmp_path / "proc/7/cgroup", f"0::{inner}\n")
    root = tmp_path / "cgroup"
    (root / inner[1:]).mkdir(parents=True)
    job = root / "system.slice/slurmstepd.scope/job_12"
    write(job / "memory.current", "1000\n")
    write(job / "memory.peak", "3000\n")
    write(job / "memory.max", "5000\n")
    write(job / "step_0/memory.max", "max\n")
    write(job / "cpu.stat", "usage_usec 2500000\nuser_usec 1\n")
    found = groups_of(7, tmp_path / "proc", root)
    assert (found.used_memory(), found.peak_memory(), found.memory_limit()) == (1000, 3000, 5000)
    assert found.cpu_seconds() == pytest.approx(2.5)


def test_version_1_of_a_slurm_job(tmp_path: Path) -> None:
    inner = "/slurm/uid_5/job_12/step_0/task_0"
    write(tmp_path / "proc/7/cgroup", f"9:memory:{inner}\n4:cpuacct,cpu:{inner}\n1:name=systemd:/\n0::/\n")
    root = tmp_path / "cgroup"
    job = "slurm/uid_5/job_12"
    (root / "memory" / inner[1:]).mkdir(parents=True)
    (root / "cpuacct" / inner[1:]).mkdir(parents=True)
    write(root / "memory" / job / "memory.usage_in_bytes", "1000")
    write(root / "memory" / job / "memory.max_usage_in_bytes", "3000")
    write(root / "memory" / job / "memory.limit_in_bytes", "5000")
    write(root / "memory/memory.limit_in_bytes", str(2**63 - 4096))
    write(root / "cpuacct" / job / "cpuacct.usage", "1500000000")
    found = groups_of(7, tmp_path / "proc", root)
    assert found.version == 1
    assert (found.used_memory(), found.peak_memory(), found.memory_limit()) == (1000, 3000, 5000)
    assert found.cpu_seconds() == pytest.approx(1.5)


def test_a_group_that_is_not_a_job_s_limits_and_is_not_counted(tmp_path: Path) -> None:
    write(tmp_path / "proc/7/cgroup", "0::/user.slice/session-1\n")
    root = tmp_path / "cgroup"
    write(root / "user.slice/memory.max", "5000")
    write(root / "user.slice/session-1/memory.current", "1000")
    found = groups_of(7, tmp_path / "proc", root)
    assert found.used_memory() is None and found.cpu_seconds() is None and found.memory_limit() == 5000


def test_no_groups_at_all(tmp_path: Path) -> None:
    found = groups_of(7, tmp_path / "proc", tmp_path)
    assert (found.used_memory(), found.cpu_seconds(), found.memory_limit()) == (None, None, None)


def test_gpus_are_those_of_the_job() -> None:
    assert _visible({"SLURM_STEP_GPUS": "1,3"}, 4) == [1, 3]
    assert _visible({"CUDA_VISIBLE_DEVICES": "0"}, 4) == [0]
    assert _visible({"CUDA_VISIBLE_DEVICES": "GPU-aaaa"}, 2) == [0, 1]
    assert _visible({}, 2) == [0, 1]


def test_gpus_are_read_and_one_that_does_not_answer_is_unknown() -> None:
    class Figures:
        gpu, used, total = 50, 2e9, 16e9

    class Library:
        def nvmlDeviceGetUtilizationRates(self, handle: int) -> type[Figures]:
            return Figures

        nvmlDeviceGetMemoryInfo = nvmlDeviceGetUtilizationRates

        def nvmlDeviceGetPowerUsage(self, handle: int) -> float:
            raise RuntimeError("not supported")

    busy, memory, watts, count = Gpus(Library(), [0, 1]).read()
    assert (busy, memory, count) == (1.0, 4e9, 2.0) and watts != watts


def test_without_gpus_there_are_none() -> None:
    assert Gpus.find({"CUDA_VISIBLE_DEVICES": ""}) is None
