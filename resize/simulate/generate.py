"""Workloads drawn from models."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import numpy as np

from .workload import Job, Workload, sizes_for

DAY, BUCKETS = 86400.0, 48
BUCKET = DAY / BUCKETS
DAY_BEGINS = 11
"""The daily cycle is fitted to days that begin in this half-hour."""
LONGEST_LOG, LONGEST_GAP_LOG = 12.0, 13.0
"""Logs of run times and of gaps between jobs above these are drawn again."""


@dataclass(frozen=True)
class LublinParameters:
    """Parameters for all jobs, batch and interactive, of the model of U. Lublin and D. G. Feitelson.

    "The workload on parallel supercomputers: modeling the characteristics of rigid jobs", 1999, and J. Parallel
    and Distributed Computing 63(11), 2003.

    ``serial`` and ``power_of_two`` are shares of jobs; ``low``, ``prob`` and the distance of the break from the
    top (``break_below``) make the two-stage uniform distribution of log2 of the size; ``gammas`` are (α, β) of
    the two gamma distributions of the log of the run time, mixed with p = ``slope``·nodes + ``offset``; ``gap`` is
    (α, β) of the log of the gap in rush hours, stretched by ``all_day``, and ``cycle`` (α, β) of the daily cycle.
    """

    serial: float = 0.244
    power_of_two: float = 0.576
    low: float = 0.8
    break_below: float = 2.5
    prob: float = 0.86
    gammas: tuple[tuple[float, float], tuple[float, float]] = ((4.2, 0.94), (312.0, 0.03))
    slope: float = -0.0054
    offset: float = 0.78
    gap: tuple[float, float] = (10.2303, 0.4871)
    all_day: float = 1.0225
    cycle: tuple[float, float] = (8.1737, 3.9631)


def lublin(count: int, nodes: int, seed: int, parameters: LublinParameters | None = None) -> Workload:
    """Return rigid jobs drawn from the model of Lublin and Feitelson.

    The model has no estimates of users; limits are one to five times the run time, drawn evenly, and rounded up
    to five minutes, since backfilling needs them and users ask so.

    Parameters
    ----------
    count, nodes
        How many jobs, on a machine of this size.
    seed
        The same seed gives the same jobs.
    """
    model = parameters or LublinParameters()
    dice = random.Random(seed)
    weights = _daily_cycle(*model.cycle)
    jobs = []
    bucket, points, left_over, now = 0, 0.0, 0.0, 0.0
    for number in range(1, count + 1):
        points += math.exp(_below(dice, model.gap[0] * model.all_day, model.gap[1], LONGEST_GAP_LOG)) / BUCKET
        gap = 0.0
        while points > weights[bucket]:
            points -= weights[bucket]
            bucket = (bucket + 1) % BUCKETS
            gap += BUCKET
        used = points / weights[bucket]
        now += max(0.0, gap + BUCKET * (used - left_over))
        left_over = used
        size = _size(dice, model, nodes)
        first = dice.random() <= min(1.0, max(0.0, model.slope * size + model.offset))
        runtime = max(1.0, math.exp(_below(dice, *model.gammas[0 if first else 1], LONGEST_LOG)))
        limit = 300.0 * math.ceil(runtime * dice.uniform(1.0, 5.0) / 300.0)
        jobs.append(Job(number, now, size, runtime, limit))
    return Workload(tuple(jobs), nodes, f"Lublin-Feitelson, seed {seed}")


def _below(dice: random.Random, alpha: float, beta: float, most: float) -> float:
    while True:
        value = dice.gammavariate(alpha, beta)
        if value <= most:
            return value


def _size(dice: random.Random, model: LublinParameters, nodes: int) -> int:
    draw, high = dice.random(), math.log2(nodes) if nodes > 1 else 0.0
    if draw <= model.serial or high < model.low:
        return 1
    middle = max(model.low, high - model.break_below)
    exponent = dice.uniform(model.low, middle) if dice.random() <= model.prob else dice.uniform(middle, high)
    if draw <= model.serial + model.power_of_two:
        exponent = float(math.floor(exponent + 0.5))
    return max(1, min(nodes, int(2.0**exponent + 0.5)))


def _daily_cycle(alpha: float, beta: float) -> list[float]:
    """Return the weight of each half-hour of the day, mean 1: the gamma density, wrapped around the day's begin."""
    x = np.linspace(0.0, DAY_BEGINS + BUCKETS + 1.0, 60001)[1:]
    density = np.exp((alpha - 1) * np.log(x) - x / beta - math.lgamma(alpha) - alpha * math.log(beta))
    total = np.concatenate(([0.0], np.cumsum((density[1:] + density[:-1]) / 2 * (x[1] - x[0]))))
    edges = np.interp(np.arange(DAY_BEGINS - 0.5, DAY_BEGINS + BUCKETS + 0.6), x, total)
    weights = [0.0] * BUCKETS
    for place, weight in enumerate(np.diff(edges)):
        weights[(DAY_BEGINS + place - 1) % BUCKETS] = float(weight)
    mean = sum(weights) / BUCKETS
    return [max(each / mean, 1e-6) for each in weights]


def amdahl(
    count: int,
    nodes: int,
    seed: int,
    *,
    load: float = 1.5,
    mean_work: float = 20_000.0,
    parallel: tuple[float, float] = (0.95, 0.9999),
    factor: tuple[float, float] = (1.2, 3.0),
) -> Workload:
    """Return jobs after Amdahl's law, all able to be malleable, as studies of malleable scheduling draw them.

    Least, preferred and largest size are where the efficiency is 0.95, 0.8 and 0.5. A rigid job asks as users do
    today, for the peak: a size drawn between preferred and largest.

    Parameters
    ----------
    load
        Work asked for by rigid jobs over what the machine offers while jobs arrive; above 1 is crowded.
    mean_work
        Mean node-seconds of a job on one node; drawn exponentially.
    parallel
        The parallel fraction is drawn evenly between these.
    factor
        The time limit is the run time times a factor drawn between these.
    """
    dice = random.Random(seed)
    drawn = []
    for _ in range(count):
        fraction = dice.uniform(*parallel)
        serial = 1 - fraction
        least, preferred, most = sizes_for(fraction, nodes)
        asked = dice.randint(preferred, most)
        work = dice.expovariate(1 / mean_work) + mean_work / 20
        runtime = work * (serial + fraction / asked)
        drawn.append((asked, runtime, runtime * dice.uniform(*factor), (least, preferred, most), fraction))
    mean_gap = sum(asked * runtime for asked, runtime, *_ in drawn) / max(1, count) / (nodes * load)
    now = 0.0
    jobs = []
    for number, (asked, runtime, limit, (least, preferred, most), fraction) in enumerate(drawn, 1):
        jobs.append(Job(number, now, asked, runtime, limit, tuple(range(least, most + 1)), preferred, fraction))
        now += dice.expovariate(1 / mean_gap)
    return Workload(tuple(jobs), nodes, f"Amdahl recipe, seed {seed}")
