"""What extras add to a panel: a section of a test's own in place of theirs."""

import pytest

from devwidget.panel import sections
from devwidget.panel.panel import DeviceWidget
from devwidget.panel.sections import Section
from tests.browser.handmade_panel import Fake


class Note(Section):
    name = "note"
    scripts = ()
    methods = ("write",)
    has_followed = has_closed = False

    def write(self, text):
        self.send({"text": text})

    def follow(self):
        self.has_followed = True

    def sample(self):
        self.send_live({"text": "while a cell runs"})

    def make_head(self):
        return {"title": "its own"}

    def answer_question(self, message):
        return {"note": message["ask"]} if message["ask"] == "note" else None

    def close(self):
        self.has_closed = True


@pytest.fixture
def opened(monkeypatch):
    """Opens a panel with these sections alone."""
    panels = []

    def open_panel(*kinds):
        monkeypatch.setattr(sections, "_sections", list(kinds))
        panels.append(DeviceWidget(Fake().actions()))
        return panels[-1]

    yield open_panel
    for panel in panels:
        panel.close()


def ask(panel, question):
    sent = []
    panel.control.send = sent.append
    panel.control._handle_custom_msg({"id": 1, "ask": question}, [])
    return sent[0]


def test_a_section_draws_follows_and_is_closed_with_its_panel(opened):
    panel = opened(Note)
    note = panel.find_section(Note)
    assert note.has_followed
    assert panel.view.head["title"] == "its own"
    panel.sample_memory()
    assert panel.live.note == {"text": "while a cell runs"}
    panel.close()
    assert note.has_closed


def test_a_method_of_a_section_is_one_of_the_panel(opened):
    panel = opened(Note)
    panel.write("seen")
    assert panel.view.note == {"text": "seen"}
    assert "write" in dir(panel)


def test_a_section_answers_its_questions_and_nobody_those_that_are_unknown(opened):
    panel = opened(Note)
    assert ask(panel, "note")["note"] == "note"
    assert ask(panel, "other")["error"] == "unknown question 'other'"


def test_a_panel_without_sections_has_neither_their_methods_nor_their_scripts(opened):
    panel = opened()
    panel.refresh()
    assert "SECTIONS.push" not in panel.view._esm
    with pytest.raises(AttributeError, match="'DeviceWidget' object has no attribute 'write'"):
        panel.write("unseen")


def test_what_is_shown_is_opened_by_its_class_or_one_above(monkeypatch):
    class Record: ...

    class Special(Record): ...

    monkeypatch.setattr(sections, "_openers", {})

    @sections.opens_panel(Record)
    def open_record(record, open_model):
        return record

    assert sections.find_opener(Special()) is open_record
    assert sections.find_opener(object()) is None
