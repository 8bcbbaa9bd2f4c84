"""The card with an edit: what its page is given to write, and what the card says of what came of it."""

import pytest

from devwidget.panel.actions import CellEdit
from devwidget.panel.fix_card import FixCard
from devwidget.records.errors import DevwidgetError
from devwidget.records.finding import Edit, Fix
from devwidget.report.report_parts import Sentence

EDIT = Edit("<ipython-input-3-abc>", 1, 1, "x = 2", "x = 1")


class Applied:
    """A fix of a cell that must be run again."""

    def __init__(self, fix):
        self.fix, self.files, self.texts, self.works, self.done = fix, (), (), "cell", []
        self.cells = (CellEdit(3, "x = 1", 1, ["x = 1"], ["x = 2"]),)

    def take_effect(self):
        self.done.append("effect")

    def take_back(self):
        self.done.append("back")


@pytest.fixture
def card():
    made = FixCard(lambda: [Sentence("an answer")], Fix("change it", edits=(EDIT,)), Applied)
    made.answers = []
    made.control.send = made.answers.append
    yield made
    made.close()


def ask(card, **question):
    card.control._handle_custom_msg({"id": 1, **question}, [])
    return card.answers[-1]


def test_apply_gives_the_page_the_cells_and_undo_gives_them_back(card):
    assert card.view.buttons == [("apply", "Apply")]
    assert ask(card, ask="apply")["cells"][0]["new"] == ["x = 2"]
    ask(card, ask="written", why="")
    assert "Edited In[3]:1. Run its cell and the cells below it again." in card.view.html
    assert card.view.buttons == [("undo", "Undo")]
    assert ask(card, ask="undo")["back"]
    ask(card, ask="written", why="")
    assert (card._applied.done, card.view.buttons) == (["effect", "back"], [("apply", "Apply")])


def test_a_page_that_cannot_write_the_cell_has_nothing_take_effect(card):
    ask(card, ask="apply")
    ask(card, ask="written", why="Only JupyterLab and Notebook 7 let a panel edit a cell.")
    assert "Only JupyterLab and Notebook 7 let a panel edit a cell. Copy the lines above to In[3]:1." in card.view.html
    assert card._applied.done == []


def test_a_refusal_is_said_in_the_card(card):
    def refuse(fix):
        raise DevwidgetError("line 1 of In[3] has changed")

    card._prepare = refuse
    assert "cells" not in ask(card, ask="apply")
    assert "line 1 of In[3] has changed" in card.view.html


def test_without_an_edit_there_is_no_button():
    card = FixCard(lambda: [Sentence("an answer")], None, Applied)
    assert card.view.buttons == []
    card.close()


def test_a_fix_of_a_file_names_it_on_the_button():
    card = FixCard(list, Fix("change it", edits=(Edit("/home/me/train.py", 1, 1, "x = 2", "x = 1"),)), Applied)
    assert card.view.buttons == [("apply", "Apply to train.py")]
    card.close()
