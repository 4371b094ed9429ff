"""Where the figures of a benchmark go."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def put_out(found: dict[str, Any], target: str | None, show: Callable[[dict[str, Any]], None]) -> None:
    """Write figures as JSON to a file, or to standard output for ``-``; without a target, show them as a table."""
    if target is None:
        show(found)
    elif target == "-":
        print(json.dumps(found, indent=2))
    else:
        Path(target).write_text(json.dumps(found, indent=2) + "\n")
