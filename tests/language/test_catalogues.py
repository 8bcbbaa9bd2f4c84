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
HEADLINE = 3  # of the arguments of a finding; behind it comes why
PLACE_OF_SUMMARY = {"Fix": 0, "fix": 0, "mended": 1, "without_move": 1, "cast_where_used": 3}


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """Every file of the package, parsed once."""
    return {file: ast.parse(file.read_text(encoding="utf-8")) for file in sorted(translate.PACKAGE.rglob("*.py"))}


@functools.cache
def messages() -> tuple[str | tuple[str, str], ...]:
    """What a catalogue is asked for."""
    return tuple(translate.messages())


@pytest.fixture(params=FILES, ids=LANGUAGES)
def file(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_no_message_lacks_its_translation(file: Path) -> None:
    translated = {message.id: message.string for message in translate.read(file)}
    assert [message for message in messages() if not any(translated.get(message) or "")] == []


def test_every_message_is_seen_by_the_catalogues() -> None:
    """Not in the braces of an f-string, where nobody looks for it, nor as one of two words."""
    known = {each for message in messages() for each in ([message] if isinstance(message, str) else message)}
    unseen = [
        f"{file.relative_to(translate.PACKAGE)}:{node.lineno}"
        for file, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("say", "Message") and node.args
        for each in ast.walk(node.args[0])
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value not in known
    ]
    assert unseen == []


def test_no_translation_has_lost_its_message(file: Path) -> None:
    assert {message.id for message in translate.read(file) if message.id} == set(messages())


def test_no_translation_waits_for_a_reader(file: Path) -> None:
    """One that is called fuzzy is not compiled: its message would be English."""
    assert [message.id for message in translate.read(file) if message.id and message.fuzzy] == []


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
        assert all(map(MIXED.search, ("显存,", "在cuda上", "张量(显存)", "共 3， 个")))


def _texts_of_findings(tree: ast.AST) -> Iterator[ast.expr]:
    """What rules write into the fields that a user reads."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func).rpartition(".")[2]
        if called in PLACE_OF_SUMMARY and len(node.args) > PLACE_OF_SUMMARY[called]:
            yield node.args[PLACE_OF_SUMMARY[called]]
        if called in ("Finding", "finding_of", "Fix"):
            yield from (keyword.value for keyword in node.keywords if keyword.arg in ("headline", "why", "notes", "summary"))
        if called == "Finding":
            yield from node.args[HEADLINE : HEADLINE + 2]


def _plain(text: ast.expr) -> bool:
    """A text that is written out and is no message: nobody could translate it."""
    if isinstance(text, ast.Tuple):
        return any(map(_plain, text.elts))
    if isinstance(text, ast.IfExp):
        return _plain(text.body) or _plain(text.orelse)
    return isinstance(text, ast.JoinedStr) or (isinstance(text, ast.Constant) and bool(text.value))


def test_rules_say_nothing_but_messages() -> None:
    plain = [
        f"{file.relative_to(translate.PACKAGE)}:{text.lineno}"
        for file, tree in trees().items()
        for text in (_texts_of_findings(tree) if translate.PACKAGE / "rules" in file.parents else ())
        if _plain(text)
    ]
    assert plain == []


ERRORS = ("DevwidgetError", "BatchError", "SimulationError", "UnreadableError", "NoKernel", "refusing")


def _texts_of_errors(tree: ast.AST) -> Iterator[ast.expr]:
    """What is wrong and why, also under a name; what would have been right may be code."""
    for text in _given_to_errors(tree):
        yield text
        if isinstance(text, ast.Name):
            named = (node for node in ast.walk(tree) if isinstance(node, ast.Assign) and len(node.targets) == 1)
            yield from (node.value for node in named if ast.unparse(node.targets[0]) == text.id)


def _given_to_errors(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ERRORS:
            yield from node.args[:1]
            yield from (keyword.value for keyword in node.keywords if keyword.arg == "why")


def test_errors_say_nothing_but_messages() -> None:
    plain = [
        f"{file.relative_to(translate.PACKAGE)}:{text.lineno}"
        for file, tree in trees().items()
        for text in _texts_of_errors(tree)
        if _plain(text)
    ]
    assert plain == []
