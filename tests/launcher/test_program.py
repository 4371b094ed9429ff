"""A program that is not there is told before a run is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmr.launcher.engines.program import missing, script_of


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python app.py --size 3", "app.py"),
        ("/opt/py/bin/python3.11 -u -X dev -W ignore sub/app.py", "sub/app.py"),
        ("python3 -Wignore -OO app.py -m x", "app.py"),
        ("python -m app", None),
        ("python -um app x.py", None),
        ("python -c pass", None),
        ("python -", None),
        ("python", None),
        ("python3-config a.py", None),
        ("bash run.sh -c", "run.sh"),
        ("bash -c true", None),
        ("sh", None),
        ("solver input.py", None),
    ],
)
def test_the_script_of_a_command(command: str, script: str | None) -> None:
    assert script_of(command.split()) == script


def test_what_is_missing_and_what_is_not(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name, mode in (("solver", 0o755), ("data", 0o644), ("app.py", 0o644)):
        (tmp_path / "bin" / name).touch(mode)
    folder, environ = str(tmp_path / "bin"), {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}

    def why(*command: str) -> str:
        return missing(command, folder, environ) or ""

    assert why("solver") == why("./solver") == why(f"{folder}/solver", "deck") == why("sh", "app.py") == ""
    assert why("sh", "-c", "nowhere") == why("sh", "../bin/app.py") == ""
    assert "not executable" in why("./data") and "chmod" in why("./data")
    assert "no program './other'" in why("./other") and "no program '../bin'" in why("../bin")
    assert "did you mean ./data" in why("data")
    assert "no file 'gone.sh'" in why("sh", "gone.sh") and folder in why("sh", "gone.sh")
