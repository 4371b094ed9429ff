"""What the demo shows and how it judges; the road itself is tests/road."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from dmr.launcher.cluster.tools import missing as missing_slurm
from dmr.launcher.run.history import GenerationRecord, History

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def module() -> Iterator[ModuleType]:
    sys.path.insert(0, str(EXAMPLES))
    yield importlib.import_module("demo")
    sys.path.remove(str(EXAMPLES))


@pytest.fixture
def timeline(module: ModuleType) -> ModuleType:
    return sys.modules["timeline"]


def test_a_timeline_has_a_line_a_node_in_order(timeline: ModuleType) -> None:
    bars = [
        timeline.Bar("run", ("n2", "n10"), 100.0, 105.0),
        timeline.Bar("run", ("n2",), 105.0, 110.0),
        timeline.Bar("job", ("n10",), 105.0, 110.0),
    ]
    lines = timeline.text(bars, width=10).splitlines()
    assert lines[0] == "n2   ██████████"
    assert lines[1] == "n10  █████▒▒▒▒▒"
    assert lines[2].split() == ["0", "s", "10", "s"]
    assert lines[3].split() == ["█", "run", "▒", "job", "·", "idle"]
    assert timeline.text([]) == "(nothing ran)"


def test_a_short_stay_is_seen(timeline: ModuleType) -> None:
    bars = [timeline.Bar("run", ("a",), 0.0, 0.001), timeline.Bar("job", ("b",), 0.0, 100.0)]
    assert timeline.text(bars, width=5).splitlines()[0] == "a  █····"


def test_the_picture(timeline: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "timeline.png"
    assert timeline.draw([timeline.Bar("run", ("n1", "n2"), 0.0, 5.0)], path)
    assert path.read_bytes().startswith(b"\x89PNG")


def history(*sizes: int) -> History:
    return History(tuple(GenerationRecord(number, "t", nodes, 0.0) for number, nodes in enumerate(sizes, 1)))


@pytest.mark.parametrize(
    ("found", "change", "missing"),
    [
        (history(4, 2, 6), 0.0, []),
        (history(4, 2, 6), 1e-16, ["the same bits as at a fixed size"]),
        (history(4, 2, 4), 0.0, ["at least three sizes (they were [4, 2, 4])"]),
    ],
)
def test_the_verdict(
    module: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    found: History,
    change: float,
    missing: list[str],
) -> None:
    field = np.linspace(0.0, 0.1, 7)
    np.save(tmp_path / "a.npy", field)
    np.save(tmp_path / "b.npy", field + change)
    assert module.verdict(found, tmp_path / "a.npy", tmp_path / "b.npy", []) == missing
    said = capsys.readouterr().out
    assert f"identical to the fixed-size run: {'no' if change else 'yes'}" in said


def test_a_missing_result_is_not_identical(module: ModuleType, tmp_path: Path) -> None:
    found = module.verdict(history(4, 2, 6), tmp_path / "none.npy", tmp_path / "none.npy", [])
    assert found == ["the same bits as at a fixed size"]


@pytest.mark.parametrize("engine", ["slurm", "local"])
def test_a_run_that_fails_ends_the_demo_with_its_log(tmp_path: Path, engine: str) -> None:
    reason = missing_slurm() if engine == "slurm" else None
    if reason or shutil.which("mpirun") is None:
        pytest.skip(reason or "no mpirun: install openmpi-bin")
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('this program is broken')")
    program = "import pathlib, sys, demo; demo.HILLSLOPE = pathlib.Path(sys.argv.pop(1)); sys.exit(demo.main())"
    argv = [sys.executable, "-c", program, str(broken), "--engine", engine, "--out", str(tmp_path / "out")]
    # Given explicitly, the environment is without what MPI may have added to that of this process.
    done = subprocess.run(
        argv, cwd=EXAMPLES, env=dict(os.environ), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "demo: the run" in done.stderr and "this program is broken" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_slurm_it_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "demo.py"), "--engine", "slurm", "--out", str(tmp_path / "out")],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1 and "there is no Slurm" in done.stderr and "apt-get install" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "demo.py"), "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2 and "not there yet" in done.stderr
