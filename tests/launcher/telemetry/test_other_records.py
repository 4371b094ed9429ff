from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dmr.launcher.telemetry.extra import parse_moment, parse_records, read_extra
from dmr.launcher.telemetry.layout import TelemetryError
from dmr.launcher.telemetry.profile import read_profile

RECORDED = Path(__file__).parent / "recorded"


def test_a_merged_profile_of_a_real_slurm() -> None:
    one, two = read_profile(RECORDED / "slurm-22.05-profile-job.h5")
    assert (one.node, two.node) == ("n1", "n2")
    assert one.times[0] == 1795993348 and one.times.size == 8 and one.period == 1.0
    assert one.mean["cpu"][1] == pytest.approx(0.85)
    assert one.mean["memory"][0] == 42708 * 1024


def test_a_node_s_profile_of_a_real_slurm() -> None:
    (one,) = read_profile(RECORDED / "slurm-22.05-profile-node.h5")
    assert one.node == "n1" and one.mean["ranks"][0] == 1


def test_what_is_no_profile_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.h5").write_text("nothing")
    with pytest.raises(TelemetryError, match="no profile"):
        read_profile(tmp_path / "x.h5")
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "y.h5", "w") as file:
        file.create_group("Steps/0/Nodes/n1")
    with pytest.raises(TelemetryError, match="--profile=task"):
        read_profile(tmp_path / "y.h5")


def test_columns_from_csv(tmp_path: Path) -> None:
    path = tmp_path / "power.csv"
    path.write_text("time, watts, note\n1000,200.5,a\n1002,x,b\n1001,210,c\nnever,1,d\n1001,220,e\n")
    found = read_extra(path)
    assert found.name == "power" and found.times.tolist() == [1000, 1001, 1002]
    assert found.columns["watts"][0] == 200.5 and np.isnan(found.columns["watts"][2])
    assert set(found.columns) == {"watts"} and found.left_out == 2


def test_columns_from_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "loss.jsonl"
    first, second = '{"timestamp": "2026-11-29T23:02:27+00:00", "loss": 2}', '{"timestamp": 1795993348000, "loss": 1}'
    path.write_text(f"{first}\n{second}\n{{}}\n{{]\n")
    found = read_extra(path)
    assert found.times.tolist() == [1795993347, 1795993348] and found.columns["loss"].tolist() == [2, 1]
    assert found.left_out == 2


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "time,b\nnever,2\n", ""])
def test_columns_without_times_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(TelemetryError):
        read_extra(tmp_path / "x.csv")


def test_moments() -> None:
    assert parse_moment("Unknown") is None and parse_moment(None) is None and parse_moment("inf") is None
    assert parse_moment("1970-01-01T00:00:05+00:00") == 5 and parse_moment(True) is None


def test_rows_of_sacct() -> None:
    text = """JobID|NNodes|Start|End|State|TotalCPU|MaxRSS|Comment
7|4|1000|1100|RESIZING|00:10.500||a|b
7|2|1000|Unknown|CANCELLED by 5|1-02:03:04|12K|
7.0|2|1000|1200|COMPLETED|00:01||
cut"""
    first, second, step = parse_records(text.splitlines())
    assert (first.job, first.nodes, first.start, first.end, first.state) == ("7", 4, 1000, 1100, "RESIZING")
    assert first.cpu_seconds == 10.5 and first.memory is None and first.fields is not None
    assert first.fields["Comment"] == "a|b"
    assert (second.end, second.state, second.memory) == (None, "CANCELLED", 12288)
    assert second.cpu_seconds == 86400 + 2 * 3600 + 3 * 60 + 4
    assert step.job == "7.0"


def test_rows_of_sstat() -> None:
    (found,) = parse_records(["JobID|MaxRSS|AveCPU", "7.batch|2M|00:03:00"])
    assert found.memory == 2 * 2**20 and found.cpu_seconds == 180
    with pytest.raises(TelemetryError, match="JobID"):
        parse_records(["a|b"])
