"""The shortened end of a rank that leaves: nothing of the program's own is lost by it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dmr.ending import pending

PROGRAM = """\
import atexit, gc, sys, threading, time

atexit.register(lambda: print("searched" if gc.get_freeze_count() == 0 else "left out", flush=True))

from dmr.ending import leaves, shorten_end

shorten_end()
{0}
{1}
"""
HANDLERS = """\
atexit.register(lambda: print("handler", flush=True))
def late():
    time.sleep(0.3)
    print("thread", flush=True)
threading.Thread(target=late).start()
"""
LOG = """\
class Log:
    def __init__(self, path):
        self.file, self.me = open(path, "w"), self
        self.file.write("whole")
log = Log({0!r})
"""
OBJECT = """\
class Object:
    def __init__(self):
        self.me = self
    def __del__(self):
        print("freed", flush=True)
object = Object()
"""


def run(body: str, end: str = "leaves()") -> list[str]:
    argv = [sys.executable, "-c", PROGRAM.format(body, end)]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=30).stdout.split("\n")[:-1]


def test_threads_and_exit_handlers_end_as_ever() -> None:
    assert run(HANDLERS) == ["thread", "handler", "left out"]


def test_a_program_that_does_not_leave_ends_as_ever() -> None:
    assert run("", end="") == ["searched"]


def test_a_file_that_only_itself_holds_is_written(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert run(LOG.format(str(path))) == ["searched"]
    assert path.read_text() == "whole"


def test_an_object_with_an_end_of_its_own_comes_to_it() -> None:
    assert run(OBJECT) == ["searched", "freed"]


def test_what_is_pending(tmp_path: Path) -> None:
    def turns():  # type: ignore[no-untyped-def]
        try:
            yield 1
        finally:
            pass

    begun, ended = turns(), turns()
    next(begun)
    list(ended)
    with open(__file__) as reading, open(tmp_path / "file", "w") as writing:
        assert pending([begun, ended, reading, writing, "text"]) == [begun, writing]
    assert pending([reading, writing]) == []


