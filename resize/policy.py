"""What a policy is, and how one is found by its name."""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from .situation import Rules, Situation

ENTRY_POINTS = "dmr.policies"
"""Group of entry points under which a package offers policies."""


class PolicyError(ValueError):
    """The policy can't be had; the message says what was wrong and which there are."""


@dataclass(frozen=True)
class Proposal:
    """What a policy wants: the size to be at, and why.

    ``cancel`` gives up a successor that waits. ``remarks`` say of single sizes why they were not taken.
    ``limit`` is the time limit in seconds with which a successor fits into the queue, None for the user's own.
    ``facts`` go into the decision's; ``again`` is in how many seconds to ask again at the latest.
    """

    nodes: int
    reason: str
    cancel: bool = False
    remarks: Mapping[int, str] = field(default_factory=dict)
    limit: float | None = None
    facts: Mapping[str, float | str] = field(default_factory=dict)
    again: float | None = None


@dataclass(frozen=True, slots=True)
class Glance:
    """What can be told of the cluster without looking at every job.

    ``missing`` is the least number of nodes that would have to become free for some waiting job to have room,
    None when none waits.
    """

    idle: int
    total: int
    missing: int | None


@runtime_checkable
class Policy(Protocol):
    """Chooses a size. A pure function of the situation: no clock, no I/O, no state.

    A policy may have a method ``may_change(held, sizes, glance) -> bool`` as well. Where it returns False,
    ``propose`` would keep the size whatever else is known; the simulation does not ask then. A policy
    with that method promises, too, that its answer does not change while run and cluster don't.

    Where its attribute ``moldable`` is True, a run that has to queue again, as at its time limit, asks for a range of
    its sizes and takes what is free; else for the size that it had.
    """

    @property
    def name(self) -> str: ...

    @property
    def rules(self) -> Rules: ...

    def propose(self, situation: Situation) -> Proposal:
        """Return the size to be at: one of ``situation.sizes``, or the present one."""


def is_moldable(policy: object) -> bool:
    """Whether a run under this policy takes any of its sizes when it has to queue again."""
    try:
        return getattr(policy, "moldable", False) is True
    except Exception:  # a user's own policy may raise anything
        return False


@dataclass(frozen=True)
class Named:
    """A user's policy that brought no name or no rules of its own."""

    inner: Any
    name: str
    rules: Rules

    @property
    def moldable(self) -> bool:
        return is_moldable(self.inner)

    def propose(self, situation: Situation) -> Proposal:
        proposal: Proposal = self.inner.propose(situation)
        return proposal


_BUILT_IN: dict[str, str] = {
    "cheapest": "goals:Cheapest",
    "deadline": "goals:Deadline",
    "dmr": "simple:Dmr",
    "efficiency": "goals:Efficiency",
    "energy": "goals:Energy",
    "phases": "phases:Phases",
    "queue": "queue:Queue",
    "round": "simple:Round",
    "schedule": "simple:Schedule",
    "static": "simple:Static",
    "window": "goals:Window",
}


def policy_names() -> list[str]:
    """Return the names of all policies that are built in or that installed packages offer."""
    return sorted({*_BUILT_IN, *(each.name for each in metadata.entry_points(group=ENTRY_POINTS))})


def load_policy(
    spec: str = "queue", options: Mapping[str, Any] | None = None, folder: str | None = None
) -> Policy:
    """Return a policy.

    Parameters
    ----------
    spec
        A name (see `policy_names`), or ``module:Class`` of a class of the user's own with a method
        ``propose(situation)``.
    options
        By name: those of `Rules`, and those of the policy's constructor. Text is converted to
        the type of the field that it is for, so that options may come from a command line.
    folder
        Where the module of ``module:Class`` is looked for first; the current one by default.

    Raises
    ------
    PolicyError
        When there is no such policy, or an option is unknown or malformed.
    """
    given = dict(options or {})
    if "rules" in given:
        raise PolicyError("there is no option 'rules': each rule is an option of its own, as dwell")
    names = {each.name for each in dataclasses.fields(Rules)}
    rules = _build(Rules, {key: given.pop(key) for key in list(given) if key in names}, "rules")
    made = _build(_find(spec, folder), {**given, "rules": rules}, spec)
    if isinstance(made, Policy) and isinstance(made.rules, Rules):
        return made
    if not callable(getattr(made, "propose", None)):
        raise PolicyError(f"the policy {spec} has no method propose(situation)")
    return Named(made, str(getattr(made, "name", spec)), rules)


def _find(spec: str, folder: str | None) -> Callable[..., Any]:
    if spec in _BUILT_IN:
        module, _, attribute = _BUILT_IN[spec].partition(":")
        found: Any = getattr(importlib.import_module(f".policies.{module}", __package__), attribute)
    elif ":" in spec:
        module, _, attribute = spec.partition(":")
        try:
            found = _imported(module, os.getcwd() if folder is None else folder)
            where = getattr(found, "__file__", None) or "built in"
            for part in attribute.split("."):
                if not hasattr(found, part):
                    raise AttributeError(f"{module} ({where}) has no {attribute}")
                found = getattr(found, part)
        except Exception as error:  # a user's module may raise anything
            raise PolicyError(f"can't load the policy {spec!r}: {error or repr(error)}") from error
    else:
        entry = next((each for each in metadata.entry_points(group=ENTRY_POINTS) if each.name == spec), None)
        if entry is None:
            known = ", ".join(policy_names())
            raise PolicyError(f"there is no policy {spec!r}; there are {known}, and your own as module:Class")
        try:
            found = entry.load()
        except (ImportError, AttributeError) as error:
            raise PolicyError(f"can't load the policy {spec!r} ({entry.value}): {error}") from error
    if not callable(found):
        raise PolicyError(f"the policy {spec!r} is {found!r}, not a class")
    made: Callable[..., Any] = found
    return made


def _imported(name: str, folder: str) -> ModuleType:
    """Return a module of a folder, else one that is installed: in the order of ``python -m``.

    After that the folder comes last, so that what the module imports later is found, and hides nothing of others.
    """
    sys.path.insert(0, folder)
    try:
        importlib.invalidate_caches()
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)


def _build(make: Callable[..., Any], options: dict[str, Any], what: str) -> Any:
    if dataclasses.is_dataclass(make):
        types = {each.name: str(each.type) for each in dataclasses.fields(make) if each.name != "name"}
        unknown = sorted(set(options) - set(types))
        if unknown:
            known = ", ".join(sorted({*types, *(each.name for each in dataclasses.fields(Rules))} - {"rules"}))
            raise PolicyError(f"the policy {what} has no option {unknown[0]!r}; options are {known}")
        options = {key: _convert(value, types[key], f"{what}: {key}") for key, value in options.items()}
    elif "rules" in options:
        options.pop("rules")
    try:
        return make(**options)
    except PolicyError as error:
        raise PolicyError(f"policy {what}: {error}") from None
    except (TypeError, ValueError) as error:
        raise PolicyError(f"can't make the policy {what} with options {sorted(options)}: {error}") from error


def _convert(value: Any, kind: str, where: str) -> Any:
    if not isinstance(value, str):
        return value
    if value.lower() == "none" and "None" in kind:
        return None
    try:
        if kind.startswith("int"):
            return int(value)
        if kind.startswith("float"):
            return float(value)
    except ValueError:
        raise PolicyError(f"{where}={value!r} is not a number") from None
    if kind.startswith("bool"):
        if value.lower() not in ("yes", "no", "true", "false", "1", "0", "on", "off"):
            raise PolicyError(f"{where}={value!r} is neither yes nor no")
        return value.lower() in ("yes", "true", "1", "on")
    return value
