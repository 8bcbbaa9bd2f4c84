"""Templates of pages, in which every text of a model or a file is escaped."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from devwidget.language.speaking import language, say
from devwidget.report.style.safe_text import Markup, escape_html, safe_block

if TYPE_CHECKING:
    import jinja2


def render(name: str, **facts: Any) -> Markup:
    """The template `name.j2` with its facts."""
    return Markup(_environment().get_template(f"{name}.j2").render(facts, language=language()))


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2  # slow: imported only to make a page

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("devwidget", "report/page/templates"),
        autoescape=True,
        finalize=_make_safe,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters["attributes"] = _write_attributes
    made.globals.update(say=say, kind_of=lambda part: type(part).__name__)
    return made


def _make_safe(value: Any) -> Any:
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return safe_block(value)
    return value


def _write_attributes(attributes: dict[str, str]) -> Markup:
    return Markup("".join(f' {name}="{escape_html(value)}"' for name, value in attributes.items() if value))
