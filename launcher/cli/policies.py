"""A policy and its options, as command lines give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from . import EXIT_USAGE, fail

if TYPE_CHECKING:
    from ...resize.policy import Policy


def read_options(pairs: Sequence[str]) -> dict[str, str]:
    """Return what several ``--policy-option KEY=VALUE`` give."""
    options = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            fail(f"--policy-option {pair!r} is not KEY=VALUE", EXIT_USAGE)
        options[key] = value
    return options


def make_policy(name: str, options: Mapping[str, str]) -> Policy:
    """Return the policy; without such a one, or with options that it does not know, the command ends in a line."""
    from ...resize.policy import PolicyError, load_policy

    try:
        made = load_policy(name, options)
    except PolicyError as error:
        fail(str(error), EXIT_USAGE)
    if name == "deadline" and not options.get("within"):
        fail("--policy deadline needs its time from the run's begin: --policy-option within=2:00:00", EXIT_USAGE)
    return made
