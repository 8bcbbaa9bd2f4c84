"""Docstrings are what a page of documentation makes of them: sections are read as sections, and name what is there."""

from __future__ import annotations

import importlib.util
import inspect
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
import pytest

import devwidget

FOLDER = Path(str(importlib.util.find_spec("devwidget").origin)).parents[1]  # type: ignore[union-attr]
SECTION = re.compile(r"^(Args|Attributes|Example|Raises|Returns|Yields):$", re.MULTILINE)
FUNCTIONS = [name for name in devwidget.__all__ if inspect.isfunction(getattr(devwidget, name))]


@pytest.fixture(scope="module")
def package() -> griffe.Object:
    loaded = griffe.load("devwidget", search_paths=[FOLDER], docstring_parser="google")
    assert isinstance(loaded, griffe.Object)
    return loaded


def below(owner: griffe.Object) -> Iterator[griffe.Object]:
    """Modules, classes, functions and attributes that are defined in a module or a class, itself included."""
    yield owner
    for member in owner.members.values():
        if isinstance(member, griffe.Object):
            yield from below(member)


def sections(docstring: str | None, parent: griffe.Object | None, kind: str) -> list[Any]:
    parsed = griffe.Docstring(docstring or "", parent=parent, parser="google").parsed
    return [each.value for each in parsed if each.kind.value == kind]


def test_every_docstring_is_read_without_a_warning(package: griffe.Object, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="griffe"):
        for each in below(package):
            if each.docstring is not None:
                assert each.docstring.parsed
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_no_section_is_taken_for_text(package: griffe.Object) -> None:
    for each in below(package):
        for text in sections(each.docstring.value if each.docstring else None, each, "text"):
            assert not SECTION.search(text), f"{each.path}: a blank line is missing above {SECTION.search(text)}"


def test_a_public_function_describes_every_parameter_and_what_it_returns(package: griffe.Object) -> None:
    for name in FUNCTIONS:
        function = getattr(devwidget, name)
        parsed = package[inspect.unwrap(function).__module__.removeprefix("devwidget.")][function.__name__]
        described = {each.name.lstrip("*") for found in sections(function.__doc__, parsed, "parameters") for each in found}
        assert described == set(inspect.signature(function).parameters), name
        returned = [each for found in sections(function.__doc__, parsed, "returns") for each in found]
        assert len(returned) == (name not in ("allow", "set_language")), name  # `allow` is for `with` alone


def test_a_record_describes_each_attribute_once_and_only_what_it_has(package: griffe.Object) -> None:
    for each in below(package["records"]):
        if each.is_class and each.docstring is not None:
            described = [a.name for found in sections(each.docstring.value, each, "attributes") for a in found]
            assert set(described) <= set(each.members), each.path
            assert len(described) == len(set(described)), each.path


def test_what_a_public_function_returns_is_a_public_name() -> None:
    told = [inspect.signature(inspect.unwrap(getattr(devwidget, name))).return_annotation for name in FUNCTIONS]
    of_python = {"None", "Iterator", "Any"}  # what a file holds is known when it is read
    assert set(re.findall(r"\b[A-Z]\w+", " ".join(told))) <= {*devwidget.__all__, *of_python}
