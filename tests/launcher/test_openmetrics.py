from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dmr.launcher.cli.dmr import group
from dmr.launcher.run.openmetrics import openmetrics
from dmr.launcher.run.status import RunStatus

sys.path.insert(0, str(Path(__file__).parent / "timeline"))

TEXT = r'"(?:[^"\\]|\\.)*"'
LINE = re.compile(rf'[a-z_]+(_total)?\{{run={TEXT},folder={TEXT}(,dmr_run_state="[a-z]+")?\}} -?[\d.e+-]+')


def test_every_line_is_well_formed_and_every_family_is_together() -> None:
    runs = [RunStatus('b"\\\n', "/x", "running", 3, nodes=4, step=10, node_hours=0.5), RunStatus("a", "/y", "finished")]
    lines = openmetrics(runs).split("\n")
    assert lines[-2:] == ["# EOF", ""]
    families: list[str] = []
    for line in lines[:-2]:
        if line.startswith("# TYPE"):
            families.append(line.split()[2])
        elif not line.startswith("#"):
            assert LINE.fullmatch(line), line
            assert line.startswith(families[-1])
    assert len(families) == len(set(families))
    assert 'dmr_run_nodes{run="b\\"\\\\\\n",folder="/x"} 4' in lines
    assert 'dmr_run_node_seconds_total{run="b\\"\\\\\\n",folder="/x"} 1800' in lines
    assert 'dmr_run_state{run="a",folder="/y",dmr_run_state="finished"} 1' in lines
    assert not any("nan" in line or "None" in line for line in lines)


def test_a_real_parser_reads_it() -> None:
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    runs = [
        RunStatus('b"\\\n', "/x", "running", 3, nodes=4, step=10, steps=20, node_hours=0.5, seconds_per_step=0.25,
                  resizes=2, pending_nodes=8, pending_since=1.8e9),
        RunStatus("a", "/y", "finished"),
    ]  # fmt: skip
    families = {each.name: each for each in parser.text_string_to_metric_families(openmetrics(runs))}
    nodes = {each.labels["run"]: each.value for each in families["dmr_run_nodes"].samples}
    assert nodes == {'b"\\\n': 4.0}
    assert families["dmr_run_resizes"].type == "counter" and families["dmr_run_state"].type == "stateset"
    states = [each.labels["dmr_run_state"] for each in families["dmr_run_state"].samples if each.value == 1]
    assert sorted(states) == ["finished", "running"]


def test_status_prints_it(tmp_path: Path) -> None:
    from made_run import three_phases

    folder = three_phases(tmp_path / "run").write()
    found = CliRunner().invoke(group, ["status", str(folder), "--openmetrics"], prog_name="dmr")
    assert found.exit_code == 0 and "dmr_run_resizes_total" in found.output and found.output.endswith("# EOF\n")
