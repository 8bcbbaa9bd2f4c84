"""A page without script around what a notebook shows of an answer."""

from __future__ import annotations

from devwidget.language.speaking import language
from devwidget.report.style.safe_text import Markup, element


def static_page(title: str, body: Markup) -> str:
    """One page that stands alone, light or dark as its reader is."""
    head = element(
        "head", Markup('<meta charset="utf-8">'), element("title", title), style(":root { color-scheme: light dark }")
    )
    return f"<!DOCTYPE html>\n{element('html', head, element('body', body), lang=language())}\n"


def style(rules: str) -> Markup:
    """Rules of CSS as an element."""
    return element("style", Markup(rules))
