"""What a real Slurm recorded of a run comes into its report by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dmr.launcher.cluster.tools import missing


def before_the_ranks(report: str) -> list[dict[str, Any]]:
    return [each for each in json.loads(report)["spans"] if each["kind"] == "between"]


def doubts(report: str) -> str:
    return " ".join(each["text"] for each in json.loads(report)["advice"] if each["kind"] == "doubt")


@pytest.mark.slow
def test_the_report_asks_the_accounting(cluster_factory: Any, slurm_on: Any, tmp_path: Path) -> None:
    if reason := missing(accounting=True):
        pytest.skip(reason)
    jobcomp = tmp_path / "jobcomp.log"
    cluster = cluster_factory(2, accounting=True, config=["JobCompType=jobcomp/filetxt", f"JobCompLoc={jobcomp}"])
    slurm = slurm_on(cluster)
    # Without samplers of its own: what Slurm gathers of the steps is asked of sstat and then of sacct.
    job = slurm.submit(80, 0.1, options=("--nodes", "2", "--no-telemetry"), sbatch=("--nodes=2",))
    slurm.at_step(45)
    live = slurm.dmr("report", "run", "--json", "--no-columns")
    assert live.returncode == 0, live.stderr
    assert "by what Slurm recorded of its steps" in doubts(live.stdout), live.stdout
    out = slurm.finished()

    def told() -> str:
        return str(cluster.run(["sacct", "-nPX", f"--jobs={job}", "--format=State"]).stdout)

    slurm.wait(lambda: "COMPLETED" in told(), "the end in the accounting", 30)
    kept = slurm.run.folder / "telemetry" / "sacct.txt"
    report = slurm.dmr("report", "run", "--json", "--no-columns")
    assert report.returncode == 0, report.stderr + out
    assert "by what Slurm recorded of its steps" in doubts(report.stdout), kept.read_text()
    (use,) = json.loads(report.stdout)["summaries"][0]["uses"]
    assert use["cpu"] is not None and use["memory_peak"] > 2**20, "a rank of Python takes more than a megabyte"
    assert before_the_ranks(report.stdout), "the job began before its launcher did: that only Slurm knows"
    assert f"\n{job}|" in kept.read_text()
    slurm.wait(lambda: f"JobId={job} " in jobcomp.read_text(), "the end in the file of jobcomp", 30)
    kept.unlink()
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sacct").symlink_to("/bin/false")
    path = f"{hidden}:{slurm.environment()['PATH']}"
    without = slurm.dmr("report", "run", "--json", "--no-columns", "--jobcomp", str(jobcomp), PATH=path)
    assert without.returncode == 0, without.stderr
    assert before_the_ranks(without.stdout)
