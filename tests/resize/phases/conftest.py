"""Lets the tests beside it import the generator of series whose phases are known."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
