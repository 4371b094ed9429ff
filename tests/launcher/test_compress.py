"""dmr-launch --compress on the local engine."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from dmr import ckpt

FIELD = Path(__file__).parents[1] / "dmr" / "apps" / "field.py"


def digest(out: str) -> str:
    (found,) = re.findall(r"^digest .*$", out, re.M)
    return str(found)


def test_a_run_that_changes_size_with_compressed_checkpoints(bench: Any) -> None:
    process = bench.start(
        "dmr-launch", "--engine", "local", "--local-nodes", "4", "--nodes", "1:4", "--start", "2", "--dwell", "1h",
        "--checkpoint-every", "20steps", "--compress", "zlib:2", "--run-dir", "run",
        "--", sys.executable, str(FIELD), "--pace", "0.02",
    )  # fmt: skip
    bench.at_step(5)
    assert bench.dmr("resize", "run", "--nodes", "3", "--wait").returncode == 0
    out = bench.end(process)
    assert process.returncode == 0, out
    alone = subprocess.run([sys.executable, str(FIELD)], capture_output=True, text=True, timeout=60, check=True)
    assert digest(out) == digest(alone.stdout)
    told = bench.dmr("status", "run").stdout
    assert re.search(r"checkpoint:.* step-\S+\.h5, \S+ of \S+, compressed in \S+ s of \S+ s$", told, re.M), told
    saved = bench.events("checkpoint")
    assert saved  # those of which the launcher has heard: it looks now and then
    for each in saved:
        assert each["raw_bytes"] > each["bytes"] > 0 and each["compress_seconds"] > 0
    files = list(bench.run.checkpoints.glob("step-*.h5"))
    assert len(files) == 2
    for path in files:
        with ckpt.open(path) as file:
            assert {str(each.filter.codec) for each in file.manifest.arrays if each.filter} == {"zlib:2"}


def test_a_compression_that_is_none_is_refused_at_once(bench: Any) -> None:
    process = bench.launch(5, options=("--nodes", "1", "--compress", "lzma"))
    out = bench.end(process)
    assert process.returncode == 2 and "--compress: there is no compression 'lzma'" in out
    assert not bench.run.folder.exists()
