import linecache

import pytest

from devwidget.records.finding import Edit, Fix
from devwidget.rules.edits.refusals import refused


def why_not(source, line, text, found=None, file="train.py", insert=False):
    """The refusal of an edit of one line, or above it, in a program."""
    rows = source.splitlines()
    linecache.cache[file] = (len(source), None, [f"{row}\n" for row in rows], file)
    try:
        edit = Edit(file, line, line - 1 if insert else line, text, "" if insert else rows[line - 1])
        return refused(Fix("mend it", text, edits=(edit,)), found)
    finally:
        del linecache.cache[file]


def test_an_edit_that_changes_nothing_is_refused():
    assert why_not("x = f( 1 )\n", 1, "x = f(1)") == "it changes nothing"
    assert why_not("x = f(1)\n", 1, "x = f(1).to(2)") == ""


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("lambda a: a", "a function"), ("np.array([1])", "a numpy array"), ("3.5", "no tensor"), ("loss.item()", "no tensor"),
        ("[1, 2]", "a container"), ("Batch(1)", "a `Batch`, which has no `to`"),
    ],
)  # fmt: skip
def test_what_has_no_device_is_asked_for_none(value, kind):
    source = f"class Batch:\n    pass\nthing = {value}\ny = use(thing)\n"
    assert why_not(source, 4, "y = use(thing.to('cuda:0'))") == f"`thing` is {kind}"
    assert why_not(source, 4, "y = use(4, device=thing.device)") == f"`thing` is {kind}"


def test_a_copy_of_a_parameter_is_no_parameter():
    source = "self.a = nn.Parameter(torch.ones(2))\n"
    assert "parameter" in why_not(source, 1, "self.a = nn.Parameter(torch.ones(2)).to('cuda:0')")
    assert why_not(source, 1, "self.a = nn.Parameter(torch.ones(2).to('cuda:0'))") == ""
