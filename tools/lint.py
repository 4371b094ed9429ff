"""Run ruff and mypy over all of the project; exit status 1 when either complains."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINKS = ROOT / "build" / "lint" / "dmr"
STUBS = ROOT / "build" / "stubs"
NUMPY = "numpy==1.26.4"
"""What is right by the types of Debian 12's NumPy is wrong by those of 13's, and the reverse: both read these."""
PARTS = ("ckpt", "resize", "launcher")


def main() -> int:
    os.chdir(ROOT)
    ruff = subprocess.run([sys.executable, "-m", "ruff", "check", "."], stdin=subprocess.DEVNULL, check=False)
    return max(ruff.returncode, _mypy())


def _mypy() -> int:
    """Check the folders under the name that they install as, and show the places as they are in the tree."""
    _link()
    _fetch_stubs()
    others = [name for name in ("examples", "tools", "benchmarks") if any(Path(name).glob("*.py"))]
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "build/lint/dmr", *others],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    text = found.stdout
    for part in PARTS:
        text = text.replace(f"build/lint/dmr/{part}/", f"{part}/")
    print(text.replace("build/lint/dmr/", "dmr/"), end="")
    return found.returncode


def _link() -> None:
    """Lay a tree of links in which the folders stand as the one package that they install as."""
    shutil.rmtree(LINKS, ignore_errors=True)
    LINKS.mkdir(parents=True)
    for path in (ROOT / "dmr").iterdir():
        if path.name != "__pycache__":
            (LINKS / path.name).symlink_to(path)
    for part in PARTS:
        (LINKS / part).symlink_to(ROOT / part)


def _fetch_stubs() -> None:
    """Unpack NumPy where mypy looks first. It is never imported, so the wheel need not be one for this Python."""
    if (STUBS / "numpy" / "py.typed").exists():
        return
    shutil.rmtree(STUBS, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--target", str(STUBS)]
    wheel = ["--python-version", "3.11", "--implementation", "cp", "--platform", "manylinux2014_x86_64"]
    command = [*pip, "--no-deps", "--only-binary", ":all:", *wheel, NUMPY]
    subprocess.run(command, stdin=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    sys.exit(main())
