"""What a page says itself: every word of its scripts has a translation, and travels with the state of its widget."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from babel.messages.extract import extract_from_dir
from pygments.lexers import JavascriptLexer
from pygments.token import Comment, String, Whitespace

import devwidget
from devwidget.panel.fix_card import CARD
from devwidget.panel.panel import DeviceWidget
from devwidget.panel.sections import section_scripts
from devwidget.report.page.assets import PANEL, add_to_panel, page_words
from devwidget.report.page.html import page_facts
from devwidget.report.style.words import CODES
from tests.browser.handmade_panel import Fake
from tests.language import translate
from tests.views.builders import one_step, split_model

SCRIPTS = sorted(translate.PACKAGE.glob("**/static/*.js"))
SAYING = ("say", "word", "sayCount")
READ_OUT = re.compile(r'(?:title|placeholder|aria-label)="([^"]*)')
PROSE = re.compile(r"[A-Za-z]{2,} [a-z]{2,}")


@pytest.fixture
def chinese() -> Iterator[None]:
    devwidget.set_language("zh")
    yield
    devwidget.set_language("en")


def _texts(script: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Each text of a script with its line, without what is computed in it, and the four words before it."""
    before: list[str] = []
    templates = Templates()
    line = 1
    for kind, value in JavascriptLexer(stripnl=False).get_tokens(script.read_text(encoding="utf-8")):
        if kind in (String.Single, String.Double):
            yield line, value[1:-1], before[-4:]
        elif kind in (String.Backtick, String.Interpol):
            yield from ((line, text, before[-4:]) for text in templates.read(kind, value))
        line += value.count("\n")
        if kind not in Whitespace and kind not in Comment and kind is not String.Backtick:
            before.append(value)


class Templates:
    """What templates say outside of their tags, and in the attributes that are read out."""

    def __init__(self) -> None:
        self.open: list[str] = []  # what is around the next token: "code" in a template, "text" or "tag"

    def read(self, kind: Any, value: str) -> Iterator[str]:
        if kind is String.Interpol:
            self.open.append("code") if value == "${" else self.open.pop()
        elif value != "`":
            yield from self._read_text(value)
        elif self.open and self.open[-1] != "code":
            self.open.pop()
        else:
            self.open.append("text")

    def _read_text(self, value: str) -> Iterator[str]:
        for part in re.split("([<>])", value):
            if part in ("<", ">"):
                self.open[-1] = "tag" if part == "<" else "text"
            elif self.open[-1] == "text":
                yield part
            else:
                yield from READ_OUT.findall(part)


def _is_said(before: list[str]) -> bool:
    """What comes first in a call that says it; of what is counted the words for many, too."""
    return (before[-1:] == ["("] and before[-2] in SAYING) or (before[:2] == ["sayCount", "("] and before[-1] == ",")


def test_scripts_say_nothing_but_words() -> None:
    plain = [
        f"{script.name}:{line}: {text}"
        for script in SCRIPTS
        for line, text, before in _texts(script)
        if PROSE.search(text) and not text.startswith(("dw-", "dw ")) and not _is_said(before)
    ]
    assert plain == []


def test_a_page_is_given_all_that_its_scripts_say(chinese: None) -> None:
    given = {text for files in (CARD, add_to_panel(section_scripts())) for text in page_words(*files)} - set(CODES)
    scripts = [(translate.SCRIPTS, "javascript")]
    found = extract_from_dir(translate.PACKAGE, scripts, translate.OPTIONS, keywords=translate.KEYWORDS)
    said = {text for _, _, texts, _, _ in found for text in ((texts,) if isinstance(texts, str) else texts)}
    assert given >= said - set(CODES)


def test_an_english_page_carries_no_words() -> None:
    assert page_words(*PANEL) == {}


def test_a_chinese_page_says_its_own_words_in_chinese(chinese: None) -> None:
    facts = page_facts(split_model(), one_step())
    assert facts["words"]["No code ran, so nothing was checked."] == "什么都没有运行，因此没有检查。"
    assert facts["words"]["{count} finding"] == "{count} 个问题"
    assert facts["words"]["backward"] == "反向"
    assert facts["traced"]["peaks"]["peaks"][0]["phase"] in ("前向", "反向")


def test_a_panel_that_is_open_speaks_the_new_language() -> None:
    panel = DeviceWidget(Fake().actions())
    panel.run_trace()
    english = panel.view.traced["summary"]
    devwidget.set_language("zh")
    try:
        assert panel.view.words["Trace batch"] == "追踪一个批次"
        assert panel.view.words["filter rows"] == "筛选行"
        assert "个错误" in panel.view.traced["summary"] == panel.view.status["text"]
    finally:
        devwidget.set_language("en")
    assert panel.view.words == {}
    assert panel.view.traced["summary"] == panel.view.status["text"] == english
    panel.close()
