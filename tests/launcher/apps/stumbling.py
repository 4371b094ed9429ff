"""counting.py, whose ranks die or hang where MPI would be initialised, as often as told.

Usage: stumbling.py TIMES HOW [ARGUMENTS OF counting.py]

HOW is ``signal`` (SIGSEGV), ``exit`` (status 7) or ``hang``.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import time
from pathlib import Path

import dmr  # noqa: F401  # gives the sign

times, how, sys.argv[1:] = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
if int(os.environ["DMR_GENERATION"]) <= times:
    print("stumbles", flush=True)
    if how == "exit":
        sys.exit(7)
    if how == "hang":
        time.sleep(600)
    os.kill(os.getpid(), signal.SIGSEGV)
runpy.run_path(str(Path(__file__).with_name("counting.py")), run_name="__main__")
