"""Named values that travel with a run beside its arrays."""

from __future__ import annotations

from typing import Any, ClassVar

from .ckpt import ValueItem


class Value:
    """A replicated JSON value: every rank holds the same, and changes it in the same way.

    Attributes
    ----------
    name : str
    value : object
        Anything that JSON can hold: None, bool, int, float, str, list, dict with text keys.
        Assign to it, or change it in place. Saved at each checkpoint; ranks that hold different
        values then are an error that names the value.
    """

    kind: ClassVar[str] = "value"

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.value = value

    def item(self) -> ValueItem:
        return ValueItem(self.value)

    def __repr__(self) -> str:
        return f"Value({self.name!r}, {self.value!r})"
