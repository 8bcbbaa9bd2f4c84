"""Hostile texts in every text field of every record: no output gains an element, an attribute, a row or an invisible letter."""

from __future__ import annotations

import dataclasses
import html.parser
import re
import types
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from devwidget.extras import find_home
from devwidget.records.explanation import Explanation
from devwidget.records.finding import Finding
from devwidget.records.loading.json_io import dumps, loads
from devwidget.records.schema.fields import saved_fields
from devwidget.records.schema.record import Record, saved_kinds
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.report.page.exports import export_panel
from devwidget.report.style.safe_text import file_name, plotly_text, safe_text
from tests.every_view import cards, pages, show_all, texts

ROOTS = (Snapshot, Trace, Explanation, Finding, *(saved_kinds[name] for name in ("Plan",) if find_home("records", name)))
HARMLESS = "name"
MARKUP = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\"><b onclick='x'>", "' onmouseover='x", "<!--", "]]>",
    "</script><script>x", "</style><p>", "red; background: url(x)", "<a href='javascript:x'>y</a>", "</pre></td></tr><tr>",
    "&lt;i&gt;", "`<svg/onload=x>`", "</noscript><h1>", "</title><h1>",
)  # fmt: skip
CONTROLS = (
    "\x1b[31mred", "\x1b]8;;http://x\x1b\\link", "\x9b2J", "\a", "\r", "\x00", "\x08", "\x7f", "\u202eabc", "\u2066", "\u200b",
    "\ud800", "\udcff", "\ufeff", "\U000e0041",
)  # fmt: skip
BREAKS = ("\ncuda:9  forged", "\r\ncuda:9  forged", "\x85cuda:9  forged", "\u2028cuda:9  forged", "\x0bcuda:9  forged")


def built(hint: Any, text: str, name: str = "") -> Any:
    """A value of a type with `text` in every text of it; every tuple has one item, every optional is there."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return built(args[0], text, name)
    if origin in (types.UnionType, typing.Union):
        return built(next(each for each in args if each is not types.NoneType), text)
    if origin is typing.Literal:
        return args[0]
    if origin is tuple:
        return (built(args[0], text),) if args[-1] is Ellipsis else tuple(built(each, text) for each in args)
    if hint is str:
        return text
    if dataclasses.is_dataclass(hint):
        return _record(hint, text)
    return hint(-1 if name == "parent" else name not in ("depth", "group"))


def _record(kind: Any, text: str) -> Any:
    hints = typing.get_type_hints(kind, include_extras=True)
    return kind(**{field.name: built(hints[field.name], text, field.name) for field in saved_fields(kind)})


class Structure(html.parser.HTMLParser):
    """Elements with the names of their attributes, and the values of those that are code.

    A bare `code` is left out: backticks in a text make one.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[Any, ...]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if (tag, attrs) == ("code", []):
            return
        self.found.append((tag, *(name if name not in ("style", "class") else (name, value) for name, value in attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag != "code":
            self.found.append(("/", tag))

    def handle_comment(self, data: str) -> None:
        self.found.append(("comment",))


def structures(record: Record) -> list[list[tuple[Any, ...]]]:
    return [Structure(page).found for page in pages(record)]


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from strings(part)


@pytest.mark.parametrize("root", ROOTS)
def test_no_markup_in_any_field_becomes_an_element_or_attribute(root: Any) -> None:
    harmless = structures(built(root, HARMLESS))
    for text in (MARKUP[0], "".join(MARKUP)):
        assert structures(built(root, text)) == harmless


@pytest.mark.parametrize("root", ROOTS)
def test_no_control_or_bidi_letter_reaches_a_terminal_or_a_page(root: Any) -> None:
    record = built(root, "b".join(CONTROLS))
    shown = [*texts(record), *pages(record, whole=False), *(each for card in cards(record) for each in strings(card))]
    unsafe = {letter for each in shown for letter in each if not letter.isprintable() and letter not in "\n\t"}
    assert unsafe == set()


@pytest.mark.parametrize("root", ROOTS)
def test_no_line_break_in_any_field_forges_a_row(root: Any) -> None:
    for text in BREAKS:
        rows = [row for each in texts(built(root, f"a{text}")) for row in each.splitlines()]
        assert not [row for row in rows if row.startswith(("cuda:9", "  cuda:9"))], ascii(text)
    named = [row for each in texts(built(root, "a\ncuda:9")) for row in each.split("\n")]
    assert any("a\\ncuda:9" in row for row in named)


@pytest.mark.parametrize("root", ROOTS)
def test_a_record_of_hostile_texts_is_saved_loaded_and_shown(root: Any) -> None:
    record = built(root, " ".join((*MARKUP, *CONTROLS, *BREAKS)))
    assert loads(dumps(record)) == record
    show_all(record)


@pytest.mark.parametrize("root", [Snapshot, Trace])
def test_figures_hold_no_tags_but_their_own_and_no_formulas(root: Any) -> None:
    own = re.compile(r"</?b>|<br>|<extra></extra>")
    for text in ("".join(MARKUP), "$x$"):
        for card in cards(built(root, text)):
            figures = list(_figures(card))
            said = [each for figure in figures for each in strings({**figure, "words": ""})]
            # A module's path is as it is, for the click; no template shows it.
            assert not [each for each in said if each != text and re.search(r"[<$]", own.sub("", each))], text


def _figures(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict) and "layout" in value:
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _figures(part)


def test_a_spreadsheet_computes_no_cell_of_an_export() -> None:
    table = export_panel(built(Snapshot, "=cmd()"), None, "csv")["text"]
    assert ",=cmd()" not in table
    assert "'=cmd()" in table


def test_each_destination_has_its_own_form() -> None:
    assert safe_text("a\x1b[0m\n\tä 日本\u202e") == "a\\x1b[0m\\n    ä 日本\\u202e"
    assert plotly_text('<a href="x">$y$\n') == '&lt;a href="x"&gt;&#36;y&#36;\\n'
    assert file_name("../../x<y>\x00") == "------x-y--"
