"""Which language reports speak, and what a message says in it."""

from __future__ import annotations

import functools
import gettext
import re
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path

from devwidget.records.errors import UnknownNameError
from devwidget.records.schema.message import Message, fill_template, spoken_by

CATALOGUES = Path(__file__).parent / "catalogues"
DOMAIN = "devwidget"
ENGLISH = "en"

_FACT = re.compile(r"\{(\w+)\}")
_chosen: list[str] = []
_followers: list[Callable[[], None]] = []


def languages() -> tuple[str, ...]:
    """Languages that there are words in: `en`, in which messages are written, and one for each catalogue."""
    return (ENGLISH, *sorted(each.name for each in CATALOGUES.iterdir() if each.is_dir()))


def set_language(name: str | None) -> None:
    """Say reports, findings and the panel in a language from now on; records keep their messages in all of them.

    Args:
        name: `en` or `zh` (Simplified Chinese), also with a country, such as `zh-CN`; None goes by LANGUAGE, LC_ALL,
            LC_MESSAGES and LANG, as gettext does.

    Raises:
        UnknownNameError: for a language without a catalogue.
    """
    if name is None:
        asked = name
    else:
        asked = re.split("[-_.@]", str(name))[0].lower()
    if asked is not None and asked not in languages():
        known = " | ".join(f"devwidget.set_language({each!r})" for each in languages())
        raise UnknownNameError(Message("there is no translation into {name}", name=repr(name)), instead=known)
    before = language()
    _chosen[:] = [] if asked is None else [asked]
    if language() != before:
        for told in _followers:
            told()


def follow(told: Callable[[], None]) -> None:
    """Call this, from now on, whenever reports speak another language than before."""
    _followers.append(told)


def language() -> str:
    """The language that reports speak now."""
    if _chosen:
        return _chosen[0]
    return _by_locale()


def said(text: str) -> str:
    """A message in the language of reports; a text without a translation stays as it is."""
    if language() == ENGLISH:
        return str(text)  # a plain one: what is told is no message any more
    if not isinstance(text, Message):
        if text:
            return template(text)
        return text
    facts = {name: said(fact) if isinstance(fact, Message) else fact for name, fact in text.facts.items()}
    return _closed(template(text.template), facts)


def say(words: str, /, **facts: object) -> str:
    """The words of a template in the language of reports."""
    return said(Message(words, **facts))


def _closed(words: str, facts: Mapping[str, object]) -> str:
    """The template with its facts, and no space where two wide letters meet: templates have it for names in Latin ones."""
    text, end = "", 0
    for found in _FACT.finditer(words):
        text = _joined(_joined(text, words[end : found.start()]), str(facts[found[1]]))
        end = found.end()
    return _joined(text, words[end:])


def _joined(left: str, right: str) -> str:
    if left[-1:] == " " and is_wide(left[-2:-1]) and is_wide(right[:1]):
        return left[:-1] + right
    if right[:1] == " " and is_wide(left[-1:]) and is_wide(right[1:2]):
        return left + right[1:]
    return left + right


def is_wide(letter: str) -> bool:
    """Whether a letter takes two columns of a terminal, as a Chinese one does; "" does not."""
    return letter != "" and unicodedata.east_asian_width(letter) in "WF"


def say_count(one: str, many: str, count: int, shown: str = "") -> str:
    """The template for one thing or for many, as the language wants it, with `{count}`, or what is shown in its place."""
    return fill_template(template(one, many, count), {"count": shown or f"{count:,}"})


def template(one: str, many: str = "", count: int = 1) -> str:
    """A template in the language of reports, its facts not filled in; with `many` for so many things."""
    if language() == ENGLISH:
        if many and count != 1:
            return many
        return one
    catalogue = _catalogue(language())
    if many:
        return catalogue.ngettext(one, many, count)
    return catalogue.gettext(one)


def both(one: str, many: str) -> tuple[str, str]:
    """The templates for one thing and for many, as they are: so a catalogue finds them."""
    return one, many


spoken_by(said)


@functools.cache
def _by_locale() -> str:
    found = gettext.find(DOMAIN, str(CATALOGUES))
    if found:
        return Path(found).parents[1].name
    return ENGLISH


@functools.cache
def _catalogue(name: str) -> gettext.NullTranslations:
    return gettext.translation(DOMAIN, str(CATALOGUES), [name])
