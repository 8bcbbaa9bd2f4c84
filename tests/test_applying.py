"""Edits are written into the user's own files, with a backup, and nowhere else."""

import linecache

import pytest
import torch

from devwidget import applying
from devwidget.records.errors import DevwidgetError
from devwidget.records.finding import Edit


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("a = 1\nb = 2\nc = 3\n")
    return path


def test_edits_name_the_lines_of_the_file_as_it_is(program):
    edits = [Edit(str(program), 1, 0, "import torch"), Edit(str(program), 2, 2, "b = 20", "b = 2")]
    backup = applying.write(str(program), edits)
    assert program.read_text() == "import torch\na = 1\nb = 20\nc = 3\n"
    assert backup.read_text() == "a = 1\nb = 2\nc = 3\n"


def test_a_file_that_has_changed_since_is_refused(program):
    with pytest.raises(DevwidgetError, match="is not what it was"):
        applying.write(str(program), [Edit(str(program), 2, 2, "b = 20", "b = 1")])
    assert program.read_text() == "a = 1\nb = 2\nc = 3\n"


def test_two_edits_of_one_line_are_refused(program):
    edits = [Edit(str(program), 2, 2, "b = 20", "b = 2"), Edit(str(program), 2, 2, "b = 30", "b = 2")]
    with pytest.raises(DevwidgetError):
        applying.after(str(program), edits)


def test_an_installed_package_is_not_written():
    with pytest.raises(DevwidgetError, match="installed package"):
        applying.write(torch.__file__, [])


def test_a_cell_is_given_back_as_text(program):
    name = "<ipython-input-3-abc>"
    linecache.cache[name] = (6, None, ["x = 1\n", "y = x\n"], name)
    try:
        assert applying.after(name, [Edit(name, 2, 2, "y = x.cuda()", "y = x")]) == "x = 1\ny = x.cuda()\n"
    finally:
        del linecache.cache[name]
