"""What is known of a program from its earlier runs: kept by run, merged as sets, weighed when asked.

A book holds entries; an entry is a program with one class of input on one kind of machine; in it is a record of each
run. Merging two books is the union of their records, and of two records of one run the later counts: so it can be done
in any order and any number of times. What follows from the records (speeds, durations, what comes next) is worked out
when asked for, older runs weighing less.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from .. import words
from ..samples import clean
from ..speed import Estimate, Speed
from ..view import Ahead, CostSample, Rate
from .looks import WHOLE, Look, merged

FORMAT = 1
KIND = "dmr model"
HALF_LIFE = 90 * 86400.0
"""A run this many seconds older weighs half as much."""
MOST_RUNS = 50
"""Newest runs that `Book.pruned` keeps of an entry."""
MOST_OCCURRENCES = 1000
LATE_STEPS, LATE_SHARE = 2, 0.05
"""A phase may last so many steps, or such a share of its length, longer than it did, and be the same."""


class KnowledgeError(ValueError):
    """A model can't be read; the message says what is wrong in it."""


@dataclass(frozen=True, order=True)
class Key:
    """What a model is of. Any of them may be empty: not told."""

    program: str
    input: str = ""
    machine: str = ""

    def __str__(self) -> str:
        return " · ".join(each for each in (self.program, self.input, self.machine) if each)


@dataclass(frozen=True)
class AtSize:
    """A phase at one size in one run. ``memory`` is the most bytes on a node, ``cpu`` a share; None where unknown.

    ``look`` is mean and scatter of each signal by which it is recognised (see `.looks.Look`), ``seen`` its samples.
    """

    nodes: int
    seconds_per_step: float
    steps: int
    cpu: float | None = None
    memory: float | None = None
    look: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    seen: int = 0


@dataclass(frozen=True)
class Occurrence:
    """A phase as it came in a run: from its first step to the one after its last."""

    phase: str
    start: int
    end: int


@dataclass(frozen=True)
class RunRecord:
    """What one run taught. ``time`` is the unix time of its end, or of the last look at it."""

    run: str
    time: float
    steps: int | None = None
    phases: Mapping[str, tuple[AtSize, ...]] = field(default_factory=dict)
    order: tuple[Occurrence, ...] = ()
    costs: tuple[CostSample, ...] = ()
    waits: tuple[tuple[int, float], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "time": self.time,
            "steps": self.steps,
            "phases": {name: [asdict(each) for each in sizes] for name, sizes in sorted(self.phases.items())},
            "order": [[each.phase, each.start, each.end] for each in self.order],
            "costs": [asdict(each) for each in self.costs],
            "waits": [list(each) for each in self.waits],
        }


@dataclass(frozen=True)
class Prediction:
    """Seconds a step of a phase at a size, from earlier runs, and what is to be said about it.

    ``caveats`` names every way in which this goes beyond what was seen; empty only where it does not.
    """

    estimate: Estimate
    confidence: float
    caveats: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """All runs of one key, oldest first."""

    key: Key
    runs: tuple[RunRecord, ...] = ()

    def rates(self, phase: str | None = None) -> tuple[Rate, ...]:
        """Return the speeds of one or of all phases, oldest first."""
        return tuple(
            Rate(each.nodes, each.seconds_per_step, each.steps, name)
            for run in self.runs
            for name, sizes in run.phases.items()
            if phase is None or name == phase
            for each in sizes
        )

    @property
    def phases(self) -> tuple[str, ...]:
        """Names of the phases, as they come in the newest run that knows."""
        found = dict.fromkeys(each.phase for run in reversed(self.runs) for each in run.order)
        return tuple(dict.fromkeys([*found, *(name for run in self.runs for name in run.phases)]))

    def sizes(self, phase: str) -> tuple[int, ...]:
        """Return the sizes at which a phase was seen."""
        return tuple(sorted({each.nodes for run in self.runs for each in run.phases.get(phase, ())}))

    def looks(self, now: float) -> tuple[Look, ...]:
        """Return what the phases that nobody declared look like, newer runs counting more."""
        found = merged(
            (weight, Look(name, each.nodes, *_unzipped(each.look), each.seen))
            for weight, run in zip(self.weights(now), self.runs, strict=True)
            for name, sizes in run.phases.items()
            for each in sizes
            if each.look
        )
        # A run in which no phases were told apart is a mixture of those that others found.
        return tuple(each for each in found if each.phase != WHOLE) or found

    def weights(self, now: float) -> tuple[float, ...]:
        """Return how much each run counts."""
        return tuple(0.5 ** (max(0.0, now - each.time) / HALF_LIFE) for each in self.runs)

    def confidence(self, phase: str, nodes: int, now: float) -> float:
        """Return from 0 to 1 how well the speed of a phase at a size is known: by runs, their age and their scatter."""
        pairs = [
            (weight, each.seconds_per_step)
            for weight, run in zip(self.weights(now), self.runs, strict=True)
            for each in run.phases.get(phase, ())
            if each.nodes == nodes
        ]
        total = sum(weight for weight, _ in pairs)
        if total <= 0:
            return 0.0
        mean = sum(weight * value for weight, value in pairs) / total
        scatter = math.sqrt(sum(weight * (value - mean) ** 2 for weight, value in pairs) / total) / mean
        return total / (total + 1) / (1 + 10 * scatter)

    def predict(self, phase: str, nodes: int, now: float, input: str | None = None) -> Prediction | None:
        """Return what earlier runs say of a phase at a size, None when they know nothing of it.

        Parameters
        ----------
        input
            Class of the input that it is wanted for; None for the entry's own.
        """
        seen = self.sizes(phase)
        estimate = Speed((), phase, self.rates(phase)).at(nodes)
        if estimate is None:
            return None
        caveats = []
        if nodes not in seen:
            sizes = ", ".join(map(str, seen))
            where = "between" if seen[0] < nodes < seen[-1] else "outside"
            caveats.append(f"{words.nodes(nodes)} is {where} the sizes seen ({sizes})")
        if input is not None and input != self.key.input:
            caveats.append(f"seen with input {self.key.input or 'not told'!r}, wanted for {input!r}")
        newest = max(each.time for each in self.runs if phase in each.phases)
        if now - newest > HALF_LIFE:
            caveats.append(f"last seen {(now - newest) / 86400:.0f} days ago")
        near = min(seen, key=lambda size: abs(math.log(size / nodes)))
        confidence = self.confidence(phase, near, now) / (1 + 2 * abs(math.log2(near / nodes)))
        return Prediction(estimate, confidence if not caveats else min(confidence, 0.5), tuple(caveats))

    def outlook(self, step: int, phase: str | None, now: float, since: int | None = None) -> tuple[Ahead, ...]:
        """Return the phases from the present one on, as the run that fits best had them; empty where none fits.

        A run fits in which the same phase was on at this step; else the newest one in which the phase came at all,
        moved so that the phase begins at ``since``.
        """
        weights = self.weights(now)
        fitting = [
            (weight, place, run.order)
            for weight, run in zip(weights, self.runs, strict=True)
            for place, each in enumerate(run.order)
            if each.start <= step < each.end and phase in (None, each.phase)
        ]
        if not fitting:  # the program has not said yet that the phase is over
            fitting = [
                (weight, place, run.order)
                for weight, run in zip(weights, self.runs, strict=True)
                for place, each in enumerate(run.order)
                if each.phase == phase and 0 <= step - each.end <= max(LATE_STEPS, LATE_SHARE * (each.end - each.start))
            ]
        total = sum(weights)
        if fitting:
            weight, place, order = max(fitting, key=lambda each: each[0])
            same = sum(each[0] for each in fitting)
            confidence = same / total * same / (same + 0.25)
            return tuple(Ahead(each.phase, each.start, each.end, confidence) for each in order[place:])
        if phase is None or since is None:
            return ()
        for weight, run in reversed(list(zip(weights, self.runs, strict=True))):
            places = [place for place, each in enumerate(run.order) if each.phase == phase]
            if places:
                place = min(places, key=lambda each: abs(run.order[each].start - since))
                by = since - run.order[place].start
                confidence = 0.5 * weight / (weight + 0.25)
                moved = [Ahead(each.phase, each.start + by, each.end + by, confidence) for each in run.order[place:]]
                if moved[0].end <= step:  # it lasts longer than it did
                    moved[0] = replace(moved[0], end=step + 1)
                return tuple(moved)
        return ()


@dataclass(frozen=True)
class Book:
    """Entries by key."""

    entries: Mapping[Key, Entry] = field(default_factory=dict)

    def entry(self, key: Key) -> Entry | None:
        """Return the entry of exactly this key."""
        return self.entries.get(key)

    def nearest(self, key: Key) -> tuple[Entry, tuple[str, ...]] | None:
        """Return the entry that fits best, and in what it differs; None when the program is not known.

        The same machine counts more than the same input.
        """
        near = [each for each in self.entries.values() if each.key.program == key.program and each.runs]
        if not near:
            return None
        best = max(
            near,
            key=lambda each: (
                each.key.machine == key.machine, each.key.input == key.input, each.runs[-1].time, each.key,
            ),
        )  # fmt: skip
        caveats = []
        if best.key.machine != key.machine:
            caveats.append(f"from another machine ({best.key.machine or 'not told'})")
        if best.key.input != key.input:
            caveats.append(f"from another input ({best.key.input or 'not told'})")
        return best, tuple(caveats)

    def with_run(self, key: Key, record: RunRecord) -> Book:
        """Return the book with a run added, or brought up to date."""
        return self.merged(Book({key: Entry(key, (record,))}))

    def merged(self, other: Book) -> Book:
        """Return the union of both: associative, commutative, and the same when done again."""
        found = dict(self.entries)
        for key, entry in other.entries.items():
            records = {each.run: each for each in (found[key].runs if key in found else ())}
            for each in entry.runs:
                records[each.run] = _later(records[each.run], each) if each.run in records else each
            found[key] = Entry(key, tuple(sorted(records.values(), key=lambda each: (each.time, each.run))))
        return Book({key: found[key] for key in sorted(found)})

    def without(self, keys: Iterable[Key]) -> Book:
        """Return the book without some entries."""
        gone = set(keys)
        return Book({key: each for key, each in self.entries.items() if key not in gone})

    def pruned(self, most: int = MOST_RUNS) -> Book:
        """Return the book with the newest runs of each entry alone."""
        return Book({key: replace(each, runs=each.runs[-most:]) for key, each in self.entries.items()})

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": KIND,
            "format": FORMAT,
            "entries": [
                {**asdict(key), "runs": {each.run: each.to_json() for each in entry.runs}}
                for key, entry in sorted(self.entries.items())
            ],
        }

    @classmethod
    def from_json(cls, found: Any) -> Book:
        """Read a book back. Fields that this version does not know are passed over.

        Raises
        ------
        KnowledgeError
        """
        if not isinstance(found, dict) or found.get("kind") != KIND:
            raise KnowledgeError(f"this is no model: it has no \"kind\": \"{KIND}\"")
        if found.get("format") != FORMAT:
            raise KnowledgeError(f"the model is of format {found.get('format')!r}; this version reads format {FORMAT}")
        book = cls()
        try:
            for each in found["entries"]:
                key = Key(str(each["program"]), str(each.get("input", "")), str(each.get("machine", "")))
                runs = tuple(_record(str(run), record) for run, record in each["runs"].items())
                book = book.merged(cls({key: Entry(key, runs)}))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise KnowledgeError(f"the model is damaged: {error!r}") from None
        return book


def record_of(
    run: str,
    time: float,
    phases: Mapping[str, Sequence[AtSize]],
    order: Sequence[Occurrence],
    *,
    steps: int | None = None,
    costs: Iterable[CostSample] = (),
    waits: Iterable[tuple[int, float]] = (),
) -> RunRecord:
    """Return the record of a run, with one speed a phase and size."""
    kept = {}
    for name, sizes in phases.items():
        each_size = {each.nodes: each for each in sizes}
        speeds = clean([Rate(each.nodes, each.seconds_per_step, each.steps, name) for each in sizes], (), name).samples
        kept[name] = tuple(
            replace(each_size[each.nodes], seconds_per_step=each.seconds, steps=each.steps) for each in speeds
        )
    return RunRecord(run, time, steps, kept, tuple(order[:MOST_OCCURRENCES]), tuple(costs), tuple(waits))


def _unzipped(look: Mapping[str, tuple[float, float]]) -> tuple[dict[str, float], dict[str, float]]:
    return {name: each[0] for name, each in look.items()}, {name: each[1] for name, each in look.items()}


def _later(one: RunRecord, other: RunRecord) -> RunRecord:
    return max(one, other, key=lambda each: (each.time, json.dumps(each.to_json(), sort_keys=True)))


def _record(run: str, found: Mapping[str, Any]) -> RunRecord:
    phases = {
        str(name): tuple(
            AtSize(
                int(each["nodes"]), _positive(each["seconds_per_step"]), int(each["steps"]), _number(each.get("cpu")),
                _number(each.get("memory")), _look(each.get("look") or {}), int(each.get("seen") or 0),
            )
            for each in sizes
        )
        for name, sizes in found["phases"].items()
    }  # fmt: skip
    costs = tuple(
        CostSample(
            int(each["nodes"]), int(each.get("bytes", 0)),
            _number(each.get("save")), _number(each.get("launch")), _number(each.get("load")),
        )
        for each in found.get("costs", ())
    )
    steps = found.get("steps")
    return RunRecord(
        run, float(found["time"]), None if steps is None else int(steps), phases,
        tuple(Occurrence(str(name), int(start), int(end)) for name, start, end in found.get("order", ())),
        costs, tuple((int(nodes), float(seconds)) for nodes, seconds in found.get("waits", ())),
    )  # fmt: skip


def _look(found: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    look = {str(name): (float(mean), float(scatter)) for name, (mean, scatter) in found.items()}
    if not all(math.isfinite(each) for pair in look.values() for each in pair):
        raise ValueError("a look that is not finite")
    return look


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _positive(value: Any) -> float:
    number = float(value)
    if not 0 < number < math.inf:
        raise ValueError(f"{value!r} is no time of a step")
    return number
