import linecache

import pytest

from devwidget.records.finding import Edit, Fix
from devwidget.rules.edits.refusals import refused


def is_refused(source, line, text, found=None, file="train.py", insert=False):
    """Whether an edit of one line, or above it, in a program is refused."""
    rows = source.splitlines()
    linecache.cache[file] = (len(source), None, [f"{row}\n" for row in rows], file)
    try:
        edit = Edit(file, line, line - 1 if insert else line, text, "" if insert else rows[line - 1])
        return refused(Fix("mend it", text, edits=(edit,)), found)
    finally:
        del linecache.cache[file]


def test_an_edit_that_changes_nothing_is_refused():
    assert is_refused("x = f( 1 )\n", 1, "x = f(1)")
    assert not is_refused("x = f(1)\n", 1, "x = f(1).to(2)")


@pytest.mark.parametrize("value", ["lambda a: a", "np.array([1])", "3.5", "loss.item()", "[1, 2]", "Batch(1)"])
def test_what_has_no_device_is_asked_for_none(value):
    source = f"class Batch:\n    pass\nthing = {value}\ny = use(thing)\n"
    assert is_refused(source, 4, "y = use(thing.to('cuda:0'))")
    assert is_refused(source, 4, "y = use(4, device=thing.device)")


def test_a_copy_of_a_parameter_is_no_parameter():
    source = "self.a = nn.Parameter(torch.ones(2))\n"
    assert is_refused(source, 1, "self.a = nn.Parameter(torch.ones(2)).to('cuda:0')")
    assert not is_refused(source, 1, "self.a = nn.Parameter(torch.ones(2).to('cuda:0'))")
