"""Base class of all saved records, and how they are written. Other packages register how they are shown (`@presents`)."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from devwidget._version import __version__
from devwidget.records.schema.fields import OneOf, saved_fields
from devwidget.records.schema.message import Message
from devwidget.records.schema.paths import write_text

if TYPE_CHECKING:
    import pathlib

    import pandas as pd
    import plotly.graph_objects as go


SCHEMA_VERSION = 1
"""Number of changes that older versions cannot read. A new field with a default is not counted: they ignore it."""


def dumps(record: Any) -> str:
    """Return a Snapshot, a Trace, a Finding, an Explanation or a Plan as JSON text.

    Messages are written as texts; `messages` has the template and the facts of each. A `SHARED` field is written as an index
    into `shared`, so that what a thousand ranks have in common is written once.

    The text is ASCII, because a name may hold what UTF-8 cannot, such as half of a surrogate pair.
    """
    messages: dict[str, tuple[str, dict[str, str | int]]] = {}
    shared: list[Any] = []
    places: dict[int, int] = {}

    def refer_to(part: Any) -> dict[str, int]:
        place = places.setdefault(id(part), len(shared))
        if place == len(shared):
            shared.append(part)
        return {"$": place}

    def list_fields(part: Any) -> dict[str, Any]:
        found = {name: getattr(part, name) for name in _saved_names(part.__class__)}
        for name in _text_fields(part.__class__):
            _note_messages(found[name], messages)
        if part is record:
            return found
        if isinstance(part, OneOf):
            return {"is": type(part).__name__, **found}
        return shorten(part.__class__, found)

    def shorten(kind: type, found: dict[str, Any]) -> dict[str, Any]:
        """Write a part that shares fields with others without default values, because there may be many."""
        names = _shared_names(kind)
        if not names:
            return found
        defaults = _defaults(kind)
        short = {}
        for name, value in found.items():
            if name not in defaults or value != defaults[name]:
                short[name] = value
        for name in names:
            if name in short:
                short[name] = refer_to(short[name])
        return short

    head = {"devwidget": SCHEMA_VERSION, "written_by": __version__, "record": type(record).__name__}
    # In order: `shared` and `messages` are whole when they are written.
    data = json.dumps({**head, "data": record}, default=list_fields)
    if shared:
        tables = {"shared": shared, "messages": messages}
    else:
        tables = {"messages": messages}
    return f"{data[:-1]}, {json.dumps(tables, default=list_fields)[1:]}"


def _note_messages(value: Any, messages: dict[str, tuple[str, dict[str, str | int]]]) -> None:
    if isinstance(value, Message):
        for fact in value.facts.values():  # inner messages come first
            _note_messages(fact, messages)
        messages[str(value)] = value.template, value.facts
    elif isinstance(value, tuple):
        for part in value:
            _note_messages(part, messages)


@functools.cache
def _saved_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in saved_fields(kind))


@functools.cache
def _shared_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in saved_fields(kind) if field.metadata.get("is_shared"))


@functools.cache
def _defaults(kind: type) -> dict[str, Any]:
    return {field.name: field.default for field in saved_fields(kind) if field.default is not dataclasses.MISSING}


@functools.cache
def _text_fields(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in saved_fields(kind) if field.type in ("str", "tuple[str, ...]"))


saved_kinds: dict[str, type] = {}
"""Name in a file -> record class, for all imported records."""
_presenters: dict[tuple[str, type], Callable[..., Any]] = {}
_not_loaded: list[Callable[[], object]] = []


def presents(form: str, record: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function that shows `record` as a `form`: `text`, `html` (a page), `notebook`, `frame`, `plotly` or `llm`."""

    def keep(function: Callable[..., Any]) -> Callable[..., Any]:
        _presenters[form, record] = function
        return function

    return keep


def presented_by(load: Callable[[], object]) -> None:
    """Call `load` before a record is first shown: it imports the modules with `@presents`."""
    _not_loaded.append(load)


class Record:
    """Base class with text, JSON, data frame and HTML of a record."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        # Called twice: `dataclass(slots=True)` makes the class anew, and the second is the one that stays.
        saved_kinds[cls.__name__] = cls

    def __str__(self) -> str:
        return str(self._show_as("text"))

    def to_html(self, path: str | pathlib.Path | None = None) -> str:
        """Return a standalone HTML page, and write it to `path` if given.

        Raises:
            NotImplementedError: if this record has no HTML form.
            UnwritableError: if the file cannot be written.
        """
        page = str(self._show_as("html"))
        if path is not None:
            write_text(path, page, '.to_html("page.html")')
        return page

    def to_frame(self, part: str = "") -> pd.DataFrame:
        """Return a pandas data frame; `part` names the table if a record has several.

        Raises:
            ValueError: if there is no such table.
        """
        frame: pd.DataFrame = self._show_as("frame", part)
        return frame

    def to_plotly(self, part: str = "") -> go.Figure:
        """Return a plotly figure; `part` names the figure if a record has several.

        Raises:
            NotImplementedError: if this record has no figure.
            DevwidgetError: if there is no such figure, or plotly is not installed.
        """
        figure: go.Figure = self._show_as("plotly", part)
        return figure

    def save(self, path: str | pathlib.Path) -> pathlib.Path:
        """Write the record as JSON; `devwidget.load` reads it back, on any machine.

        Raises:
            UnwritableError: if the file cannot be written.
        """
        return write_text(path, dumps(self), '.save("record.json")')

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """Return what a notebook shows: the text, and HTML for a record with a notebook form."""
        bundle = {"text/plain": str(self)}  # the text first: it loads all forms
        if ("notebook", type(self)) in _presenters:
            bundle["text/html"] = str(self._show_as("notebook"))
        return bundle

    def _repr_llm_(self) -> str:
        """Return what a language model reads, for hosts that ask for it; IPython takes the exception for "nothing"."""
        return str(self._show_as("llm"))

    def _show_as(self, form: str, *args: Any) -> Any:
        while _not_loaded:
            _not_loaded[-1]()
            _not_loaded.pop()
        for kind in type(self).__mro__:
            if (form, kind) in _presenters:
                return _presenters[form, kind](self, *args)
        raise NotImplementedError(f"{type(self).__name__} has no {form} form")
