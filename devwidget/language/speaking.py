"""Which language reports speak, and what a message says in it."""

from __future__ import annotations

import functools
import gettext
from pathlib import Path

from devwidget.records.schema.message import Message, filled

CATALOGUES = Path(__file__).parent / "catalogues"
DOMAIN = "devwidget"
ENGLISH = "en"

_chosen: list[str] = []


def languages() -> tuple[str, ...]:
    """Those that there are words in: `en`, in which messages are written, and one for each catalogue."""
    return (ENGLISH, *sorted(each.name for each in CATALOGUES.iterdir() if each.is_dir()))


def set_language(name: str | None) -> None:
    """Say reports, findings and the panel in a language from now on; records keep their messages in all of them.

    Args:
        name: `en` or `zh` (Simplified Chinese); None goes by LANGUAGE, LC_ALL, LC_MESSAGES and LANG, as gettext does.

    Raises:
        ValueError: for a language without a catalogue.
    """
    if name is not None and name not in languages():
        raise ValueError(f"no words in {name!r}; there are {', '.join(languages())}")
    _chosen[:] = [] if name is None else [name]


def language() -> str:
    """The language that reports speak now."""
    return _chosen[0] if _chosen else _by_locale()


def said(text: str) -> str:
    """A message in the language of reports; a text without a translation stays as it is."""
    if language() == ENGLISH:
        return str(text)  # a plain one: what is told is no message any more
    if not isinstance(text, Message):
        return _catalogue(language()).gettext(text) if text else text
    facts = {name: said(fact) if isinstance(fact, Message) else fact for name, fact in text.facts.items()}
    return filled(_catalogue(language()).gettext(text.template), facts)


def say(template: str, /, **facts: object) -> str:
    """The words of a template in the language of reports."""
    return said(Message(template, **facts))


def say_count(one: str, many: str, count: int) -> str:
    """The template for one thing or for many, as the language wants it, with `{count}`."""
    template = (one if count == 1 else many) if language() == ENGLISH else _catalogue(language()).ngettext(one, many, count)
    return filled(template, {"count": f"{count:,}"})


def both(one: str, many: str) -> tuple[str, str]:
    """The templates for one thing and for many, as they are: so a catalogue finds them."""
    return one, many


@functools.cache
def _by_locale() -> str:
    found = gettext.find(DOMAIN, str(CATALOGUES))
    return Path(found).parents[1].name if found else ENGLISH


@functools.cache
def _catalogue(name: str) -> gettext.NullTranslations:
    return gettext.translation(DOMAIN, str(CATALOGUES), [name])
