"""The doctor: its judgement on given facts, and its rounds on this machine and in a job of a real Slurm."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from dmr.launcher.doctor.files import check_files, mounted_as
from dmr.launcher.doctor.finding import Finding
from dmr.launcher.doctor.packages import check_packages
from dmr.launcher.doctor.scheduler import check_config, check_release, check_scheduler, unanswered
from dmr.launcher.doctor.starts import _run as run_starter
from dmr.launcher.slurm.commands import CommandFailed

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[2]


def by_name(findings: Any) -> dict[str, Finding]:
    return {each.what: each for each in findings}


@pytest.mark.parametrize(("text", "verdict"), [("22.05.8", "ok"), ("25.11.0", "ok"), ("20.11.9", "warn"), ("", "warn")])
def test_releases(text: str, verdict: str) -> None:
    assert check_release(text).verdict == verdict


def test_configuration() -> None:
    strict = {
        "KillWait": "5 sec", "SchedulerType": "sched/builtin", "SlurmctldParameters": "rl_enable,idle_on_node_suspend",
        "PriorityType": "priority/multifactor", "PriorityFlags": "CALCULATE_RUNNING", "PreemptMode": "REQUEUE",
        "JobRequeue": "0",
    }  # fmt: skip
    found = by_name(check_config(strict))
    assert found["time to save when told to end"].verdict == "warn"
    assert found["scheduler"].verdict == "note"
    assert "60" in found["rate limit"].advice
    assert found["age of dependent jobs"].verdict == "note"
    assert found["preemption"].found == "REQUEUE"
    assert found["requeue"].verdict == "note"
    easy = {"KillWait": "30 sec", "SchedulerType": "sched/backfill", "PreemptMode": "OFF", "JobRequeue": "1"}
    assert {each.verdict for each in check_config(easy)} == {"ok"}


def test_the_type_of_a_file_system(tmp_path: Path) -> None:
    table = tmp_path / "mounts"
    table.write_text(
        "/dev/sda1 / ext4 rw 0 0\n"
        f"server:/home {tmp_path} nfs4 rw 0 0\n"
        f"scratch {tmp_path}/with\\040space lustre rw 0 0\n"
    )
    (tmp_path / "with space" / "run").mkdir(parents=True)
    assert mounted_as(tmp_path / "with space" / "run", str(table)) == "lustre"
    assert mounted_as(tmp_path, str(table)) == "nfs4"
    assert mounted_as(Path("/"), str(table)) == "ext4"


def test_a_file_system_is_tried_and_left_clean(tmp_path: Path) -> None:
    found = by_name(check_files(tmp_path))
    assert found["exclusive creation"].verdict == "ok"
    assert found["rename"].verdict == "ok"
    assert found["clock"].verdict == "ok"
    assert "MB/s" in found["speed"].found
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_can_not_be_written(tmp_path: Path) -> None:
    found = by_name(check_files(tmp_path / "missing"))
    assert found["writing"].verdict == "fail"


def test_packages_are_looked_up_without_importing_them() -> None:
    found = by_name(check_packages())
    assert all(found[name].verdict == "ok" for name in ("click", "numpy", "h5py", "xxhash", "python"))
    assert "h5py and MPI" in found


def test_versions_are_told_and_no_noise_of_others() -> None:
    assert by_name(check_packages())["h5py"].found[0].isdigit()
    said = "resolve_ctls_from_dns_srv: res_nsearch error: Unknown host; Could not establish a configuration source"
    text = unanswered(CommandFailed(["scontrol", "show"], 1, said))
    assert text == "none: Slurm's commands are here, and find no configuration of a Slurm"
    assert "res_nsearch" not in unanswered(CommandFailed(["scontrol", "show"], 1, "res_nsearch error"))
    noisy = "echo '[n1:7] mca_base_component_repository_open: unable' >&2; echo -------- >&2; echo no slots >&2; exit 1"
    assert run_starter(["sh", "-c", noisy], os.environ) == 'it says "no slots"; '


def test_hints_name_what_can_be_installed() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    hinted = set()
    for path in (path for part in ("ckpt", "dmr", "launcher", "resize") for path in (ROOT / part).rglob("*.py")):
        text = path.read_text()
        assert "dmr-malleable[" not in text, f"{path} names a package that is on no index"
        hinted |= set(re.findall(r"how_to_install\(['\"](\w+)", text))
    assert hinted and hinted <= set(extras)


def test_without_slurm() -> None:
    clean = {"PATH": "/nonexistent", "SLURM_CONF": "/nonexistent"}
    (only,) = check_scheduler(clean)
    assert (only.what, only.verdict) == ("controller", "note")


def test_the_command(tmp_path: Path) -> None:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
    argv = [str(BIN / "dmr"), "doctor", "--quick"]
    text = subprocess.run(argv, cwd=tmp_path, env=clean, text=True, capture_output=True, timeout=60)
    assert text.returncode == 0, text.stdout
    assert text.stdout.startswith("python\n") and "files\n" in text.stdout
    data = subprocess.run([*argv, "--json"], cwd=tmp_path, env=clean, text=True, capture_output=True, timeout=60)
    assert {each["area"] for each in json.loads(data.stdout)} == {"python", "slurm", "files"}


def test_in_a_job(slurm: Any) -> None:
    slurm.sbatch("--nodes=2", "--wrap=dmr doctor --json > found.json")
    slurm.wait(lambda: not slurm.queue(), "the end of the job")
    found = {each["what"]: each for each in json.loads((slurm.folder / "found.json").read_text())}
    chosen = next(each for what, each in found.items() if what.endswith("(chosen)"))
    assert chosen["verdict"] == "ok", found
    assert found["controller"]["verdict"] in ("ok", "warn")
    assert found["version"]["verdict"] == "ok"
    assert found["shrink in place"]["verdict"] == "ok"
    assert "8 nodes" in found["partition main"]["found"]
