"""The examples, run as a user would, on any number of ranks."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import dmr

pytestmark = pytest.mark.xdist_group("examples")

EXAMPLES = Path(__file__).parents[2] / "examples"
DEADLINE = 60.0

pytest.importorskip("matplotlib", reason="the terrain is in matplotlib's sample data")


def run(example: str, *args: object, ranks: int = 1) -> str:
    command = [sys.executable, str(EXAMPLES / example), *map(str, args)]
    if ranks > 1:
        if shutil.which("mpirun") is None:
            pytest.skip("no mpirun: install openmpi-bin")
        command = ["mpirun", "--oversubscribe", "-n", str(ranks), *command]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        command,
        env={**os.environ, **root},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def hillslope() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hillslope", EXAMPLES / "hillslope.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    out = tmp_path_factory.mktemp("alone") / "final.npy"
    run("hillslope.py", "--steps", 30, "--out", out)
    return np.load(out)


@pytest.mark.parametrize("ranks", [2, 3, 6])
def test_hillslope_has_the_same_bits_on_any_number_of_ranks(alone: np.ndarray, ranks: int, tmp_path: Path) -> None:
    run("hillslope.py", "--steps", 30, "--out", tmp_path / "final.npy", ranks=ranks)
    assert np.load(tmp_path / "final.npy").tobytes() == alone.tobytes()


def test_hillslope_refined_has_the_same_bits_on_any_number_of_ranks(tmp_path: Path) -> None:
    for ranks in (1, 4):
        run("hillslope.py", "--steps", 3, "--refine", 2, "--out", tmp_path / f"{ranks}.npy", ranks=ranks)
    one, four = (np.load(tmp_path / f"{ranks}.npy") for ranks in (1, 4))
    assert one.shape == (687, 805)
    assert one.tobytes() == four.tobytes()


def test_hillslope_moves_soil_and_loses_none(hillslope: ModuleType, alone: np.ndarray) -> None:
    terrain, _ = hillslope.jacksboro()
    assert alone.mean() == pytest.approx(terrain.mean(), rel=1e-12)
    assert alone.max() < terrain.max() and alone.min() > terrain.min()


def test_hillslope_keeps_a_plane_and_wears_a_ridge(hillslope: ModuleType) -> None:
    rows, columns = np.mgrid[0:7, 0:9].astype("f8")
    plane = 3.0 * rows - 2.0 * columns
    assert hillslope.creep(plane, (90.0, 70.0)) == pytest.approx(0.0, abs=1e-15)
    ridge = -0.3 * abs(columns - 4) * 70.0
    rate = hillslope.creep(ridge, (90.0, 70.0))
    expected = -2 * hillslope.DIFFUSIVITY * 0.3 / (1 - (0.3 / hillslope.CRITICAL_SLOPE) ** 2) / 70.0
    assert rate[:, 3] == pytest.approx(expected)
    assert rate[:, [0, 1, 2, 4, 5, 6]] == pytest.approx(0.0, abs=1e-15)


def test_hillslope_interpolates_bilinearly(hillslope: ModuleType) -> None:
    coarse = np.array([[0.0, 2.0], [4.0, 10.0]])
    fine = hillslope.refined(coarse, 2, dmr.Box((0, 0), (3, 3)))
    assert fine == pytest.approx(np.array([[0, 1, 2], [2, 4, 6], [4, 7, 10]]))
    assert hillslope.refined(coarse, 2, dmr.Box((1, 2), (3, 3))) == pytest.approx(fine[1:, 2:])


def test_hillslope_draws_its_picture(tmp_path: Path) -> None:
    from matplotlib import image

    run("hillslope.py", "--steps", 5, "--picture", tmp_path / "picture.png")
    picture = image.imread(tmp_path / "picture.png")
    assert picture.shape[0] > 200 and picture.shape[1] > 600 and picture.std() > 0.05


def test_hillslope_refuses_nonsense() -> None:
    for wrong in (["--steps", "0"], ["--refine", "-1"], ["--pace", "-1"], ["--pace", "inf"]):
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / "hillslope.py"), *wrong], capture_output=True, text=True, timeout=DEADLINE
        )
        assert done.returncode == 2 and wrong[0] in done.stderr


@pytest.mark.parametrize(("example", "argument"), [("heat.py", 2000), ("heat_four_calls.py", 2e-4)])
def test_heat_says_the_same_on_any_number_of_ranks(example: str, argument: float) -> None:
    said = run(example, argument)
    assert "warmest: 0." in said
    assert run(example, argument, ranks=3) == said
