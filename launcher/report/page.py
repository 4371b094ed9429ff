"""One self-contained page for one or several runs, by jinja2; drawn by a script of the page's own, without network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from ...resize.words import how_to_install
from . import text, words


class PageError(Exception):
    """The page can't be made; the text says what is missing."""


def page(runs: Sequence[dict[str, Any]]) -> str:
    """Return the page (HTML) for the data of runs, see `.data.report_data`.

    Raises
    ------
    PageError
        When jinja2 is not installed.
    """
    try:
        import jinja2
    except ImportError as error:
        raise PageError(f"a page needs jinja2 ({error}): {how_to_install('report')}") from None
    loader = jinja2.FunctionLoader(_file)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(
        seconds=words.seconds, hours=words.hours, share=words.share, size=words.size, number=words.number,
        right=text.right_size, embedded=embedded,
    )  # fmt: skip
    environment.globals.update(
        ratio=text.ratio, computing_share=text.computing_share, script=_file("report.js"), style=_file("report.css")
    )
    return environment.get_template("report.html").render(runs=runs, first=runs[0])


def embedded(value: Any) -> str:
    """Return JSON that may stand in a script element: nothing in it can end the element, or begin another."""
    found = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return found.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _file(name: str) -> str:
    return (resources.files(__package__) / "templates" / name).read_text(encoding="utf-8")
