from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest

from dmr.launcher.telemetry.layout import BLOCK, Appender, Header, Pyramid, TelemetryError, file_name, read_header
from dmr.launcher.telemetry.node import COLUMNS as NODE_COLUMNS
from dmr.launcher.telemetry.node import RANK_COLUMNS, RANKS_A_SECOND
from dmr.launcher.telemetry.read import read_ranks, read_telemetry

COLUMNS = ("cpu", "memory", "step")


def written(folder: Path, count: int, *, node: str = "n1", generation: int = 1, **facts: object) -> np.ndarray:
    """Write a series of so many seconds, and return its values."""
    rng = np.random.default_rng(count)
    values = rng.uniform(0, 100, size=(count, len(COLUMNS)))
    values[:, 2] = 2**31 + np.arange(count)
    values[::7, 1] = np.nan
    pyramid = Pyramid(folder, Header(generation, node, COLUMNS, facts={"period": 1.0, **facts}))
    for second, row in enumerate(values):
        pyramid.append(1000.0 + second, row)
    pyramid.close()
    return values


def test_what_is_written_is_read(tmp_path: Path) -> None:
    values = written(tmp_path, 50, cpus=4)
    (found,) = read_telemetry(tmp_path).nodes
    assert (found.node, found.generation, found.period, found.facts["cpus"]) == ("n1", 1, 1.0, 4)
    assert (found.times == 1000.0 + np.arange(50)).all()
    assert (found.mean["step"] == values[:, 2]).all(), "steps keep every digit"
    np.testing.assert_allclose(found.mean["cpu"], values[:, 0], rtol=1e-6)
    assert np.isnan(found.mean["memory"][::7]).all()


def test_a_record_that_a_crash_cut_short_is_passed_over(tmp_path: Path) -> None:
    written(tmp_path, 10)
    path = tmp_path / file_name(1, "n1")
    os.truncate(path, path.stat().st_size - 3)
    (found,) = read_telemetry(tmp_path).nodes
    assert found.times.size == 9


def test_a_sampler_that_could_not_write_leaves_whole_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    appender = Appender(tmp_path / file_name(1, "n1"), Header(1, "n1", COLUMNS))
    appender.append([(1.0, (1.0, 2.0, 3.0))])
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:-5]))  # the disk is full in the middle
    appender.append([(2.0, (1.0, 2.0, 3.0))])
    monkeypatch.undo()
    appender.append([(3.0, (1.0, 2.0, 3.0))])
    appender.close()
    (found,) = read_telemetry(tmp_path).nodes
    assert found.times.tolist() == [1.0, 3.0]


def test_coarser_levels_are_least_mean_and_most(tmp_path: Path) -> None:
    values = written(tmp_path, 16 * 16 * 3 + 20)
    (found,) = read_telemetry(tmp_path, points=3).nodes
    assert found.period == 256
    groups = values[:768].reshape(3, 256, 3)
    np.testing.assert_allclose(found.mean["cpu"][:3], groups[:, :, 0].mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(found.least["cpu"][:3], groups[:, :, 0].min(axis=1), rtol=1e-6)
    np.testing.assert_allclose(found.most["memory"][:3], np.nanmax(groups[:, :, 1], axis=1), rtol=1e-6)
    assert found.times[:3].tolist() == [1255, 1511, 1767]
    # What is too new for the coarse level: one record of sixteen, and four of one second.
    assert found.times[3:].tolist() == [1783, 1784, 1785, 1786, 1787]


def test_as_fine_as_is_wanted(tmp_path: Path) -> None:
    written(tmp_path, 1000)
    assert read_telemetry(tmp_path, points=5000).nodes[0].period == 1
    assert read_telemetry(tmp_path, points=60).nodes[0].period == 16
    assert read_telemetry(tmp_path, points=60, span=(1000, 1100)).nodes[0].period == 1


def test_columns_and_span(tmp_path: Path) -> None:
    written(tmp_path, 100)
    (found,) = read_telemetry(tmp_path, columns=["cpu", "unheard of"], span=(1010, 1019)).nodes
    assert set(found.mean) == {"cpu"} and found.times.size == 10


def test_clocks_are_put_right(tmp_path: Path) -> None:
    written(tmp_path, 5, clock_ahead=2.5)
    (found,) = read_telemetry(tmp_path).nodes
    assert found.offset == -2.5 and found.times[0] == 997.5


def test_files_that_are_none_are_named(tmp_path: Path) -> None:
    written(tmp_path, 5)
    (tmp_path / "0002.n1.tele").write_bytes(b"no header\n")
    (tmp_path / "0003.n1.tele").write_bytes(b'{"format": 9}\n')
    found = read_telemetry(tmp_path)
    assert len(found.nodes) == 1 and len(found.unread) == 2
    assert "0002.n1.tele" in found.unread[0] and "format 9" in found.unread[1]
    with pytest.raises(TelemetryError, match="no telemetry file"):
        read_header(tmp_path / "absent")


def test_only_one_sampler_has_the_file(tmp_path: Path) -> None:
    header = Header(1, "n1", COLUMNS)
    Pyramid(tmp_path, header)
    with pytest.raises(FileExistsError):
        Pyramid(tmp_path, header)


def test_names_of_nodes_are_no_paths() -> None:
    assert "/" not in file_name(1, "../../etc/passwd") and len(file_name(1, "n" * 500)) < 255


def test_an_hour_takes_less_than_20_megabytes() -> None:
    more = ("gpu", "gpu_memory", "gpu_watts", "gpus", "step", "seconds_per_step", "state")
    node = Header(1, "n1", (*NODE_COLUMNS, *more))
    rank = Header(1, "n1", RANK_COLUMNS, ranks=True)
    coarse = Header(1, "n1", node.columns, level=16)
    an_hour = 3600 * (node.size + RANKS_A_SECOND * rank.size) + 3600 / 16 * (1 + 1 / 15) * coarse.size + 5 * BLOCK
    assert an_hour < 20e6


def test_ranks_are_read(tmp_path: Path) -> None:
    header = Header(2, "n1", ("rank", "cpu"), ranks=True)
    appender = Appender(tmp_path / file_name(2, "n1", ranks=True), header)
    appender.append([(1.0, (0, 0.5)), (1.0, (1, math.nan))])
    appender.close()
    (found,) = read_ranks(tmp_path)
    assert found.columns["rank"].tolist() == [0, 1] and found.times.tolist() == [1, 1]
    assert read_telemetry(tmp_path).nodes == ()
