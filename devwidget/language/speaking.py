"""Choose the language of reports and translate messages."""

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
    """Return the available languages: `en`, in which messages are written, and one for each catalogue."""
    return (ENGLISH, *sorted(each.name for each in CATALOGUES.iterdir() if each.is_dir()))


def set_language(name: str | None) -> None:
    """Set the language of reports, findings and panels. Saved records can be shown in any language.

    Args:
        name: `en` or `zh` (Simplified Chinese), also with a country, such as `zh-CN`; None reads LANGUAGE, LC_ALL, LC_MESSAGES
            and LANG, as gettext does.

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
        for callback in _followers:
            callback()


def follow(callback: Callable[[], None]) -> None:
    """Call this function whenever the language of reports changes."""
    _followers.append(callback)


def language() -> str:
    """Return the current language of reports."""
    if _chosen:
        return _chosen[0]
    return _by_locale()


def said(text: str) -> str:
    """Return a message in the language of reports; a text without a translation is returned unchanged."""
    if language() == ENGLISH:
        return str(text)  # a plain string: a translated text is no longer a message
    if not isinstance(text, Message):
        if text:
            return template(text)
        return text
    facts = {name: said(fact) if isinstance(fact, Message) else fact for name, fact in text.facts.items()}
    return _closed(template(text.template), facts)


def say(words: str, /, **facts: object) -> str:
    """Return the filled template in the language of reports."""
    return said(Message(words, **facts))


def _closed(words: str, facts: Mapping[str, object]) -> str:
    """Return the filled template, without spaces between two wide letters: templates have spaces around Latin names."""
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
    """Return whether a letter takes two columns of a terminal, as Chinese letters do; False for ""."""
    return letter != "" and unicodedata.east_asian_width(letter) in "WF"


def say_count(one: str, many: str, count: int, shown: str = "") -> str:
    """Return the singular or plural template in the language of reports, filled with `{count}`, or with the text shown in its
    place.
    """
    return fill_template(template(one, many, count), {"count": shown or f"{count:,}"})


def template(one: str, many: str = "", count: int = 1) -> str:
    """Return a template in the language of reports, not filled in. With `many`, return the form for `count`."""
    if language() == ENGLISH:
        if many and count != 1:
            return many
        return one
    catalogue = _catalogue(language())
    if many:
        return catalogue.ngettext(one, many, count)
    return catalogue.gettext(one)


def both(one: str, many: str) -> tuple[str, str]:
    """Return the singular and plural templates unchanged, so that a catalogue finds them."""
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
