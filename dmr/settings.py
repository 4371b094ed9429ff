"""How a program is to save, from its decorator or from the launcher's environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from .ckpt import Automatic, EverySeconds, Interval, Retention, Unsupported
from .ckpt.storage.codec import NONE, parse
from .errors import Error

ENV_EVERY = "DMR_CHECKPOINT_EVERY"
ENV_KEEP = "DMR_KEEP"
ENV_DRIVER = "DMR_DRIVER"
ENV_BACKGROUND = "DMR_CHECKPOINT_BACKGROUND"
ENV_FAST_DIR = "DMR_FAST_DIR"
ENV_COMPRESS = "DMR_COMPRESS"
ENV_INTERVAL = "DMR_CHECK_INTERVAL"

Driver = Literal["auto", "mpio", "direct"]
MEAN_TIME_BETWEEN_FAILURES = 86400.0
"""Seconds; of an allocation, where nothing else is said."""

DRIVERS: tuple[Driver, ...] = ("auto", "mpio", "direct")


@dataclass(frozen=True)
class Settings:
    """How often to save, how many checkpoints to keep, how to write them, how often the ranks talk.

    ``every_steps`` are steps of the whole run, ``rule`` says when by time; with neither, checkpoints are made only when
    the launcher asks. ``background``: the program goes on while they are written. ``fast_dir`` is a folder of the node
    that they go to first, ``compress`` what they are compressed with. ``interval`` is the time between two agreements
    in seconds.
    """

    every_steps: int | None = None
    rule: Interval | None = None
    keep: int | Retention = 2
    driver: Driver = "auto"
    background: bool = False
    fast_dir: str | None = None
    compress: str | None = None
    interval: float = 0.5


def settings(
    every: str | float | None = None,
    keep: int | Retention | None = None,
    driver: str | None = None,
    background: bool = False,
    fast_dir: str | os.PathLike[str] | None = None,
    compress: str | None = None,
) -> Settings:
    """Return the settings that the program's author chose; the launcher's user overrides them.

    Parameters
    ----------
    every
        Seconds, a time as ``1:30:00``, ``90s``, ``15min``, ``2h``, steps as ``500steps``, or ``auto``: by Daly's
        formula from the measured cost of a save and a mean time between failures of a day, ``auto/6h`` for another one.
    keep
        How many checkpoints to keep, or a rule of `dmr.ckpt`.
    driver
        ``direct``, ``mpio`` or ``auto``.
    background
        Go on computing while a checkpoint is written.
    fast_dir
        A folder of the node that checkpoints go to first.
    compress
        ``zstd``, ``zlib``, one of them with a level (``zstd:3``), or ``none``.

    Raises
    ------
    Error
        When one of them can't be read.
    """
    chosen = Settings(background=bool(background), fast_dir=None if fast_dir is None else os.fspath(fast_dir))
    if every is not None:
        chosen = _with_every(chosen, str(every), "checkpoint_every")
    if isinstance(keep, int | str):
        chosen = _with_keep(chosen, keep, "keep")
    elif keep is not None:
        chosen = replace(chosen, keep=keep)
    if driver is not None:
        chosen = _with_driver(chosen, driver, "driver")
    if compress is not None:
        chosen = replace(chosen, compress=compress)
    chosen = from_environment(chosen, os.environ)
    try:
        parse(chosen.compress)
    except Unsupported as error:
        raise Error(f"compress={chosen.compress!r}: {error}") from None
    return chosen


def from_environment(chosen: Settings, env: Mapping[str, str]) -> Settings:
    """Return the settings with what the launcher handed over put in place."""
    if env.get(ENV_EVERY):
        chosen = _with_every(chosen, env[ENV_EVERY], ENV_EVERY)
    if env.get(ENV_KEEP):
        chosen = _with_keep(chosen, env[ENV_KEEP], ENV_KEEP)
    if env.get(ENV_DRIVER):
        chosen = _with_driver(chosen, env[ENV_DRIVER], ENV_DRIVER)
    if env.get(ENV_BACKGROUND):
        if env[ENV_BACKGROUND] not in ("0", "1"):
            raise Error(f"{ENV_BACKGROUND}={env[ENV_BACKGROUND]!r}: takes 1 or 0")
        chosen = replace(chosen, background=env[ENV_BACKGROUND] == "1")
    if env.get(ENV_FAST_DIR):
        chosen = replace(chosen, fast_dir=env[ENV_FAST_DIR])
    if env.get(ENV_COMPRESS):
        chosen = replace(chosen, compress=None if env[ENV_COMPRESS] == NONE else env[ENV_COMPRESS])
    if env.get(ENV_INTERVAL):
        try:
            interval = float(env[ENV_INTERVAL])
        except ValueError:
            interval = -1.0
        if interval < 0:
            raise Error(f"{ENV_INTERVAL}={env[ENV_INTERVAL]!r}: takes seconds, 0 or more")
        chosen = replace(chosen, interval=interval)
    return chosen


_UNITS = {"": 1.0, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def _with_every(chosen: Settings, text: str, where: str) -> Settings:
    steps = re.fullmatch(r"(\d+) *steps?", text.strip())
    if steps and int(steps[1]) > 0:
        return replace(chosen, every_steps=int(steps[1]), rule=None)
    word, slash, mtbf = text.strip().partition("/")
    if word == "auto" and (seconds := _seconds(mtbf) if slash else MEAN_TIME_BETWEEN_FAILURES):
        return replace(chosen, every_steps=None, rule=Automatic(seconds))
    if seconds := _seconds(text.strip()):
        return replace(chosen, every_steps=None, rule=EverySeconds(seconds))
    raise Error(
        f"{where}={text!r}: takes a time (90s, 15min, 1:30:00), a number of steps (500steps), more than 0, or auto, "
        "auto/6h with the mean time between failures"
    )


def _seconds(text: str) -> float | None:
    """Return the seconds that a text names, None when it names none or 0."""
    plain = re.fullmatch(r"(\d+(?:\.\d*)?) *([a-z]*)", text)
    if plain and plain[2] in _UNITS:
        return float(plain[1]) * _UNITS[plain[2]] or None
    clock = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d{1,2})(?::(\d{1,2}))?", text)
    if clock is None:
        return None
    days, first, second, third = (int(part) if part else 0 for part in clock.groups())
    seconds = first * 3600 + second * 60 + third if clock[4] or clock[1] else first * 60 + second
    return float(days * 86400 + seconds) or None


def _with_keep(chosen: Settings, value: object, where: str) -> Settings:
    try:
        keep = int(str(value))
    except ValueError:
        keep = 0
    if keep < 1:
        raise Error(f"{where}={value!r}: takes the number of checkpoints to keep, 1 or more (2 or more is safer)")
    return replace(chosen, keep=keep)


def _with_driver(chosen: Settings, value: str, where: str) -> Settings:
    for driver in DRIVERS:
        if value == driver:
            return replace(chosen, driver=driver)
    raise Error(f"{where}={value!r}: takes one of {', '.join(DRIVERS)}")
