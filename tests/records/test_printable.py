"""Texts that are made of names of the user: no name ends a line of ours, or colours what follows."""

from __future__ import annotations

from devwidget.records.errors import BatchError, DevwidgetError
from devwidget.records.finding import Finding, Fix
from devwidget.records.loading.json_io import dumps, loads
from devwidget.records.schema.message import BELOW, Message, in_row

EVIL = "\x1b[31mred\r\n\u202egone\x07\x9b\u2028"
SAFE = r"\x1b[31mred\r\n\u202egone\x07\x9b\u2028"


def is_safe(text: str, lines: int = 1) -> bool:
    return text.count("\n") < lines and text.replace("\n", "").isprintable()


def test_every_text_of_a_finding_is_one_line() -> None:
    fix = Fix(Message("move {name}", name=EVIL), warns=EVIL)
    found = Finding("wrong-device", "error", EVIL, Message("`{name}` is there", name=EVIL), EVIL, fixes=(fix,), notes=(EVIL,))
    assert all(map(is_safe, (found.headline, found.why, *found.notes, found.fixes[0].summary, found.fixes[0].warns)))
    assert found.headline == f"`{SAFE}` is there"
    assert found.headline.template == "`{name}` is there"
    assert found.module == EVIL  # a path is looked up
    assert loads(dumps(found)) == found


def test_an_error_keeps_the_lines_of_its_template_and_none_of_its_facts() -> None:
    error = BatchError(Message("{name}:\n  {calls}", name=EVIL, calls=in_row([EVIL, "b"], BELOW)), why=Message("{x}", x=EVIL))
    assert error.what == f"{SAFE}:\n  {SAFE}{BELOW}b"
    assert str(error) == f"{SAFE}:\n  {SAFE}{BELOW}b\n  why:  {SAFE}"
    assert str(DevwidgetError("two\nlines\x1b[0m")) == "two\nlines\\x1b[0m"
