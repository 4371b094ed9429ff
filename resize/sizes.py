"""The sizes, in nodes, that a run may take, as a user writes them.

=================  =====================================  ======================
written            means                                  as in
=================  =====================================  ======================
``4``              that size alone                        sbatch ``--nodes=4``
``2:16``           every size from 2 to 16                torchrun ``--nnodes``
``2-16``           the same                               sbatch ``--nodes``
``2:16:2``         from 2 to 16 in steps of 2
``1-15:4``         the same: 1, 5, 9, 13                  sbatch, from 23.11
``4,8,16``         these sizes; items may be ranges       sbatch, from 23.11
``1:16:pow2``      powers of two from 1 to 16
``1:16:div48``     divisors of 48 from 1 to 16
``2:``             from 2 to the limit                    (limit: the partition)
=================  =====================================  ======================
"""

from __future__ import annotations

from collections.abc import Iterable

LARGEST = 1_000_000
"""No size above this is taken: it is a slip of the pen."""
MOST = 100_000
"""No more sizes than this in one range."""


QUEUED_SPAN = 4
"""For the turn of a waiting job Slurm keeps as many nodes as the most that it takes: a wide range keeps others out."""


class SizesError(ValueError):
    """The text doesn't name a set of sizes; the message says what is wrong in it and what is understood."""


_HELP = "write sizes as 4, 2:16, 2:16:2, 4,8,16, 1:16:pow2 or 1:16:div48"


def parse_sizes(text: str, limit: int | None = None) -> tuple[int, ...]:
    """Return the sizes that ``text`` names, ascending and each once.

    Parameters
    ----------
    text
        As in the table above. White space is ignored.
    limit
        The largest size that can be had, such as the partition's nodes; closes an open range. Sizes
        above it that are named explicitly are an error, since a wish that can't be met pends for ever.

    Raises
    ------
    SizesError
        When the text is malformed, names no size, or names one above ``limit``.
    """
    words = "".join(text.split())
    if not words:
        raise SizesError(f"no sizes given; {_HELP}")
    found: set[int] = set()
    for item in words.split(","):
        found.update(_item(item, text, limit))
    sizes = tuple(sorted(found))
    if limit is not None and sizes[-1] > limit:
        raise SizesError(f"sizes {text!r} go up to {sizes[-1]} nodes, but at most {limit} can be had; lower it")
    return sizes


def _item(item: str, text: str, limit: int | None) -> Iterable[int]:
    if not item:
        raise SizesError(f"an empty item in the sizes {text!r}; {_HELP}")
    low_text, *rest = item.replace("-", ":", 1).split(":") if not item.startswith("-") else [item]
    if len(rest) > 2:
        raise SizesError(f"{item!r} in the sizes {text!r} has too many colons; {_HELP}")
    low = _size(low_text, item, text)
    if not rest:
        return (low,)
    if rest[0] == "":
        if limit is None:
            raise SizesError(f"{item!r} has no maximum and the number of nodes isn't known here; write a maximum")
        high = limit
    else:
        high = _size(rest[0], item, text)
    if high < low:
        raise SizesError(f"in the sizes {text!r} the minimum {low} is larger than the maximum {high}")
    rule = rest[1] if len(rest) == 2 else "1"
    sizes = _range(low, high, rule, text)
    if len(sizes) > MOST:
        raise SizesError(f"the sizes {text!r} are {len(sizes)} different ones, more than {MOST}; use a step or pow2")
    if not sizes:
        raise SizesError(f"the sizes {text!r} are empty: {rule!r} leaves none from {low} to {high}")
    return sizes


def _range(low: int, high: int, rule: str, text: str) -> range | list[int]:
    if rule == "pow2":
        return [1 << k for k in range(high.bit_length()) if low <= 1 << k <= high]
    if rule.startswith("div"):
        number = _size(rule[3:], rule, text)
        return [n for n in range(low, min(high, number) + 1) if number % n == 0]
    return range(low, high + 1, _size(rule, rule, text))


def _size(digits: str, item: str, text: str) -> int:
    if not (digits.isascii() and digits.isdigit()):
        shown = f"{digits!r} in {item!r}" if digits != item else repr(item)
        raise SizesError(f"{shown} of the sizes {text!r} is not a whole number; {_HELP}")
    if len(digits) > 9 or not 1 <= int(digits) <= LARGEST:
        raise SizesError(f"{digits} in the sizes {text!r} is outside 1 to {LARGEST}")
    return int(digits)


def format_sizes(sizes: Iterable[int]) -> str:
    """Return the shortest text of `parse_sizes`'s language that names these sizes.

    Raises
    ------
    SizesError
        When there are none.
    """
    values = sorted(set(sizes))
    if not values:
        raise SizesError("no sizes to write")
    if len(values) == 1:
        return str(values[0])
    steps = {b - a for a, b in zip(values, values[1:], strict=False)}
    low, high = values[0], values[-1]
    if len(steps) == 1 and len(values) > 2:
        step = steps.pop()
        return f"{low}:{high}" if step == 1 else f"{low}:{high}:{step}"
    if len(values) > 2 and values == _range(low, high, "pow2", ""):
        return f"{low}:{high}:pow2"
    return f"{low}:{high}" if high == low + 1 else ",".join(map(str, values))


def next_larger(sizes: tuple[int, ...], nodes: int) -> int | None:
    """Return the smallest allowed size above ``nodes``, None when there is none."""
    return min((size for size in sizes if size > nodes), default=None)


def next_smaller(sizes: tuple[int, ...], nodes: int) -> int | None:
    """Return the largest allowed size below ``nodes``, None when there is none."""
    return max((size for size in sizes if size < nodes), default=None)


def span_to_queue(sizes: tuple[int, ...], held: int) -> tuple[int, int]:
    """Return least and most nodes of a job that has to queue again and may take any allowed size.

    From the least up to four times that, or to what the run held if that was more.
    """
    most = max(size for size in sizes if size <= max(QUEUED_SPAN * sizes[0], held, sizes[0]))
    return min(sizes[0], held), max(most, held)
