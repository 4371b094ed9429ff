from __future__ import annotations

import dataclasses
import json
import os
import re
import struct
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from made_run import T0, MadeRun, changed, three_phases

from dmr.launcher.cli.dmr import group
from dmr.launcher.report.advice import advise
from dmr.launcher.report.data import report_data
from dmr.launcher.report.page import PageError, embedded, page
from dmr.launcher.telemetry.layout import LEVELS, Header, file_name
from dmr.launcher.telemetry.node import COLUMNS
from dmr.launcher.timeline.analysis import analyse
from dmr.launcher.timeline.sources import read_sources

MONTH = 30 * 86400


@pytest.fixture(autouse=True)
def no_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMR_MODEL_DIR", str(tmp_path / "models"))


def dmr(*words: object) -> Result:
    return CliRunner().invoke(group, ["report", *map(str, words)], prog_name="dmr")


def test_the_text_says_what_a_run_was_worth(tmp_path: Path) -> None:
    changed(tmp_path / "run")
    text = dmr(tmp_path / "run").output
    assert "made: app.py · --size 9 · cluster" in text
    assert re.findall(r"^ *[\d:]+ +\d+→\d+ .*? (effective|late|useless|harmful) ", text, re.MULTILINE) == [
        "effective", "late", "effective"
    ]  # fmt: skip
    assert "Where the node-hours went" in text and "new nodes waiting for the old ones to save" in text
    assert "--policy phases" in text


def test_as_json_all_figures_are_there(tmp_path: Path) -> None:
    changed(tmp_path / "run")
    found = json.loads(dmr(tmp_path / "run", "--json").output)
    assert sum(each["node_hours"] for each in found["costs"]) == pytest.approx(found["node_hours"])
    assert [each["verdict"] for each in found["changes"]] == ["effective", "late", "effective"]
    assert len(found["columns"]["cpu"]["mean"]) == pytest.approx(found["seconds"] / found["period"], abs=1)
    assert "columns" not in json.loads(dmr(tmp_path / "run", "--json", "--no-columns").output)


def test_runs_are_compared(tmp_path: Path) -> None:
    changed(tmp_path / "a")
    three_phases(tmp_path / "b").write()
    text = dmr(tmp_path / "a", tmp_path / "b", "--text").output
    first, second = json.loads(dmr(tmp_path / "a", tmp_path / "b", "--json", "--no-columns").output)
    assert f"{second['seconds'] / first['seconds'] - 1:+.0%}".replace("-", "−") in text.splitlines()[2]


def test_a_run_that_is_none_and_a_file_that_is_none(tmp_path: Path) -> None:
    assert dmr(tmp_path / "absent").exit_code != 0
    three_phases(tmp_path / "a").write()
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    found = dmr(tmp_path / "a", "--data", tmp_path / "x.csv")
    assert found.exit_code == 1 and "column of times" in found.stderr
    assert dmr(tmp_path / "a", tmp_path / "a", "--data", tmp_path / "x.csv").exit_code == 2


def test_a_run_without_telemetry_says_what_that_costs(tmp_path: Path) -> None:
    made = three_phases(tmp_path / "run")
    for path in (made.write() / "telemetry").iterdir():
        path.unlink()
    text = dmr(tmp_path / "run").output
    assert "There is no telemetry" in text and "mesh" in text


def test_a_run_that_has_not_begun(tmp_path: Path) -> None:
    MadeRun(tmp_path / "run").write()
    found = dmr(tmp_path / "run", "-o", tmp_path / "x.html", "--text")
    assert found.exit_code == 0 and "not started" in found.output


def test_advice_has_its_numbers(tmp_path: Path) -> None:
    made = changed(tmp_path / "run")
    texts = [each.text for each in advise(analyse(read_sources(made.folder), now=made.clock))]
    plan = next(each for each in texts if "throughout" in each)
    assert "solve on 16" in plan and "write on 1" in plan and "was not measured" in plan
    assert any("came too late" in each for each in texts)
    assert any("81% were never touched" in each for each in texts)
    assert any("Processors stood idle in write on 2" in each for each in texts)


def test_memory_is_told_where_it_says_something(tmp_path: Path) -> None:
    """Not of a program that needs next to none, and not where nobody is advised to take fewer nodes."""
    made = changed(tmp_path / "run")
    found = analyse(read_sources(made.folder), now=made.clock)

    def told(**changes: Any) -> bool:
        summaries = tuple(
            dataclasses.replace(each, uses=tuple(dataclasses.replace(use, **changes) for use in each.uses))
            for each in found.summaries
        )
        return any("touched" in each.text for each in advise(dataclasses.replace(found, summaries=summaries)))

    assert told() and not told(memory_peak=2e8) and not told(nodes=1)


def test_one_size_alone_is_no_ground_for_advice_on_size(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "run")
    made.launch(4)
    made.compute("solve", 200)
    made.end()
    made.write()
    texts = [each.text for each in advise(analyse(read_sources(made.folder), now=made.clock))]
    assert any("dmr experiment" in each for each in texts) and not any("does better" in each for each in texts)


# -- the page

pytest.importorskip("jinja2")


def test_the_page_holds_all_and_asks_for_nothing(tmp_path: Path) -> None:
    changed(tmp_path / "run")
    assert dmr(tmp_path / "run", "-o", tmp_path / "out.html").exit_code == 0
    text = (tmp_path / "out.html").read_text()
    assert text.startswith("<!doctype html>") and "default-src 'none'" in text
    assert "src=" not in text and "https://" not in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "came too late" in text and ">late<" in text


def test_names_are_text_and_never_markup(tmp_path: Path) -> None:
    made = three_phases(tmp_path / "run")
    data = report_data(analyse(read_sources(made.write()), now=made.clock))
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028"
    data["run"] = data["program"] = data["phases"][0]["phase"] = data["summaries"][0]["phase"] = evil
    text = page([data])
    assert evil not in text and "<img" not in text
    assert text.count("<script") == 2 and text.count("</script>") == 2
    assert json.loads(embedded(evil)) == evil


def test_without_jinja2_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(PageError, match="pip install"):
        page([{}])


def month_on_100_nodes(folder: Path) -> None:
    """Write a run of a month on 100 nodes; the finest levels are as long as they would be, and empty."""
    made = MadeRun(folder, sizes=(50, 100))
    made.launch(100)
    made.samples = []
    for number in range(240):
        phase = ("mesh", "solve", "write")[number % 3]
        made.event("phase", app=True, generation=1, at=T0 + 4 + number * 10800, phase=phase, step=number * 8333)
    made.clock, made.step = T0 + 4 + MONTH, 2_000_000
    made.event("ended", why="finished", exit=0, step=made.step, first_step=0, rates=[])
    made.write()
    facts = {"period": 1.0, "cpus": 64, "memory_held": 256e9, "machine": "cluster", "clock_ahead": 0.0}
    for level in LEVELS:
        header = Header(1, "n0", COLUMNS, level, False, facts)
        first, start, rows = folder / "telemetry" / file_name(1, "n0", level), len(header.pack()), MONTH // level
        with open(first, "wb") as stream:
            stream.write(header.pack())
            if level < 256:
                stream.truncate(start + rows * header.size)
                for row in (0, rows - 1):
                    stream.seek(start + row * header.size)
                    stream.write(struct.pack("<d", T0 + 4 + level * (row + 1)))
            else:
                names = ("time", *header.fields)
                types = ["<f8" if letter == "d" else "<f4" for letter in header.types]
                table = np.ones(rows, np.dtype(list(zip(names, types, strict=True))))
                table["time"] = T0 + 4 + level * (1 + np.arange(rows))
                share = np.array([0.6, 0.97, 0.15])[((table["time"] - T0 - 4) // 10800 % 3).astype(int)]
                for what, factor in (("least", 0.9), ("mean", 1.0), ("most", 1.1)):
                    table[f"cpu.{what}"] = 64 * factor * share
                    table[f"cpus.{what}"] = 64
                table.tofile(stream)
        for node in range(1, 100):  # one file under a hundred names: as much to read, less to write
            os.link(first, folder / "telemetry" / file_name(1, f"n{node}", level))


@pytest.mark.slow
def test_a_month_of_a_sample_a_second_on_100_nodes(tmp_path: Path) -> None:
    month_on_100_nodes(tmp_path / "run")
    began = time.process_time(), time.monotonic()
    sources = read_sources(tmp_path / "run")
    found = analyse(sources, now=T0 + MONTH + 10)
    text = page([report_data(found)])
    assert time.process_time() - began[0] < 10.0
    assert time.monotonic() - began[1] < 30.0, "also on a machine that others use"
    assert len(text.encode()) < 10_000_000
    assert len({each.node for each in sources.telemetry.nodes}) >= 1 and len(sources.telemetry.nodes) == 100
    assert found.timeline.facts["resolution"] == 256
    uses = {each.phase: each.uses[0] for each in found.summaries}
    assert uses["solve"].cpu == pytest.approx(0.97, abs=0.03) and uses["solve"].occurrences == 80
    assert uses["solve"].node_hours == pytest.approx(100 * MONTH / 3 / 3600, rel=0.01)
