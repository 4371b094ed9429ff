"""counting.py, which takes long to come up in its second generation.

Usage: slow.py SECONDS [ARGUMENTS OF counting.py]
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from pathlib import Path

import dmr  # noqa: F401  # gives the sign

seconds, sys.argv[1:] = float(sys.argv[1]), sys.argv[2:]
if os.environ["DMR_GENERATION"] == "2":
    time.sleep(seconds)
runpy.run_path(str(Path(__file__).with_name("counting.py")), run_name="__main__")
