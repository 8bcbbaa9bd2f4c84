"""Edits are written into the user's own files, with a backup, and nowhere else."""

import dataclasses
import linecache

import pytest
import torch

from devwidget import fix_writer
from devwidget.records.errors import DevwidgetError
from devwidget.records.finding import Edit


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("a = 1\nb = 2\nc = 3\n")
    return path


def test_edits_name_the_lines_of_the_file_as_it_is(program):
    edits = [Edit(str(program), 1, 0, "import torch"), Edit(str(program), 2, 2, "b = 20", "b = 2")]
    backup = fix_writer.write_edits(str(program), edits)
    assert program.read_text() == "import torch\na = 1\nb = 20\nc = 3\n"
    assert backup.read_text() == "a = 1\nb = 2\nc = 3\n"


def test_a_file_that_has_changed_since_is_refused(program):
    with pytest.raises(DevwidgetError, match="has changed"):
        fix_writer.write_edits(str(program), [Edit(str(program), 2, 2, "b = 20", "b = 1")])
    assert program.read_text() == "a = 1\nb = 2\nc = 3\n"


def test_two_edits_of_one_line_are_refused(program):
    edits = [Edit(str(program), 2, 2, "b = 20", "b = 2"), Edit(str(program), 2, 2, "b = 30", "b = 2")]
    with pytest.raises(DevwidgetError):
        fix_writer.apply_to_text(str(program), edits)


def test_an_installed_package_is_not_written():
    with pytest.raises(DevwidgetError, match="installed package"):
        fix_writer.write_edits(torch.__file__, [])


def test_a_cell_is_given_back_as_text(program):
    name = "<ipython-input-3-abc>"
    linecache.cache[name] = (6, None, ["x = 1\n", "y = x\n"], name)
    try:
        assert fix_writer.apply_to_text(name, [Edit(name, 2, 2, "y = x.cuda()", "y = x")]) == "x = 1\ny = x.cuda()\n"
    finally:
        del linecache.cache[name]


TWO = Edit("", 2, 2, "b = 20", "b = 2")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a = 1\r\nb = 2\r\nc = 3\r\n", b"a = 1\r\nb = 20\r\nc = 3\r\n"),
        (b"a = 1\nb = 2\r\nc = 3\n", b"a = 1\nb = 20\r\nc = 3\n"),
        (b"\xef\xbb\xbfa = '\xc3\xa9'\nb = 2\n", b"\xef\xbb\xbfa = '\xc3\xa9'\nb = 20\n"),
        (b"# coding: latin-1\nb = 2\nc = '\xe9'\n", b"# coding: latin-1\nb = 20\nc = '\xe9'\n"),
        (b"a = 1\nb = 2\nc = '\x0c\xc2\x85'\n", b"a = 1\nb = 20\nc = '\x0c\xc2\x85'\n"),
    ],
    ids=["crlf", "mixed", "bom", "latin-1", "other-breaks"],
)
def test_encoding_and_line_ends_stay_as_they_are(tmp_path, before, after):
    path = tmp_path / "program.py"
    path.write_bytes(before)
    backup = fix_writer.write_edits(str(path), [dataclasses.replace(TWO, file=str(path))])
    assert path.read_bytes() == after
    assert backup.read_bytes() == before


def test_lines_that_are_put_in_end_as_their_neighbours_do(tmp_path):
    path = tmp_path / "program.py"
    path.write_bytes(b"a = 1\r\nb = 2")
    fix_writer.write_edits(str(path), [Edit(str(path), 1, 0, "import x\nimport y"), Edit(str(path), 3, 2, "c = 3")])
    assert path.read_bytes() == b"import x\r\nimport y\r\na = 1\r\nb = 2\r\nc = 3"


def test_a_text_that_the_encoding_cannot_hold_leaves_the_file_alone(tmp_path):
    path = tmp_path / "program.py"
    path.write_bytes(b"# coding: latin-1\nb = 2\n")
    with pytest.raises(DevwidgetError, match="cannot be edited"):
        fix_writer.write_edits(str(path), [Edit(str(path), 2, 2, "b = '\u4e2d'", "b = 2")])
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"# coding: latin-1\nb = 2\n"]


def test_a_file_that_is_gone_is_refused(program):
    program.unlink()
    with pytest.raises(DevwidgetError, match="cannot be edited"):
        fix_writer.write_edits(str(program), [dataclasses.replace(TWO, file=str(program))])


def test_each_backup_is_a_file_of_its_own(program):
    first = fix_writer.write_edits(str(program), [Edit(str(program), 2, 2, "b = 20", "b = 2")])
    second = fix_writer.write_edits(str(program), [Edit(str(program), 2, 2, "b = 200", "b = 20")])
    assert [each.read_text().split("\n")[1] for each in (first, second, program)] == ["b = 2", "b = 20", "b = 200"]


def test_lines_that_were_put_in_already_are_refused(program):
    edits = [Edit(str(program), 2, 1, "torch.cuda.synchronize()")]
    fix_writer.write_edits(str(program), edits)
    with pytest.raises(DevwidgetError, match="has changed"):
        fix_writer.write_edits(str(program), edits)
    assert program.read_text().count("synchronize") == 1
