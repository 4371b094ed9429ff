"""The frame: what is packaged, what costs nothing to import, and who may import whom."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

import dmr
from dmr.launcher.cli.dmr import COMMANDS, group

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PARTS = ("ckpt", "resize", "launcher")
DISTRIBUTIONS = {"pynvml": "nvidia-ml-py"}
HEAVY = ("mpi4py", "h5py", "numpy", "matplotlib")


def sources(part: str) -> list[Path]:
    return sorted((ROOT / part).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Return the modules that a file imports, relative ones by their name under ``dmr``."""
    package = ["dmr", *path.relative_to(ROOT).parent.parts]
    if path.is_relative_to(ROOT / "dmr"):
        package = list(path.relative_to(ROOT).parent.parts)
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            found |= {name, *(f"{name}.{alias.name}" for alias in node.names)}
    return found


def reaches(modules: set[str], *names: str) -> set[str]:
    return {module for module in modules for name in names if module == name or module.startswith(f"{name}.")}


def loaded_by(code: str) -> set[str]:
    """Return which of the heavy packages a fresh interpreter has loaded after running code."""
    tail = f"\nimport sys\nprint('loaded', *[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code + tail], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.splitlines()[-1].split()[1:])


def test_every_package_folder_is_packaged() -> None:
    folders = set()
    for part in ("dmr", *PARTS):
        for init in (ROOT / part).rglob("__init__.py"):
            name = ".".join(init.parent.relative_to(ROOT).parts)
            folders.add(name if part == "dmr" else f"dmr.{name}")
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == folders


@pytest.mark.slow
def test_a_wheel_installs_all_under_one_name(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for part in ("dmr", *PARTS):
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(tree)]
    subprocess.run(build, check=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0] for name in inside} == {"dmr", f"dmr_malleable-{dmr.__version__}.dist-info"}
    assert {"dmr/py.typed", "dmr/ckpt/__init__.py", "dmr/resize/view.py", "dmr/launcher/run/rundir.py"} <= inside
    assert any(name.endswith("LICENSE") for name in inside)

    subprocess.run([*pip, "install", "-q", "--no-deps", "--target", str(tmp_path / "site"), str(wheel)], check=True)
    code = "import dmr, dmr.ckpt, dmr.resize.view as view; print(dmr.__file__, dmr.ckpt.__file__, view.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert all(Path(each).is_relative_to(tmp_path / "site") for each in done.stdout.split())


def test_what_is_imported_is_declared_and_the_reverse() -> None:
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    named = [each for extra, listed in extras.items() if extra != "dev" for each in listed]
    declared = {re.split(r"[\[<>=~!; ]", each)[0] for each in (*project["dependencies"], *named)} - {project["name"]}
    used = {module.partition(".")[0] for part in ("dmr", *PARTS) for path in sources(part) for module in imported(path)}
    used |= {"matplotlib"}  # the examples' own
    outside = used - set(sys.stdlib_module_names) - {"dmr", ""}
    assert {DISTRIBUTIONS.get(each, each) for each in outside} == declared


def test_extras_refer_to_extras_that_there_are() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    for listed in extras.values():
        for each in listed:
            name, _, inner = each.partition("[")
            assert name != PROJECT["project"]["name"] or set(inner.rstrip("]").split(",")) <= set(extras), each


def test_version_is_said_once_and_the_same() -> None:
    assert PROJECT["project"]["version"] == dmr.__version__


def test_all_public_names_are_there() -> None:
    assert {name for name in dmr.__all__ if getattr(dmr, name, None) is None} == set()


def test_importing_dmr_loads_nothing_heavy() -> None:
    assert loaded_by("import dmr") == set()


@pytest.mark.parametrize("script", sorted(PROJECT["project"]["scripts"]))
def test_help_loads_nothing_heavy(script: str) -> None:
    module, _, function = PROJECT["project"]["scripts"][script].partition(":")
    code = f"""
import sys
from {module} import {function}
sys.argv = [{script!r}, "--help"]
try:
    {function}()
except SystemExit as end:
    assert not end.code, end.code
"""
    assert loaded_by(code) == set()


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_of_dmr_is_there_and_tells_how_it_is_used(command: str) -> None:
    found = CliRunner().invoke(group, [command, "--help"], prog_name="dmr")
    assert found.exit_code == 0, found.output or found.exception
    assert f"Usage: dmr {command}" in found.output


def test_parts_keep_to_their_layers() -> None:
    for path in sources("resize"):
        outside = ("mpi4py", "h5py", "subprocess", "time", "dmr.ckpt", "dmr.launcher")
        assert not reaches(imported(path), *outside), path
    for path in sources("ckpt"):
        assert not reaches(imported(path), "dmr.launcher", "dmr.resize"), path
    for path in sources("launcher"):
        assert not reaches(imported(path), "mpi4py"), path


def test_lint_looks_at_every_part() -> None:
    found = subprocess.run(["make", "-n", "lint"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
    assert "tools/lint.py" in found.stdout
    text = (ROOT / "tools" / "lint.py").read_text()
    assert all(f'"{part}"' in text for part in PARTS)


def test_ci_runs_lint_and_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert [line for line in script.read_text().splitlines() if line.startswith("make")] == ["make lint", "make test"]


def test_readme_shows_the_example_as_it_is() -> None:
    program = (ROOT / "examples" / "heat.py").read_text().partition('"""\n\n')[2]
    assert program and program in (ROOT / "README.md").read_text()


def test_readme_and_docs_link_to_what_there_is() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        for part in page.read_text().split("](")[1:]:
            target = part.partition(")")[0].partition("#")[0]
            if target and "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
