"""The fault campaign, with the least number of faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CAMPAIGN = Path(__file__).parent / "campaign.py"


def run(scenario: str) -> dict[str, Any]:
    found = subprocess.run(
        [sys.executable, str(CAMPAIGN), scenario],
        env={**os.environ, "PYTHONPATH": str(CAMPAIGN.parent)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    print(found.stderr[-200:])
    assert found.returncode == 0, found.stderr[-4000:]
    counts: dict[str, Any] = json.loads(found.stdout)[scenario]
    if "skipped" in counts:
        pytest.skip(counts["skipped"])
    return counts


def test_a_process_killed_at_random_instants() -> None:
    assert run("kills")["kills"] >= 200


def test_ranks_killed_at_random_instants() -> None:
    counts = run("ranks")
    assert counts["kills"] >= 12 and counts["slowest_end_seconds"] < 15


def test_killed_at_every_point() -> None:
    counts = run("every_point")
    assert counts["before"] > counts["after"] > 0


def test_killed_at_every_point_of_a_compressed_save() -> None:
    counts = run("every_point_compressed")
    assert counts["before"] > counts["after"] > 0


def test_killed_in_two_levels() -> None:
    counts = run("kills_levels")
    assert counts["kills"] >= 60 and counts["on_the_node_alone"] > 0


def test_ranks_killed_in_two_levels() -> None:
    counts = run("ranks_levels")
    assert counts["kills"] >= 6 and counts["slowest_end_seconds"] < 15


def test_killed_at_every_point_of_two_levels() -> None:
    counts = run("every_point_levels")
    assert counts["before"] > 0 and counts["on_the_node_alone"] > 10


@pytest.mark.parametrize("scenario", ["flips", "truncations", "flips_compressed", "truncations_compressed"])
def test_all_damage_is_found(scenario: str) -> None:
    assert run(scenario)["missed"] == 0


@pytest.mark.parametrize("scenario", ["space", "space_compressed"])
def test_disk_full_at_every_stage(scenario: str) -> None:
    counts = run(scenario)
    assert counts["refused"] >= 5 and counts["refused_before_writing"] >= 1 and counts["saved"] >= 1


@pytest.mark.parametrize("scenario", ["read_only", "vanished", "size_limit"])
def test_folders(scenario: str) -> None:
    assert run(scenario)["cases"] >= 1


def test_two_writers_at_once() -> None:
    assert run("two_writers")["saves"] >= 2
