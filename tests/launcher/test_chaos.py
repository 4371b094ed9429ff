"""The campaign of random faults does each of them, and kills nobody else's processes."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dmr.launcher.run.identity import born, identity


@pytest.fixture(scope="module")
def chaos() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chaos", Path(__file__).with_name("chaos.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["chaos"] = module  # where its dataclasses look for it
    spec.loader.exec_module(module)
    return module


def made(chaos: ModuleType, folder: Path) -> Any:
    return chaos.Chaos(None, folder, random.Random(1), chaos.Tally())


def test_each_fault_comes_once_before_any_comes_twice(
    chaos: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in chaos.KINDS:
        monkeypatch.setattr(chaos.Chaos, kind.replace(" ", "_"), lambda self: True)
    monkeypatch.setattr(chaos.Chaos, "requeue", lambda self: False)  # what is not possible now holds nothing up
    one = made(chaos, tmp_path)
    for _ in range(2 * (len(chaos.KINDS) - 1)):
        one.strike()
    assert one.tally.as_json()["faults"] == {kind: 0 if kind == "requeue" else 2 for kind in chaos.KINDS}


def test_a_launcher_is_killed_and_nobody_who_has_its_number_now(chaos: ModuleType, tmp_path: Path) -> None:
    one = made(chaos, tmp_path)
    one.bench.run.create(tmp_path / "run", {"run": "r"})
    with subprocess.Popen(["sleep", "60"]) as process:
        lease = {**identity(), "pid": process.pid, "born": born(process.pid)}
        assert one.bench.run.take_lease(1, {**lease, "born": 1}) and not one.kill_launcher()
        assert one.bench.run.take_lease(2, lease) and one.kill_launcher()
        assert process.wait(10) == -9
        assert not one.kill_launcher()
