"""Every message has its translation, about the same facts, and what is compiled is what is written."""

from __future__ import annotations

import ast
import functools
import gettext
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from tests.language import translate

FILES = translate.catalogues()
LANGUAGES = [file.parents[1].name for file in FILES]
HEADLINE = 1  # of the arguments of what a rule has found
ERRORS = ("DevwidgetError", "BatchError", "SimulationError", "UnreadableError", "NoKernel", "refusing")
PLACE_OF_SUMMARY = {"Fix": 0, "fix": 0, "mended": 1, "cast_where_used": 3}


@functools.cache
def messages() -> tuple[str | tuple[str, str], ...]:
    """What a catalogue is asked for."""
    return tuple(translate.messages())


@functools.cache
def _templates() -> set[str]:
    """The same, one by one."""
    return {each for message in messages() for each in ([message] if isinstance(message, str) else message)}


@functools.cache
def _translated() -> frozenset[Path]:
    """The files whose messages are translated."""
    return frozenset(translate.PACKAGE / name for name in translate.files())


@pytest.fixture(params=FILES, ids=LANGUAGES)
def file(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_no_message_lacks_its_translation(file: Path) -> None:
    """One that is called fuzzy is not compiled: its message would be English."""
    translated = {message.id: message.string for message in translate.read(file) if not message.fuzzy}
    assert [message for message in messages() if not any(translated.get(message) or "")] == []


def test_no_translation_has_lost_its_message(file: Path) -> None:
    assert {message.id for message in translate.read(file) if message.id} == set(messages())


def test_translations_name_the_facts_of_their_messages(file: Path) -> None:
    """In braces, and those of Python's own command line behind a `%`."""

    def facts(texts: str | tuple[str, ...]) -> set[str]:
        return set(re.findall(r"\{\w+\}|%\(\w+\)[srd]|%s", " ".join(texts) if isinstance(texts, tuple) else texts))

    assert [message.id for message in translate.read(file) if facts(message.id) != facts(message.string)] == []


def test_what_gettext_reads_is_what_is_written(file: Path) -> None:
    """But for the headers, which name who compiled it."""

    def read(compiled: IO[bytes]) -> dict[Any, str]:
        catalog = dict(vars(gettext.GNUTranslations(compiled))["_catalog"])
        assert catalog.pop("")
        return catalog

    with file.with_suffix(".mo").open("rb") as kept:
        assert read(kept) == read(io.BytesIO(translate.compiled(translate.read(file)))), "run `make words`"


HAN = r"[\u4e00-\u9fff]"
MIXED = re.compile(rf"{HAN}[,;:!?(]|[,;:!?] ?{HAN}|{HAN}[A-Za-z`]|[A-Za-z`]{HAN}|[，。；：、）] |  ?[，。；：、（]")
"""A mark of the other script, or a word of it without a space."""


def test_translations_keep_to_the_marks_and_spaces_of_their_script(file: Path) -> None:
    if file.parents[1].name == "zh":
        written = (
            message.string if message.pluralizable else (message.string,) for message in translate.read(file) if message.id
        )
        assert [text for texts in written for text in texts if MIXED.search(text)] == []


def _called(call: ast.Call) -> str:
    """The last name of what is called."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _calls(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def _plain(text: ast.expr) -> bool:
    """A text that is written out and is no message: nobody could translate it."""
    if isinstance(text, ast.Tuple):
        return any(map(_plain, text.elts))
    if isinstance(text, ast.IfExp):
        return _plain(text.body) or _plain(text.orelse)
    return isinstance(text, ast.JoinedStr) or (isinstance(text, ast.Constant) and bool(text.value))


def _unseen(tree: ast.AST) -> Iterator[ast.expr]:
    """Messages in the braces of an f-string, where no catalogue can look for them, or as one of two words."""
    for call in _calls(tree):
        if _called(call) in ("say", "Message") and call.args:
            parts = (each for each in ast.walk(call.args[0]) if isinstance(each, ast.Constant))
            yield from (each for each in parts if isinstance(each.value, str) and each.value not in _templates())


def _texts_of_findings(tree: ast.AST) -> Iterator[ast.expr]:
    """What rules write into the fields that a user reads."""
    for call in _calls(tree):
        called = _called(call)
        if called in PLACE_OF_SUMMARY and len(call.args) > PLACE_OF_SUMMARY[called]:
            yield call.args[PLACE_OF_SUMMARY[called]]
        if called in ("Found", "Fix", "rule"):
            yield from (keyword.value for keyword in call.keywords if keyword.arg in ("why", "notes", "no_edit", "summary"))
        if called == "Found":
            yield call.args[HEADLINE]


def _texts_of_errors(tree: ast.AST) -> Iterator[ast.expr]:
    """What is wrong and why, also under a name; what would have been right may be code."""
    for call in _calls(tree):
        if _called(call) in ERRORS:
            for text in (*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "why")):
                yield text
                if isinstance(text, ast.Name):
                    named = (node for node in ast.walk(tree) if isinstance(node, ast.Assign) and len(node.targets) == 1)
                    yield from (node.value for node in named if getattr(node.targets[0], "id", "") == text.id)


@functools.cache
def _untranslatable() -> dict[str, list[str]]:
    """Where each kind of text is no message that catalogues see; every file of the package is parsed once."""
    found: dict[str, list[str]] = {"messages": [], "rules": [], "errors": []}
    for file in sorted(translate.PACKAGE.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        texts = {
            "messages": [*_unseen(tree)] if file in _translated() else [],
            "errors": [],
        }
        if translate.PACKAGE / "cli" not in file.parents:  # commands are English
            texts["errors"] = [text for text in _texts_of_errors(tree) if _plain(text)]
        if translate.PACKAGE / "rules" in file.parents:
            texts["rules"] = [text for text in _texts_of_findings(tree) if _plain(text)]
        for kind, those in texts.items():
            found[kind] += [f"{file.relative_to(translate.PACKAGE)}:{text.lineno}" for text in those]
    return found


@pytest.mark.parametrize("kind", ["messages", "rules", "errors"])
def test_whatever_is_said_is_a_message_that_catalogues_see(kind: str) -> None:
    assert _untranslatable()[kind] == []
