"""Graphics processors by NVIDIA's management library, where there are some and ``nvidia-ml-py`` is installed."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping
from typing import Any

COLUMNS = ("gpu", "gpu_memory", "gpu_watts", "gpus")
"""Processors busy, bytes used, watts drawn, and how many processors there are."""


class Gpus:
    """The graphics processors that the application may use on this node."""

    def __init__(self, library: Any, handles: list[Any]) -> None:
        self._library, self._handles = library, handles

    @classmethod
    def find(cls, environ: Mapping[str, str] = os.environ) -> Gpus | None:
        """Return them, None when there are none or they can't be asked."""
        try:
            import pynvml

            library: Any = pynvml
            library.nvmlInit()
            count = library.nvmlDeviceGetCount()
            handles = [library.nvmlDeviceGetHandleByIndex(index) for index in _visible(environ, count)]
        except Exception:  # the library raises classes of its own, and none of them is this run's business
            return None
        return cls(library, handles) if handles else None

    def read(self) -> tuple[float, ...]:
        """Return a value for each of `COLUMNS`; NaN where one could not be had."""
        library = self._library
        busy = [_asked(lambda h=each: library.nvmlDeviceGetUtilizationRates(h).gpu / 100) for each in self._handles]
        memory = [_asked(lambda h=each: float(library.nvmlDeviceGetMemoryInfo(h).used)) for each in self._handles]
        watts = [_asked(lambda h=each: library.nvmlDeviceGetPowerUsage(h) / 1000) for each in self._handles]
        return (math.fsum(busy), math.fsum(memory), math.fsum(watts), float(len(self._handles)))

    def memory(self) -> float:
        """Return the bytes of all of them."""
        total = [_asked(lambda h=each: float(self._library.nvmlDeviceGetMemoryInfo(h).total)) for each in self._handles]
        return math.fsum(total)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._library.nvmlShutdown()


def _visible(environ: Mapping[str, str], count: int) -> list[int]:
    """Return the indices that the job was given; the library itself sees all of the node."""
    for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES"):
        given = environ.get(name, "").split(",")
        if given != [""] and all(each.isdigit() for each in given):
            return [int(each) for each in given if int(each) < count]
    return list(range(count))


def _asked(question: Any) -> float:
    try:
        return float(question())
    except Exception:  # a card may know one figure and not another
        return math.nan
