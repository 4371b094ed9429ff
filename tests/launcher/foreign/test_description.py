"""Descriptions: what is wrong in one is told by file and key; the profiles that come along are right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dmr.launcher.foreign.description import parse
from dmr.launcher.foreign.errors import ForeignError
from dmr.launcher.foreign.load import described, profiles, read
from dmr.launcher.foreign.sizes import allowed, refusal
from dmr.launcher.foreign.start import command_line

GOOD = """
[checkpoint]
files = ["restart.{step}"]
request = "signal"
signal = "USR1"
[restart]
append = ["--from", "{checkpoint}"]
[progress]
step = '^step (\\d+)'
"""


def load(tmp_path: Path, text: str) -> object:
    path = tmp_path / "app.toml"
    path.write_text(text)
    return described(read(str(path)))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[checkpoint]", "[checkpoint", "is no TOML"),
        ("[checkpoint]", "checkpoints = 1\n[checkpoint]", "checkpoints is not known; did you mean checkpoint?"),
        ('request = "signal"', 'request = "signals"', "checkpoint.request is 'signals': write one of 'signal', 'file'"),
        ('request = "signal"\n', "", "checkpoint.request is missing"),
        ('signal = "USR1"', 'signall = "USR1"', "checkpoint.signall is not known; did you mean signal?"),
        ('signal = "USR1"', 'signal = "KILL"', "checkpoint.signal is 'KILL'"),
        ('signal = "USR1"', 'signal = "USR1"\nfile = "x"', "checkpoint.file belongs to request = 'file'"),
        ('"signal"\nsignal = "USR1"', '"interval"\nexits = true', "checkpoint.exits means nothing with request"),
        ('signal = "USR1"', 'signal = "USR1"\nexits = true', "progress.finished is missing"),
        ('files = ["restart.{step}"]\n', "", "checkpoint.files is missing"),
        ('["restart.{step}"]', '["restart.{time}"]', "checkpoint.files has '{time}'"),
        ('["restart.{step}"]', '["a.{step}", "b"]', "checkpoint.files has {step} in one name and not in another"),
        ('["restart.{step}"]', '["../state"]', "names '../state' outside of the working directory"),
        ('["restart.{step}"]', '"restart"', "checkpoint.files is 'restart', and has to be a list of words"),
        ('signal = "USR1"', 'signal = "USR1"\nlog = "^saved"', "checkpoint.log needs a group (?P<step>…)"),
        ('signal = "USR1"', 'signal = "USR1"\nsettle = -1', "checkpoint.settle is -1, and has to be a number from 0"),
        ('signal = "USR1"', 'signal = "USR1"\nmarker = "done"', "checkpoint.marker has to hold {step}"),
        ("'^step (\\d+)'", "'^step (\\d+'", "progress.step is no regular expression"),
        ("'^step (\\d+)'", "'^step'", "progress.step needs one group around the number"),
        ('append = ["--from", "{checkpoint}"]', "", "restart.command is missing"),
        ('"{checkpoint}"', '"{file}"', "restart.append has '{file}'"),
        ("[restart]", '[start]\nappend = ["{checkpoint}"]\n[restart]', "start.append has '{checkpoint}'"),
        ("[restart]", '[sizes]\nprocesses = "4:2"\n[restart]', "sizes.processes: "),
    ],
)
def test_what_is_wrong_is_told_by_file_and_key(tmp_path: Path, old: str, new: str, words: str) -> None:
    load(tmp_path, GOOD)
    assert old in GOOD
    with pytest.raises(ForeignError) as caught:
        load(tmp_path, GOOD.replace(old, new, 1))
    assert words in str(caught.value)
    assert str(tmp_path / "app.toml") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_profiles_are_right_and_survive_run_json() -> None:
    assert {"lammps", "lammps-halt"} <= set(profiles())
    for name in profiles():
        found = read(name)
        assert described(json.loads(json.dumps(found))) == described(found)


def test_a_file_may_begin_as_a_profile(tmp_path: Path) -> None:
    text = 'profile = "lammps-halt"\n[checkpoint]\nrequest = "signal"\nsignal = "USR2"\n[sizes]\nprocesses = "1:8"\n'
    app = load(tmp_path, text)
    assert app.request.kind == "signal" and not app.request.exits  # type: ignore[attr-defined]
    assert app.files.patterns == ("*.{step}.restart",)  # type: ignore[attr-defined]
    assert app.processes.allowed == tuple(range(1, 9))  # type: ignore[attr-defined]
    with pytest.raises(ForeignError, match="write one of lammps"):
        load(tmp_path, 'profile = "nonesuch"\n')


def test_the_thermodynamic_output_of_lammps_is_told_from_the_rest() -> None:
    step = described(read("lammps")).progress.step
    assert step.search("     150    1.6324663   -4.7378063            0   -2.2903025    5.8350392 ")[1] == "150"
    assert step.search("12000 0.5 nan -inf 3e+10")[1] == "12000"
    for line in ("Step Temp E_pair", "  2 by 1 by 1 MPI processor grid", "Histogram: 1 0 0 0", "1000"):
        assert step.search(line) is None


def test_command_lines() -> None:
    values = {"checkpoint": "r.5", "ranks": "4"}
    restart = 'replace = { "in.a" = "in.{ranks}" }\nappend = ["{{x}}"]'
    text = GOOD.replace('append = ["--from", "{checkpoint}"]', restart)
    how = parse(tomllib.loads(text), "x.toml").restart
    assert command_line(["prog", "in.a", "in.ab"], how, values) == ("prog", "in.4", "in.ab", "{x}")


def test_sizes(tmp_path: Path) -> None:
    app = load(tmp_path, GOOD + '[sizes]\nprocesses = "1:16:pow2"\n')
    assert allowed(app, (1, 2, 3, 4), 2) == (1, 2, 4)  # type: ignore[arg-type]
    assert refusal(app, 3, 2) is not None and "3 nodes are 6 processes" in str(refusal(app, 3, 2))  # type: ignore[arg-type]
    with pytest.raises(ForeignError, match="3 nodes are 3 processes"):
        allowed(app, (3,), 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--app", "nonesuch"], "no such file, and no profile of that name: lammps"),
        (["--app", "lammps", "--driver", "direct"], "--driver does nothing with --app"),
        (["--app", "lammps", "--keep", "3"], "--keep does nothing here"),
        (["--app", "lammps", "--background"], "--background does nothing with --app"),
        (["--app", "lammps", "--fast-dir", "/tmp"], "--fast-dir does nothing with --app"),
        (["--app", "lammps", "--compress", "zlib"], "--compress does nothing with --app"),
        (["--app", "lammps", "--checkpoint-every", "auto"], "--checkpoint-every auto does nothing with --app"),
        (["--app", "lammps", "--checkpoint-every", "5m"], "--checkpoint-every does nothing here: LAMMPS writes at its"),
    ],
)
def test_options_that_would_do_nothing_are_refused(tmp_path: Path, options: list[str], words: str) -> None:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "DMR_"))}
    launch = str(Path(sys.executable).parent / "dmr-launch")
    done = subprocess.run(
        [launch, "--engine", "local", *options, "--", "true"], cwd=tmp_path, env=clean, text=True, capture_output=True,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "dmr-runs").exists()
