"""Static files as text: ES modules joined into one, as a widget carries exactly one; the words they say; plotly.js."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from importlib import resources

from devwidget.language.speaking import ENGLISH, language, template
from devwidget.report.style.palette import page_hues
from devwidget.report.style.words import CODES

PANEL = (
    "words.js", "base.js", "parts.js", "rows.js", "filter.js", "outline.js", "tables.js", "detail.js", "tree.js", "figure.js",
    "timeline.js", "header.js", "edits.js", "findings.js", "apply.js", "side_bar.js", "verdict.js",
    "compared.js", "devices.js", "tabs.js", "sections.js", "panel_widget.js",
)  # fmt: skip
PANEL_STYLES = ("base.css", "tree.css", "panel.css")

_IMPORT = re.compile(r'^import [^;]* from "([^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(async )?(function|const|class) )", re.MULTILINE)
_TEXT = r'("(?:[^"\\]|\\.)*")'
_SAID = re.compile(rf"\b(?:say|word)\({_TEXT}")
_COUNTED = re.compile(rf"\bsayCount\({_TEXT}, {_TEXT}")


def files_of_extra(name: str, *files: str) -> tuple[str, ...]:
    """Return files in the folder `static` of an extra, which `join_modules` and `static_text` accept as core files."""
    return tuple(f"extras/{name}/static/{file}" for file in files)


def add_to_panel(scripts: Iterable[str]) -> tuple[str, ...]:
    """Return the files of a panel with sections of extras. Their scripts come before the widget that opens them."""
    return (*PANEL[:-1], *scripts, PANEL[-1])


@functools.cache
def join_modules(*names: str) -> str:
    """The files in this order as one ES module, after the libraries that they import and the colours that they paint with.

    Imports between them are dropped, so top-level names must differ.

    Files stay text, never paths: a path would make anywidget watch it, and the watcher keeps every widget alive.
    """
    sources = [static_text(name) for name in names]
    parts = []
    if any("HUES" in source for source in sources):
        parts.append(f"const HUES = {json.dumps(page_hues())};")
    if any(not path.startswith(".") for path in _IMPORT.findall("\n".join(sources))):
        parts.append(static_text("preact/libraries.js"))
    parts += (_strip_source(_EXPORT.sub("", _IMPORT.sub("", source))) for source in sources)
    return "\n".join(parts)


def _strip_source(source: str) -> str:
    """Without indentation and comment lines: the page needs neither, and every panel carries the text."""
    lines = filter(None, map(str.strip, source.splitlines()))
    return "\n".join(line for line in lines if not line.startswith(("//", "/** @")))


@functools.cache
def static_text(name: str) -> str:
    """One file of `panel/static`, or one that `files_of_extra` names."""
    path = name if name.startswith("extras/") else f"panel/static/{name}"
    return resources.files("devwidget").joinpath(*path.split("/")).read_text(encoding="utf-8")


def page_words(*files: str) -> dict[str, str]:
    """Template -> translation, for all that a widget of these files may say; {} in English, in which they are written."""
    words: dict[str, str] = {}
    if language() == ENGLISH:
        return words
    source = join_modules(*files)
    for text in (*map(json.loads, _SAID.findall(source)), *CODES):
        words[text] = template(text)
    for counted in _COUNTED.findall(source):
        one, many = map(json.loads, counted)
        words[one], words[many] = template(one, many, 1), template(one, many, 2)
    return words


@functools.cache
def packed_plotly() -> bytes:
    """plotly.js with lines and bars alone, as gzip; `panel/static/plotly/README.md` says which."""
    return resources.files("devwidget").joinpath("panel", "static", "plotly", "plotly-basic.min.js.gz").read_bytes()
