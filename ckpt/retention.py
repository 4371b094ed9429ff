"""Which checkpoints stay: small rules, joined by ``|``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from .errors import CheckpointError
from .state.items import CheckpointInfo


@runtime_checkable
class Retention(Protocol):
    """Chooses, of good checkpoints, those that stay. The newest stays whatever is chosen."""

    def chosen(self, found: Sequence[CheckpointInfo]) -> set[Path]:
        """Return the paths that stay, of checkpoints in the order from the newest to the oldest."""


class _Joined:
    def __or__(self, other: Retention) -> Retention:
        assert isinstance(self, Retention)
        return AnyOf((self, other))


@dataclass(frozen=True)
class AnyOf(_Joined):
    """What any of several rules keeps."""

    rules: tuple[Retention, ...]

    def chosen(self, found: Sequence[CheckpointInfo]) -> set[Path]:
        return set().union(*(rule.chosen(found) for rule in self.rules))


@dataclass(frozen=True)
class KeepLast(_Joined):
    """The newest ``count``."""

    count: int = 2

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"KeepLast({self.count}): at least 1")

    def chosen(self, found: Sequence[CheckpointInfo]) -> set[Path]:
        return {each.path for each in found[: self.count]}


@dataclass(frozen=True)
class KeepEverySteps(_Joined):
    """The first one at or after each multiple of ``steps``."""

    steps: int

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"KeepEverySteps({self.steps}): at least 1")

    def chosen(self, found: Sequence[CheckpointInfo]) -> set[Path]:
        return _first_of_each(found, lambda each: each.step // self.steps)


@dataclass(frozen=True)
class KeepEverySeconds(_Joined):
    """The first one in each span of ``seconds``, by the files' times."""

    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ValueError(f"KeepEverySeconds({self.seconds}): more than 0")

    def chosen(self, found: Sequence[CheckpointInfo]) -> set[Path]:
        return _first_of_each(found, lambda each: math.floor(each.time / self.seconds))


@dataclass(frozen=True)
class KeepBest(_Joined):
    """The ``count`` ones with the greatest, or least, number in the program's ``info``.

    Those without this number are not chosen.

    Parameters
    ----------
    key
        Key of ``info``, which has to be a dict.
    """

    key: str
    count: int = 1
    greatest: bool = True

    def chosen(self, found: Sequence[CheckpointInfo]) -> set[Path]:
        scores = [(score, each.path) for each in found if (score := self._score(each.path)) is not None]
        scores.sort(key=lambda pair: pair[0], reverse=self.greatest)
        return {path for _, path in scores[: self.count]}

    def _score(self, path: Path) -> float | None:
        from .state.values import decode
        from .storage.h5file import read_content

        try:
            info = decode(read_content(path).manifest.info)
        except (CheckpointError, OSError):
            return None
        score = info.get(self.key) if isinstance(info, dict) else None
        return float(score) if isinstance(score, (int, float)) and score == score else None


def _first_of_each(found: Sequence[CheckpointInfo], span: Callable[[CheckpointInfo], int]) -> set[Path]:
    first: dict[int, Path] = {}
    for each in found:  # from the newest: the oldest of each span is the last to be set
        first[span(each)] = each.path
    return set(first.values())
