"""Messages are texts, and remember what they were made from, also in a saved file."""

from __future__ import annotations

import json

import pytest

from devwidget.records.finding import Finding, Fix
from devwidget.records.loading.json_io import dumps, loads
from devwidget.records.schema.message import Message, change_facts


def test_a_message_is_its_text() -> None:
    message = Message("`{name}` is on {device}", name="mask", device="cpu")
    assert message == "`mask` is on cpu"
    assert hash(message) == hash("`mask` is on cpu")
    assert (message.template, message.facts) == ("`{name}` is on {device}", {"name": "mask", "device": "cpu"})


def test_a_template_follows_no_attribute_of_a_fact() -> None:
    assert Message("{name.__class__} {0:>99999999999}", name="x") == "{name.__class__} {0:>99999999999}"


def test_a_fact_that_is_missing_is_named() -> None:
    with pytest.raises(KeyError, match="device"):
        Message("on {device}")


def test_changed_facts_keep_the_words() -> None:
    message = Message("{where}; line {line}", where=Message("in {file}", file="a.py"), line=3)
    other = change_facts(message, lambda text: text.replace("a.py", "In[5]"))
    assert isinstance(other, Message)
    assert other == "in In[5]; line 3"
    assert isinstance(other.facts["where"], Message)
    assert other.facts["where"].template == "in {file}"


def _finding() -> Finding:
    where = Message("`{name}` is on {device}", name="mask", device="cpu")
    note = Message("{where}; the others are on {target}", where=where, target="cuda:0")
    fix = Fix(Message("make it on {target}", target="cuda:0"))
    return Finding("wrong-device", "error", "", Message("a headline"), "no message", notes=(note,), fixes=(fix,))


def test_a_saved_finding_gives_its_messages_back() -> None:
    found = loads(dumps(_finding()))
    assert found == _finding()
    note, where = found.notes[0], found.notes[0].facts["where"]
    assert (note.template, where.template) == ("{where}; the others are on {target}", "`{name}` is on {device}")
    assert found.fixes[0].summary.template == "make it on {target}"
    assert type(found.why) is str


def test_a_file_without_messages_still_opens() -> None:
    envelope = json.loads(dumps(_finding()))
    del envelope["messages"]
    assert loads(json.dumps(envelope)) == _finding()


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([], "an object as `messages`"),
        ({"a": ["a", {"x": [1]}]}, "a template and its facts"),
        ({"a": ["{x}", {}]}, "the fact 'x'"),
        ({"a headline": ["another", {}]}, "the words of its message"),
    ],
)
def test_messages_that_are_wrong_are_refused(messages: object, told: str) -> None:
    envelope = json.loads(dumps(_finding())) | {"messages": messages}
    with pytest.raises(ValueError, match=told):
        loads(json.dumps(envelope))
