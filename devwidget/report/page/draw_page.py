"""The parts of a report as a page without script; `shows` makes all forms of a record of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from devwidget.records.schema.record import presents
from devwidget.report.page.templates import render
from devwidget.report.report_parts import Heading, Part, Sentence
from devwidget.report.style.safe_text import Markup, text_of
from devwidget.report.text.draw_markdown import draw_markdown
from devwidget.report.text.draw_text import draw_lines

Build = TypeVar("Build", bound=Callable[..., Iterable[Part]])


def writes(*records: type) -> Callable[[Build], Build]:
    """Register a function that builds the parts of a record: for its text, its Markdown and its page."""

    def keep(build: Build) -> Build:
        for record in records:
            presents("text", record)(lambda each: text_of(draw_lines(build(each))))
            presents("html", record)(lambda each: draw_page(build(each)))
            presents("markdown", record)(lambda each: draw_markdown(build(each)))
        return build

    return keep


def shows(*records: type) -> Callable[[Build], Build]:
    """Register it also for what a notebook shows."""

    def keep(build: Build) -> Build:
        for record in records:
            presents("notebook", record)(lambda each: draw_body(build(each)))
        return writes(*records)(build)

    return keep


def draw_page(parts: Iterable[Part]) -> str:
    """Return a standalone page in the reader's colour scheme. Its title is the verdict, or the first heading."""
    parts = list(parts)
    return render("page.html", title=next(_find_titles(parts), "devwidget"), body=draw_body(parts))


def _find_titles(parts: Iterable[Part]) -> Iterator[str]:
    for part in parts:
        match part:
            case Heading() | Sentence(look="verdict"):
                yield part.text


def draw_body(parts: Iterable[Part]) -> Markup:
    """The parts with their style."""
    return render("report.html", parts=[part for part in parts if part.on != "text"])
