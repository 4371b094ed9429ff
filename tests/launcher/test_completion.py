"""Completion in a real bash, on a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmr.launcher.run.rundir import RunDir

BIN = Path(sys.executable).parent
SECONDS = 20.0


class Terminal:
    """A bash that has read what `dmr completion bash` prints."""

    def __init__(self, folder: Path) -> None:
        script = folder.parent / "completion.bash"
        script.write_text(subprocess.check_output([str(BIN / "dmr"), "completion", "bash"], text=True, timeout=SECONDS))
        env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "TERM": "dumb", "PS1": "$ ", "INPUTRC": "/dev/null",
               "DMR_CLUSTER_DIR": str(folder.parent)}  # fmt: skip
        self.pid, self.handle = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], env)
        self.send("bind 'set enable-bracketed-paste off'; bind 'set show-all-if-ambiguous on'\n")
        self.send(f". {shlex.quote(str(script))}; echo rea''dy\n")
        self.until(r"\bready\r\n")

    def send(self, text: str) -> None:
        os.write(self.handle, text.encode())

    def until(self, pattern: str) -> str:
        seen, end = "", time.monotonic() + SECONDS
        while not re.search(pattern, seen):
            assert time.monotonic() < end, f"{pattern} did not come: {seen!r}"
            if select.select([self.handle], [], [], 0.1)[0]:
                seen += os.read(self.handle, 65536).decode(errors="replace")
        return seen

    def complete(self, line: str, pattern: str) -> str:
        """Type a line and TAB, wait for what comes, and clear the line."""
        self.send(line + "\t")
        seen = self.until(pattern)
        self.send("\x15\x0becho do''ne\n")
        self.until(r"\bdone\r\n")
        return seen


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    folder = tmp_path_factory.mktemp("shell") / "here"
    RunDir.create(folder / "dmr-runs" / "heat-1", {"run": "heat-1"})
    for name in ("first.py", "ocean.toml", "rod/step-000000000001-g0001.h5", "heat-files/x.h5", "jobs.swf"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    found = Terminal(folder)
    yield found
    found.send("\x15\x0bexit\n")
    os.close(found.handle)
    os.waitpid(found.pid, 0)


@pytest.mark.parametrize(
    ("line", "pattern"),
    [
        ("dmr-launch --nodes 1:2 -- python fir", r"python first\.py "),
        ("dmr-launch --nodes 1:2 ./fir", r"\./first\.py "),
        ("dmr-launch --nodes 1:2 -- ech", r"echo"),
        ("dmr-launch --nodes 1:2 --app oc", r"ocean\.toml "),
        ("dmr-launch --nodes=1:2 --app lammps-", r"lammps-halt "),
        ("dmr-launch --nodes 1:2 --policy dead", r"deadline "),
        ("dmr-launch --policy=dead", r"=deadline "),
        ("dmr-launch --run-dir ro", r"rod/"),
        ("dmr ckpt ls ro", r"rod/"),
        ("dmr ckpt ls rod/", r"g0001\.h5 "),
        ("dmr ckpt show heat", r"heat-1\s+heat-files/|heat-files/\s+heat-1"),
        ("dmr status heat-1", r"heat-1 "),
        ("dmr simulate amd", r"amdahl "),
        ("dmr simulate jo", r"jobs\.swf "),
        ("A=1 dmr replay heat-1 --policy stat", r"static "),
    ],
)
def test_bash_completes(bash: Terminal, line: str, pattern: str) -> None:
    bash.complete(line, pattern)


def test_every_argument_and_file_completes() -> None:
    import click

    from dmr.launcher.cli.dmr import group
    from dmr.launcher.cli.launch import launch

    def each(command: click.Command, name: str) -> Iterator[tuple[str, click.Parameter]]:
        if isinstance(command, click.Group):
            context = click.Context(command)
            for word in command.list_commands(context):
                found = command.get_command(context, word)
                assert found is not None
                yield from each(found, f"{name} {word}")
        else:
            yield from ((f"{name} {param.name}", param) for param in command.params)

    for name, param in [*each(group, "dmr"), *each(launch, "dmr-launch")]:
        argument = isinstance(param, click.Argument) and param.name != "program"  # those of an empty model are none
        if argument or param.metavar in ("FILE", "DIR"):
            found = [item for begun in ("", "./x") for item in param.shell_complete(click.Context(launch), begun)]
            assert found, f"{name} completes nothing"
