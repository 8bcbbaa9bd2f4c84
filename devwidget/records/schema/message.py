"""Messages that keep their template and facts for translation, and escaping of text for output."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import Any

BELOW = "\n        "
ROWS = {mark: f"{{first}}{mark}{{second}}" for mark in (", ", "; ", " · ", BELOW)}
"""Templates of `in_row` for two parts, by separator."""
_FACT = re.compile(r"\{(\w+)\}")


class Message(str):
    """English text that can be translated: a report translates the template and fills in the same facts.

    Attributes:
        template: the English text with `{name}` for each fact; the key in the catalogue of translations.
        facts: name -> text, number, or a message that is part of this one.
    """

    __slots__ = ("facts", "template")

    template: str
    facts: dict[str, Any]

    def __new__(cls, template: str, /, **facts: object) -> Message:
        """Return the filled template.

        Raises:
            KeyError: if a fact of the template is missing.
        """
        kept = {name: fact if isinstance(fact, (str, int)) else str(fact) for name, fact in facts.items()}
        message = super().__new__(cls, fill_template(template, kept))
        message.template, message.facts = template, kept
        return message

    @classmethod
    def of(cls, count: int, one: str, many: str, /, **facts: object) -> Message:
        """Return the message of one of two templates: singular or plural."""
        return cls(one if count == 1 else many, **facts)

    def __reduce__(self) -> tuple[Callable[..., Message], tuple[str, dict[str, Any]]]:
        return _make_message, (self.template, self.facts)


_speakers: list[Callable[[str], str]] = []


def spoken_by(speaker: Callable[[str], str]) -> None:
    """Set the translation function for error texts. Records know no language themselves."""
    _speakers[:] = [speaker]


def in_language(text: str) -> str:
    """Return a text in the language of reports; unchanged if no report was loaded."""
    if _speakers:
        return _speakers[0](text)
    return text


def fill_template(template: str, facts: Mapping[str, object]) -> str:
    """Fill a template with its facts. Does not use `str.format`, which would follow attributes named in a template of a
    file."""
    return _FACT.sub(lambda found: str(facts[found[1]]), template)


def change_facts(text: str, change: Callable[[str], str]) -> str:
    """Apply `change` to a text; for a message, to each fact that is text, so that it can still be translated."""
    if not isinstance(text, Message):
        return change(text)
    facts = {name: change_facts(fact, change) if isinstance(fact, str) else fact for name, fact in text.facts.items()}
    return Message(text.template, **facts)


def listed(parts: Iterable[str]) -> str:
    """Return `cpu and cuda:0` as a message, or the only part."""
    said, *others = parts
    for part in others:
        said = Message("{first} and {second}", first=said, second=part)
    return said


def in_row(parts: Iterable[str], between: str = ", ") -> str:
    """Return `rank 1, rank 3` as a message, or the only part. Empty parts are left out."""
    said, *others = [part for part in parts if part] or [""]
    for part in others:
        said = Message(ROWS[between], first=said, second=part)
    return said


def _make_message(template: str, facts: dict[str, Any]) -> Message:
    return Message(template, **facts)


_BREAKS = frozenset("\n\t")


def escape_line(text: str) -> str:
    """Escape a text for one line: it can neither end the line nor change colours."""
    if text.isprintable():
        return text
    return "".join(_escape_letter(letter) for letter in text.replace("\t", "    "))


def escape_block(text: str) -> str:
    """Escape as `escape_line`, but keep line breaks and tabs."""
    if text.isprintable():
        return text
    return "".join(letter if letter in _BREAKS else _escape_letter(letter) for letter in text)


def escape_sentence(text: str) -> str:
    """Escape a text of a record or an error: the facts of a message as one line; only templates have line breaks."""
    if text.isprintable():
        return text
    return change_facts(text, escape_line)


def escape_paragraph(text: str) -> str:
    """Escape as `escape_line`; a text that is not a message may have several lines."""
    if isinstance(text, Message):
        return escape_sentence(text)
    return escape_block(text)


def _escape_letter(letter: str) -> str:
    """Return a visible letter, else its escape. Spaces of all widths and private-use characters are visible."""
    if letter.isprintable() or unicodedata.category(letter) in ("Zs", "Co"):
        return letter
    return letter.encode("unicode_escape").decode("ascii")
