"""Texts of models and files made harmless for where they go: one function for each destination."""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar, cast

from devwidget.language.speaking import is_wide
from devwidget.records.schema.message import escape_block, escape_line

P = ParamSpec("P")
T = TypeVar("T")

safe_text = escape_line
"""For one line of a terminal."""
safe_block = escape_block
"""For a page, whose elements keep texts apart: line breaks and tabs stay."""


def columns_of(text: str) -> int:
    """Columns that a text takes in a terminal: a Chinese letter takes two."""
    if text.isascii():
        return len(text)
    return len(text) + sum(map(is_wide, text))


def text_of(lines: Iterable[str]) -> str:
    """A report from its lines. Only here a line ends, so that no name can add one."""
    return "\n".join(map(safe_text, lines))


def displays_safely(make: Callable[P, T]) -> Callable[P, T]:
    """Have a function return its result with every text, however deep, made safe for cards and figures by `safe_block`."""

    @functools.wraps(make)
    def make_safely(*args: P.args, **kwargs: P.kwargs) -> T:
        return cast(T, _make_displayable(make(*args, **kwargs)))

    return make_safely


def _make_displayable(value: Any) -> Any:
    if isinstance(value, str):
        return safe_block(value)
    if isinstance(value, dict):
        return {_make_displayable(key): _make_displayable(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_make_displayable(part) for part in value]
    return value


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()

    def __html__(self) -> Markup:
        return self


def escape_html(text: str) -> Markup:
    """Escape a text for HTML, between tags and in quoted attributes. Markup is returned unchanged."""
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(safe_block(text)))


def draw_prose(text: str) -> Markup:
    """A sentence whose names between backticks are code."""
    if text.count("`") % 2:
        return escape_html(text)
    return Markup(re.sub("`([^`]*)`", r"<code>\1</code>", escape_html(text)))


def join_html(*parts: str) -> Markup:
    """Parts of a page, one behind the other."""
    return Markup("".join(map(escape_html, parts)))


def plotly_text(text: str) -> str:
    """A text made safe for figures: plotly reads some tags, some entities (not `&quot;`), and formulas between dollars."""
    return html.escape(safe_text(text), quote=False).replace("$", "&#36;")


def file_name(text: str) -> str:
    """A name for a file: letters and digits, all else a dash."""
    return re.sub(r"\W", "-", text)[:80] or "model"


def spreadsheet_cell(value: Any) -> Any:
    """A text for a CSV file: one that a spreadsheet would compute is led by an apostrophe."""
    text = safe_block(value) if isinstance(value, str) else value
    if isinstance(text, str) and text.startswith(("=", "+", "-", "@", "\t")):
        return f"'{text}"
    return text
