"""Templates of pages, in which every text of a model or a file is escaped."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

from devwidget.language.speaking import language, say
from devwidget.report.style.safe_text import Markup, draw_prose, escape_html, safe_block

if TYPE_CHECKING:
    import jinja2


def render(name: str, **facts: Any) -> Markup:
    """The template `name.j2` with its facts."""
    return Markup(_environment().get_template(f"{name}.j2").render(facts, language=language()))


def draw_macro(name: str, macro: str, /, *args: Any, **facts: Any) -> Markup:
    """Call a macro of the template `name.j2`; line breaks between elements are left out."""
    drawn = getattr(_environment().get_template(f"{name}.j2").module, macro)(*args, **facts)
    return Markup(_BETWEEN_ELEMENTS.sub("><", drawn).strip())


_BETWEEN_ELEMENTS = re.compile(r">\n\s*<")


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2  # slow: imported only to make a page

    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader("devwidget", at) for at in ("report/page/templates", "")]),
        autoescape=True,
        finalize=_make_safe,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters.update(attributes=_write_attributes, prose=draw_prose, spaced=_keep_spaces)
    made.globals.update(say=say, kind_of=lambda part: type(part).__name__)
    return made


def _make_safe(value: Any) -> Any:
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return safe_block(value)
    return value


def _write_attributes(attributes: dict[str, str]) -> Markup:
    return Markup("".join(f' {name}="{escape_html(value)}"' for name, value in attributes.items() if value))


def _keep_spaces(text: str) -> Markup:
    """A text whose indent shows."""
    return Markup(escape_html(text).replace("  ", "&nbsp;&nbsp;"))
