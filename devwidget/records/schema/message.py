"""Message: words for the user that remember their template and its facts, for another language; texts made safe to print."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

ROWS = {", ": "{first}, {second}", "; ": "{first}; {second}", " · ": "{first} · {second}"}
"""What `in_row` says of two parts, by what stands between them."""
_FACT = re.compile(r"\{(\w+)\}")


class Message(str):
    """English text, as any text is; a report may say its template in another language, with the same facts.

    Attributes:
        template: the English words, with `{name}` for each fact; what a catalogue of translations is asked for.
        facts: name -> text or number, or a message that is a part of this one.
    """

    __slots__ = ("facts", "template")

    template: str
    facts: dict[str, Any]

    def __new__(cls, template: str, /, **facts: object) -> Message:
        """The words of a template.

        Raises:
            KeyError: for a fact that the template names and nobody gives.
        """
        kept = {name: fact if isinstance(fact, (str, int)) else str(fact) for name, fact in facts.items()}
        message = super().__new__(cls, fill_template(template, kept))
        message.template, message.facts = template, kept
        return message

    @classmethod
    def of(cls, count: int, one: str, many: str, /, **facts: object) -> Message:
        """The words of one of two templates: for one thing, or for several."""
        return cls(one if count == 1 else many, **facts)

    def __reduce__(self) -> tuple[Callable[..., Message], tuple[str, dict[str, Any]]]:
        return _make_message, (self.template, self.facts)


_speakers: list[Callable[[str], str]] = []


def spoken_by(speaker: Callable[[str], str]) -> None:
    """Have texts of errors said by this function, of a layer above: records know no language."""
    _speakers[:] = [speaker]


def in_language(text: str) -> str:
    """A text in the language of reports; as it is where no report was loaded."""
    if _speakers:
        return _speakers[0](text)
    return text


def fill_template(template: str, facts: Mapping[str, object]) -> str:
    """The template with its facts; no `str.format`, which would follow attributes that the template of a file names."""
    return _FACT.sub(lambda found: str(facts[found[1]]), template)


def change_facts(text: str, change: Callable[[str], str]) -> str:
    """A text through `change`; of a message each fact that is text, so that its words stay known."""
    if not isinstance(text, Message):
        return change(text)
    facts = {name: change_facts(fact, change) if isinstance(fact, str) else fact for name, fact in text.facts.items()}
    return Message(text.template, **facts)


def listed(parts: Iterable[str]) -> str:
    """`cpu and cuda:0`: a message, unless there is one part alone."""
    said, *others = parts
    for part in others:
        said = Message("{first} and {second}", first=said, second=part)
    return said


def in_row(parts: Iterable[str], between: str = ", ") -> str:
    """`rank 1, rank 3`: a message, unless there is one part alone or none; empty ones are left out."""
    said, *others = [part for part in parts if part] or [""]
    for part in others:
        said = Message(ROWS[between], first=said, second=part)
    return said


def out_of_row(text: str) -> Iterator[str]:
    """The parts that `in_row` was given; of any other text itself."""
    if isinstance(text, Message) and text.template in ROWS.values():
        yield from out_of_row(text.facts["first"])
        yield from out_of_row(text.facts["second"])
    else:
        yield text


def _make_message(template: str, facts: dict[str, Any]) -> Message:
    return Message(template, **facts)


_BREAKS = frozenset("\n\t")


class Lines(str):
    """Several lines on purpose, each of which is safe."""

    __slots__ = ()

    @classmethod
    def of(cls, lines: Iterable[str], between: str = "\n") -> Lines:
        """Safe lines, with what stands between them."""
        return cls(between.join(map(escape_line, lines)))


def escape_line(text: str) -> str:
    """A text made safe for one line: no name in it can end the line, nor colour what follows."""
    if text.isprintable() or isinstance(text, Lines):
        return text
    return "".join(_escape_letter(letter) for letter in text.replace("\t", "    "))


def escape_block(text: str) -> str:
    """As `escape_line`, with line breaks and tabs left as they are."""
    if text.isprintable():
        return text
    return "".join(letter if letter in _BREAKS else _escape_letter(letter) for letter in text)


def escape_sentence(text: str) -> str:
    """A text of a record or an error, as one line where it was made of others: only a template of ours has line breaks."""
    if text.isprintable():
        return text
    return change_facts(text, escape_line)


def escape_paragraph(text: str) -> str:
    """A text made safe as `escape_line` does; one that is no message may have several lines."""
    if isinstance(text, Message):
        return escape_sentence(text)
    return escape_block(text)


def _escape_letter(letter: str) -> str:
    """A letter, if it is seen as itself; else its escape. Spaces of all widths, and letters of private fonts, are."""
    if letter.isprintable() or unicodedata.category(letter) in ("Zs", "Co"):
        return letter
    return letter.encode("unicode_escape").decode("ascii")
