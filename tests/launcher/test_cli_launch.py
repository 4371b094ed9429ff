"""dmr-launch's command line: help, bad input, each in one line and with an exit status that is not 0."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dmr.launcher.cli import format_size, format_time, parse_size, parse_time

BIN = Path(sys.executable).parent


def launch(folder: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "DMR_"))}
    return subprocess.run(
        [str(BIN / "dmr-launch"), *args], cwd=folder, env={**clean, **env}, text=True, capture_output=True, timeout=60
    )


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--nodes", "4:2", "--", "true"], "minimum 4 is larger than the maximum 2"),
        (["--nodes", "0:2", "--", "true"], "outside 1"),
        (["--nodes", "two", "--", "true"], "not a whole number"),
        (["--nodes", "1:8", "--local-nodes", "4", "--", "true"], "at most 4"),
        (["--nodes", "8", "--", "true", "--local-nodes"], "--local-nodes"),
        (["--nodes", "1:4", "--local-nodes", "4", "--start", "5", "--", "true"], "not one of the sizes"),
        (["--nodes", "3:4", "--local-nodes", "4", "--start", "2", "--", "true"], "not one of the sizes"),
        (["--policy", "clever", "--", "true"], "there is no policy 'clever'"),
        (["--policy", "no_such_module:Class", "--", "true"], "can't load the policy"),
        (["--policy-option", "margin", "--", "true"], "not KEY=VALUE"),
        (["--policy-option", "colour=red", "--", "true"], "no option 'colour'"),
        (["--dwell", "soon", "--", "true"], "no time"),
        (["--checkpoint-every", "0", "--", "true"], "no time above 0"),
        (["--checkpoint-every", "5x", "--", "true"], "500steps"),
        (["--driver", "zip", "--", "true"], "'zip'"),
        (["--engine", "slurm", "--", "true"], "not a Slurm allocation"),
        (["--nodes", "1:2"], "COMMAND"),
        (["--nods", "1:2", "--", "true"], "--nods"),
        (["--policy", "deadline", "--", "true"], "within=2:00:00"),
        (["--policy", "deadline", "--policy-option", "within=", "--", "true"], "within=2:00:00"),
        (["--local-nodes", "1", "--", "no-such-program-anywhere"], "no program 'no-such-program-anywhere' on PATH"),
        (["--", "./nowhere.sh"], "no program './nowhere.sh'"),
        (["--", "python3", "-u", "-W", "error", "nowhere.py", "1"], "no file 'nowhere.py'"),
    ],
)
def test_bad_input_is_refused_in_one_line(tmp_path: Path, args: list[str], words: str) -> None:
    answer = launch(tmp_path, *args)
    assert answer.returncode not in (0, None)
    assert words in answer.stderr
    assert "Traceback" not in answer.stderr
    said = [line for line in answer.stderr.splitlines() if not line.startswith("Try ")]
    assert len([line for line in said if "generation" not in line and "run " not in line]) <= 2, answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_run_directory_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("precious")
    before = stat.S_IMODE((tmp_path / "thesis").stat().st_mode)
    answer = launch(tmp_path, "--run-dir", "thesis", "--local-nodes", "1", "--", "true")
    assert answer.returncode == 1 and "holds 'chapter.tex'" in answer.stderr
    assert sorted(os.listdir(tmp_path / "thesis")) == ["chapter.tex"]
    assert stat.S_IMODE((tmp_path / "thesis").stat().st_mode) == before


def test_a_run_directory_that_can_not_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    answer = launch(tmp_path, "--run-dir", "file/run", "--local-nodes", "1", "--", "true")
    assert answer.returncode == 1 and "can't make the run directory" in answer.stderr


def test_a_run_directory_in_use_is_refused(tmp_path: Path) -> None:
    assert launch(tmp_path, "--run-dir", "run", "--local-nodes", "1", "--", "true").returncode == 0
    answer = launch(tmp_path, "--run-dir", "run", "--local-nodes", "1", "--", "true")
    assert answer.returncode == 1 and "holds a run already" in answer.stderr


def test_runs_do_not_nest(tmp_path: Path) -> None:
    inside = {"DMR_RUN_DIR": str(tmp_path), "DMR_GENERATION": "1", "DMR_TOKEN": "t", "DMR_NODES": "1"}
    answer = launch(tmp_path, "--", "true", **inside)
    assert answer.returncode == 1 and "don't nest" in answer.stderr


def test_a_successor_with_another_command_is_refused(tmp_path: Path) -> None:
    assert launch(tmp_path, "--run-dir", "run", "--local-nodes", "1", "--", "true").returncode == 0
    claim = {"DMR_RUN_DIR": str(tmp_path / "run"), "DMR_GENERATION": "2", "DMR_TOKEN": "t"}
    answer = launch(tmp_path, "--", "false", **claim)
    assert answer.returncode == 1 and "keep one dmr-launch to a job script" in answer.stderr


def test_a_damaged_claim_is_refused(tmp_path: Path) -> None:
    answer = launch(tmp_path, "--", "true", DMR_RUN_DIR=str(tmp_path), DMR_GENERATION="two", DMR_TOKEN="t")
    assert answer.returncode == 1 and "malformed" in answer.stderr


def test_the_run_directory_is_private(tmp_path: Path) -> None:
    assert launch(tmp_path, "--run-dir", "run", "--local-nodes", "1", "--", "true").returncode == 0
    for path in (tmp_path / "run").rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode & 0o077 == 0 or path.is_file(), path
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700


def test_a_smaller_machine_than_the_script_was_written_for(tmp_path: Path) -> None:
    answer = launch(tmp_path, "--nodes", "1:999", "--dry-run", "--", "true")
    assert answer.returncode == 0, answer.stderr
    assert "larger sizes are left out" in answer.stderr


def test_a_dry_run_does_nothing(tmp_path: Path) -> None:
    answer = launch(
        tmp_path, "--local-nodes", "8", "--nodes", "1:8:pow2", "--start", "2", "--dry-run", "--", "echo", "a b"
    )
    assert answer.returncode == 0
    assert "1:8:pow2 nodes, begins with 2" in answer.stdout
    assert "echo 'a b'" in answer.stdout
    assert list(tmp_path.iterdir()) == []


def test_options_after_the_command_belong_to_the_command(tmp_path: Path) -> None:
    answer = launch(tmp_path, "--run-dir", "run", "--local-nodes", "1", "sh", "-c", "echo $0 $1", "--nodes", "7")
    assert answer.returncode == 0 and "--nodes 7" in answer.stdout


@pytest.mark.parametrize("command", [["dmr-launch", "--help"], ["dmr", "--help"], ["dmr", "status", "--help"]])
def test_help_is_quick_and_imports_nothing_heavy(command: list[str], tmp_path: Path) -> None:
    module, entry = ("launch", "main") if command[0] == "dmr-launch" else ("dmr", "main")
    code = (
        f"import sys; sys.argv = {command!r}\n"
        f"from dmr.launcher.cli.{module} import {entry}\n"
        f"try:\n    {entry}()\n"
        f"except SystemExit:\n    heavy = [m for m in ('numpy', 'h5py', 'mpi4py') if m in sys.modules]\n"
        f"    print('heavy:', heavy)\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, timeout=30)
    assert "heavy: []" in answer.stdout, answer.stderr
    assert "Usage" in answer.stdout
    seconds = []
    for _ in range(5):
        began = os.times()
        subprocess.run([str(BIN / command[0]), *command[1:]], check=True, capture_output=True, cwd=tmp_path)
        ended = os.times()
        seconds.append(ended.children_user + ended.children_system - began.children_user - began.children_system)
    assert min(seconds) < 0.25  # of a processor: the machine may be busy with other things


def test_status_and_history_without_a_run(tmp_path: Path) -> None:
    def dmr(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(BIN / "dmr"), *args], cwd=tmp_path, text=True, capture_output=True, timeout=30)

    assert dmr("status").stdout.startswith("no runs")
    assert json.loads(dmr("status", "--json").stdout) == []
    for command in (["status", "x"], ["history", "x"], ["stop", "x"], ["resume", "x"], ["resize", "x", "--nodes", "2"]):
        answer = dmr(*command)
        assert answer.returncode == 1 and "there is no run 'x'" in answer.stderr, command
    assert dmr("resize", "x").returncode == 2
    assert dmr("stauts").returncode == 2 and "Did you mean 'status'" in dmr("stauts").stderr


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86400), ("1:30:00", 5400), ("30:00", 1800),
     ("1-12", 129600), ("1-00:00:30", 86430), ("250ms", 0.25)],
)  # fmt: skip
def test_times(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5", "1:2:3:4", "1h30", "nan", "1e3"])
def test_bad_times(text: str) -> None:
    with pytest.raises(ValueError, match="no time"):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "size"), [("512M", 2**29), ("2G", 2**31), ("1.5k", 1536), ("77", 77), ("1GiB", 2**30)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "5X", "-1G", "1 2"])
def test_bad_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="no size"):
        parse_size(text)


def test_shown_times_and_sizes() -> None:
    assert [format_time(x) for x in (None, 0.84, 42.4, 90, 5400)] == ["-", "0.8", "42", "1:30", "1:30:00"]
    assert [format_size(x) for x in (0, 900, 1536, 2**29)] == ["0", "900", "1.5K", "512M"]


def test_every_option_has_a_word_of_help(tmp_path: Path) -> None:
    text = launch(tmp_path, "--help").stdout
    for line in text.splitlines():
        if line.strip().startswith("--"):
            assert len(line.split()) >= 2, line
