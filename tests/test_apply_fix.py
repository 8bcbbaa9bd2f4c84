"""A fix in the source of the user: what the page is told to write, what is written here, what live functions do, and back."""

import linecache
import sys
import types

import pytest

from devwidget.apply_fix import Application
from devwidget.records.errors import DevwidgetError
from devwidget.records.finding import Edit, Fix

CELL = "<ipython-input-3-abc>"
RAW = "\n\nimport math\n\ndef scale(x):\n    y = x + 1\n    return y\n\ndef double(x):\n    return 2 * x\n\nlimit = 5\n"
RAN = RAW.lstrip("\n")  # IPython cuts the blank lines at the head of a cell
LINES = RAN.split("\n")


def fix(*edits):
    return Fix("change it", edits=edits)


def replacing(file, old, new):
    line = LINES.index(old) + 1
    return Edit(file, line, line, new, old)


@pytest.fixture
def cell(monkeypatch):
    """A cell that ran third; the names that it has bound."""
    history = types.SimpleNamespace(input_hist_raw=["", "1", "2", RAW, "4"])
    compiler = types.SimpleNamespace(get_code_name=lambda raw, *_: CELL if raw == RAW else "", format_code_name=lambda _: None)
    shell = types.SimpleNamespace(history_manager=history, compile=compiler)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(linecache.cache, CELL, (len(RAN), None, RAN.splitlines(keepends=True), CELL))
    monkeypatch.setattr("devwidget.apply_fix._cells_since", {})
    names = vars(sys.modules["__main__"])
    before = dict(names)
    exec(compile(RAN, CELL, "exec"), names)
    yield names
    names.clear()
    names.update(before)


@pytest.fixture
def program(tmp_path, monkeypatch):
    path = tmp_path / "of_the_user.py"
    path.write_text(RAN)
    monkeypatch.syspath_prepend(tmp_path)
    yield path, __import__("of_the_user")
    del sys.modules["of_the_user"]


def test_the_page_is_told_the_lines_of_the_cell_as_it_is_seen(cell):
    (told,) = Application(fix(replacing(CELL, "    y = x + 1", "    y = x + 10"))).cells
    assert (told.number, told.raw) == (3, RAW)
    assert RAW.split("\n")[told.first - 1 : told.first - 1 + len(told.old)] == told.old
    assert told.new == ["def scale(x):", "    y = x + 10", "    return y"]


def test_an_edit_that_inserts_has_lines_to_be_found_by(cell):
    line = LINES.index("    return y") + 1
    (told,) = Application(fix(Edit(CELL, line, line - 1, "    y += 1"))).cells
    assert told.old == ["    y = x + 1", "    return y"]
    assert told.new == ["    y = x + 1", "    y += 1", "    return y"]


def test_a_live_function_does_what_its_new_text_says_and_then_again_what_the_old_one_said(cell):
    scale, applied = cell["scale"], Application(fix(replacing(CELL, "    y = x + 1", "    z = 9\n    y = x + z + 1")))
    assert applied.works == "now"
    applied.take_effect()
    assert (scale(1), cell["double"].__code__.co_firstlineno) == (11, LINES.index("def double(x):") + 2)
    assert "z = 9" in "".join(linecache.getlines(CELL))
    applied.take_back()
    assert (scale(1), cell["double"].__code__.co_firstlineno) == (2, LINES.index("def double(x):") + 1)
    assert "".join(linecache.getlines(CELL)) == RAN


def test_a_second_fix_of_one_cell_finds_the_text_that_the_first_one_left(cell):
    Application(fix(replacing(CELL, "    y = x + 1", "    y = x + 10"))).take_effect()
    second = Application(fix(replacing(CELL, "    return 2 * x", "    return 3 * x")))
    assert "    y = x + 10" in second.cells[0].raw.split("\n")
    second.take_effect()
    assert (cell["scale"](0), cell["double"](1)) == (10, 3)


def test_a_line_outside_of_functions_works_when_its_cell_is_run_again(cell):
    applied = Application(fix(replacing(CELL, "limit = 5", "limit = 6")))
    assert applied.works == "cell"
    applied.take_effect()
    assert cell["limit"] == 5
    assert applied.texts == (RAW.replace("limit = 5", "limit = 6"),)


def test_a_cell_that_this_session_did_not_run_is_refused(cell):
    sys.modules["IPython"].get_ipython().history_manager.input_hist_raw[3] = "3"
    with pytest.raises(DevwidgetError, match="was not run in this session"):
        Application(fix(replacing(CELL, "limit = 5", "limit = 6")))


def test_a_cure_in_words_is_refused():
    with pytest.raises(DevwidgetError, match="has no edit"):
        Application(Fix("think about it"))


def test_a_file_is_written_with_a_backup_which_takes_its_place_again(program):
    path, module = program
    applied = Application(fix(replacing(str(path), "    y = x + 1", "    y = x + 10")))
    assert (applied.files, applied.cells) == ((str(path),), ())
    applied.take_effect()
    assert (path.read_text(), module.scale(0)) == (RAN.replace("x + 1", "x + 10"), 10)
    applied.take_back()
    assert (path.read_text(), module.scale(0)) == (RAN, 1)
    assert list(path.parent.glob("*.before-fix*")) == []


def test_a_file_that_was_written_since_is_left_alone(program):
    path, _ = program
    applied = Application(fix(replacing(str(path), "    y = x + 1", "    y = x + 10")))
    applied.take_effect()
    path.write_text("mine = 1\n")
    with pytest.raises(DevwidgetError, match="was changed after the trace"):
        applied.take_back()
    assert path.read_text() == "mine = 1\n"


@pytest.fixture
def built(tmp_path, monkeypatch):
    path = tmp_path / "built_by_the_user.py"
    path.write_text("class Built:\n    kept = 1\n\n    def __init__(self):\n        self.size = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield path, __import__("built_by_the_user")
    del sys.modules["built_by_the_user"]


def test_an_object_that_is_built_again_is_built_by_the_edited_constructor(built):
    path, module = built
    applied = Application(fix(Edit(str(path), 5, 5, "        self.size = 2", "        self.size = 1")))
    assert applied.works == "build"
    applied.take_effect()
    assert module.Built().size == 2
    applied.take_back()
    assert module.Built().size == 1


def test_a_line_of_a_file_outside_of_functions_needs_another_start(built):
    path, module = built
    applied = Application(fix(Edit(str(path), 2, 2, "    kept = 2", "    kept = 1")))
    assert applied.works == "restart"
    applied.take_effect()
    assert (applied.works, module.Built.kept) == ("restart", 1)


def test_the_constructor_of_a_cell_needs_the_cells_below_it_too(cell, monkeypatch):
    text = "class Built:\n    def __init__(self):\n        self.size = 1\n"
    shell = sys.modules["IPython"].get_ipython()
    shell.history_manager.input_hist_raw[3] = text
    monkeypatch.setattr(shell.compile, "get_code_name", lambda raw, *_: CELL if raw == text else "")
    monkeypatch.setitem(linecache.cache, CELL, (len(text), None, text.splitlines(keepends=True), CELL))
    assert Application(fix(Edit(CELL, 3, 3, "        self.size = 2", "        self.size = 1"))).works == "below"
