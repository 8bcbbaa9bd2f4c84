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

from devwidget.records.device import DeviceId
from devwidget.records.explanation import Explanation
from devwidget.records.finding import Finding
from devwidget.records.loading.json_io import dumps, loads
from devwidget.records.plan import Plan
from devwidget.records.schema.fields import saved_fields
from devwidget.records.schema.record import Record
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.report.page import content
from devwidget.report.page.exports import export_panel
from devwidget.report.style.safe_text import file_name, html_element, plotly_text, safe_text
from tests.every_view import cards, files, frames, pages, show_all, texts

ROOTS = (Snapshot, Trace, Plan, Explanation, Finding)
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
    """Elements with the names of their attributes, and the values of those that are code."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[Any, ...]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, *(name if name not in ("style", "class") else (name, value) for name, value in attrs)))

    def handle_endtag(self, tag: str) -> None:
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
    for text in MARKUP:
        assert structures(built(root, text)) == harmless, text


@pytest.mark.parametrize("root", ROOTS)
def test_no_control_or_bidi_letter_reaches_a_terminal_or_a_page(root: Any) -> None:
    for text in CONTROLS:
        record = built(root, f"a{text}b")
        shown = [*texts(record), *pages(record, whole=False), *(each for card in cards(record) for each in strings(card))]
        assert all(letter.isprintable() or letter in "\n\t" for each in shown for letter in each), ascii(text)


@pytest.mark.parametrize("root", ROOTS)
def test_no_line_break_in_any_field_forges_a_row(root: Any) -> None:
    for text in BREAKS:
        rows = [row for each in texts(built(root, f"a{text}")) for row in each.splitlines()]
        assert not [row for row in rows if row.startswith(("cuda:9", "  cuda:9"))], ascii(text)
    named = [row for each in texts(built(root, "a\ncuda:9")) for row in each.split("\n")]
    assert any("a\\ncuda:9" in row for row in named)


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("text", [*MARKUP, *CONTROLS, *BREAKS])
def test_a_record_of_hostile_texts_is_saved_loaded_and_shown(root: Any, text: str) -> None:
    record = built(root, text)
    assert loads(dumps(record)) == record
    show_all(record)


@pytest.mark.parametrize("root", [Snapshot, Trace])
def test_figures_hold_no_tags_but_their_own_and_no_formulas(root: Any) -> None:
    own = re.compile(r"</?b>|<br>|<extra></extra>")
    for text in (*MARKUP, "$x$"):
        for card in cards(built(root, text)):
            figures = list(_figures(card))
            said = [each for figure in figures for each in strings({**figure, "words": ""})]
            paths = {text, *(part for figure in figures for part in _paths(figure))}
            assert not [each for each in said if each not in paths and re.search(r"[<$]", own.sub("", each))], text


def _figures(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict) and "layout" in value:
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _figures(part)


def _paths(figure: dict[str, Any]) -> Iterator[str]:
    """Second entries of `customdata`: a module's path, for the click; no template names them."""
    for trace in figure["data"]:
        assert "customdata[1]}" not in trace.get("hovertemplate", "") or trace["meta"] not in (
            "modules",
            "allocated",
            "refused",
        )
        for entry in trace.get("customdata", ()):
            if isinstance(entry, list) and len(entry) == 2:
                yield entry[1]


def test_frames_and_files_hold_the_texts_and_nothing_more() -> None:
    for root in ROOTS:
        for text in MARKUP:
            record = built(root, text)
            for frame in frames(record):
                assert Structure(frame._repr_html_()).found == Structure(frame.replace(text, HARMLESS)._repr_html_()).found
            assert all(isinstance(each, str) for each in files(record))


def test_a_spreadsheet_computes_no_cell_of_an_export() -> None:
    table = export_panel(built(Snapshot, "=cmd()"), None, "csv")["text"]
    assert ",=cmd()" not in table
    assert "'=cmd()" in table


def test_every_card_for_a_page_goes_through_the_one_escape() -> None:
    public = [value for name, value in vars(content).items() if name.endswith(("_content", "_cards")) and callable(value)]
    ours = [each for each in public if each.__module__ == content.__name__ and each.__name__ != "tree_content"]
    assert len(ours) == 9
    assert all(hasattr(each, "__wrapped__") for each in ours)


def test_each_destination_has_its_own_form() -> None:
    assert safe_text("a\x1b[0m\n\tä 日本\u202e") == "a\\x1b[0m\\n    ä 日本\\u202e"
    assert html_element("p", "<b>", html_element("i", "&"), class_='"') == '<p class="&quot;">&lt;b&gt;<i>&amp;</i></p>'
    assert plotly_text('<a href="x">$y$\n') == '&lt;a href="x"&gt;&#36;y&#36;\\n'
    assert file_name("../../x<y>\x00") == "------x-y--"


def test_an_unknown_device_kind_is_no_markup() -> None:
    plan = dataclasses.replace(built(Plan, HARMLESS), devices=(built(Plan, HARMLESS).devices[0],))
    hostile = dataclasses.replace(plan.devices[0], device=DeviceId("<script>alert(1)</script>", 0))
    assert "<script>" not in dataclasses.replace(plan, devices=(hostile,)).to_html()
